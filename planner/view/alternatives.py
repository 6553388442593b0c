"""The alternatives to the plan: algorithms and modes, and other methods."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import UNSET

from planner.families.iteration import JOINT, Evaluation, Plan
from planner.jsonio.iteration_answer import IterationAnswer
from planner.model.units import format_ns, format_share
from planner.solving.compare import Comparison
from planner.view.html import Html, element, joined, listed, paragraph, table
from planner.view.wording import METHODS, by_reason, target_of, times

ALTERNATIVES = ("algorithm", "mode", "transfers", "iteration", "longer", "above its bound")
"""Header of a table of algorithms and modes."""


def alternative_rows(answer: IterationAnswer) -> list[tuple[str, ...]]:
    """Return a row for each algorithm and mode, the fastest first."""
    rows: list[tuple[str, ...]] = []
    for row in sorted(
        answer.alternatives or (), key=lambda row: (row.objective_ns is None, row.objective_ns or 0)
    ):
        cells = ("–",) * 4
        if row.objective_ns is not None and answer.objective_ns:
            bound = row.lower_bound_ns
            cells = (
                "–" if row.transfers is None else f"{row.transfers:,}",
                format_ns(row.objective_ns),
                format_share(row.objective_ns / answer.objective_ns - 1),
                format_share(row.objective_ns / bound - 1 if bound else None),
            )
        rows.append((row.algorithm, row.mode, *cells))
    return rows


def alternative_table(answer: IterationAnswer) -> Html:
    """Return all algorithms and modes, the fastest first, and the algorithms left out."""
    rows, place = alternative_rows(answer), None
    if answer.objective_ns is not None:
        chosen = (answer.synchronisation.way, answer.synchronisation.mode)
        place = next((place for place, row in enumerate(rows) if row[:2] == chosen), None)
    shown = Html("")
    if answer.objective_ns is not None:
        shown = table("Ways of synchronising", ALTERNATIVES, rows, words=2, marked=place)
    why = [
        (alternative.algorithm, alternative.reason)
        for alternative in answer.alternatives or ()
        if alternative.reason is not UNSET
        and alternative.reason != answer.reason  # the verdict states this reason
    ]
    left = (answer.left_out or {}).items()
    return joined(shown, reasons("Left out:", [*why, *left]))


def reasons(title: str, pairs: Sequence[tuple[str, str]]) -> Html:
    """Return the names without a plan, grouped by reason; nothing if there are none."""
    items = [
        joined(element("b", ", ".join(names)), f": {reason}")
        for reason, names in by_reason(pairs).items()
    ]
    if not items:
        return Html("")
    return joined(paragraph(title, class_="note"), listed(*items, class_="note"))


BASELINE = "ddp"
"""The method that speed-ups refer to."""

Peers: TypeAlias = Comparison[Plan, Evaluation]
"""The plan and the other methods, sorted by time."""


def time_of(peers: Peers, method: str) -> int | None:
    """Return the iteration time of a method, or None without a plan."""
    return next((row.objective_ns for row in peers.rows if row.method == method), None)


def baseline_of(answer: IterationAnswer) -> str:
    """Return the method that speed-ups refer to: DDP, or the default of the plan's target."""
    target = target_of(answer)
    return BASELINE if target is None else target.name


def described(method: str, answer: IterationAnswer) -> str:
    """Return a description of a method; empty if its name suffices."""
    target = target_of(answer)
    if method == answer.method:
        return METHODS[JOINT]
    if target is not None and method == target.name:
        return f"the default of {target.title}"
    if target is not None and method == JOINT:
        return "planner's own runtime, without these rules"
    return METHODS.get(method, "")


def methods(peers: Peers, answer: IterationAnswer) -> Iterator[Html]:
    """Yield the table of all methods, and the methods without a plan."""
    shown = [row for row in peers.rows if row.objective_ns]
    baseline = baseline_of(answer)
    base = time_of(peers, baseline)
    rows: list[tuple[str, ...]] = []
    for peer in shown:
        assert peer.objective_ns is not None
        assert peer.plan is not None
        travels = f"{' + '.join(peer.plan.algorithms)}, {peer.plan.mode}"
        faster = times(base / peer.objective_ns) if base else "–"
        known = described(peer.method, answer)
        rows.append((peer.method, known, travels, format_ns(peer.objective_ns), faster))
    header = ("method", "what it is", "synchronises by", "iteration", f"speed-up over {baseline}")
    place = next((i for i, peer in enumerate(shown) if peer.method == answer.method), None)
    if shown:
        title = "Methods by the time of an iteration"
        yield table(title, header, rows, words=3, marked=place, class_="peers")
    without = [(row.method, row.infeasibility.reason) for row in peers.rows if row.infeasibility]
    without = [pair for pair in (*without, *peers.left_out) if pair[0] != answer.method]
    yield reasons("Methods without a plan here:", without)
