"""Sections of the page: the verdict, where the time goes, transfers, alternatives."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import UNSET

from planner.jsonio.iteration_answer import (
    VERBS,
    IterationAnswer,
    SynchronisationAnswer,
)
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns, unit_of
from planner.view.html import Html, element, joined, listed, paragraph, table
from planner.view.origin import about_ns, assumption, digits_of
from planner.view.peers import Peers, baseline_of, described, time_of
from planner.view.wording import (
    ALGORITHMS,
    MODES,
    abbreviated,
    as_sentence,
    by_reason,
    percent,
    runner_up_text,
    scheduling_text,
    target_of,
    times,
)

ALTERNATIVES = ("algorithm", "mode", "transfers", "iteration", "longer", "above its bound")
"""Header of a table of algorithms and modes."""


def verdict(answer: IterationAnswer, peers: Peers, profile: Profile, cluster: Cluster) -> Html:
    """Return the result in three sentences, or the reason why there is no plan."""
    digits = digits_of(profile)
    on = f"{answer.model} on {answer.cluster} ({counted(answer.workers, 'worker')})"
    if answer.synchronisation is UNSET or answer.iteration_ns is UNSET:
        reason = "" if answer.reason is UNSET else answer.reason
        binding = () if answer.binding is UNSET else answer.binding
        what = f" What binds: {', '.join(binding)}." if binding else ""
        return paragraph(
            element("strong", "There is no plan"),
            f" for a training iteration of {on}: {reason}.{what}",
            class_="verdict",
        )
    synchronisation = answer.synchronisation
    transfers = () if answer.transfers is UNSET else answer.transfers
    kinds = [
        counted(count, name, f"{name}es" if kind == "push" else "")
        for kind, name in VERBS.items()
        if (count := sum(each.kind == kind for each in transfers))
    ]
    rules = ""
    if answer.target is not UNSET:
        rules = f"The plan keeps to the rules of {answer.target.version}. "
    return paragraph(
        f"A training iteration of {on} is predicted to take about ",
        element("strong", about_ns(answer.iteration_ns, digits)),
        f" if {assumption(answer, cluster, digits)}. ",
        "Gradients travel by ",
        *_algorithms(synchronisation),
        ", ",
        element("strong", synchronisation.mode),
        f" ({MODES[synchronisation.mode]}), in {' and '.join(kinds)}. ",
        rules,
        _standing(answer, peers, digits),
        class_="verdict",
    )


def _algorithms(synchronisation: SynchronisationAnswer) -> Iterable[Html | str]:
    """Yield the algorithms with their descriptions."""
    for place, used in enumerate(synchronisation.algorithms):
        yield " and, where that suits a transfer better, " if place else ""
        yield element("strong", used.algorithm)
        yield f" ({ALGORITHMS.get(used.algorithm, '')})"


def _standing(answer: IterationAnswer, peers: Peers, digits: int) -> Html:
    """Return the distance to the bound and the speed-up over the baseline."""
    time, bound = answer.objective_ns or 0, answer.lower_bound_ns
    target = target_of(answer)
    keeping = "" if target is None else f" that keeps to the rules of {target.title}"
    how_good = ""
    if bound and answer.status == "optimal":
        how_good = joined(
            "The time is ",
            element("strong", "optimal"),
            f": no plan with this order of the computation{keeping} is shorter, whichever of the "
            "algorithms considered it takes. ",
        )
    elif bound:
        how_good = joined(
            "The time is ",
            element("strong", percent(time / bound - 1)),
            f" above the lower bound ({about_ns(bound, digits)}) for this order of the computation "
            "and all algorithms considered. ",
        )
    baseline = baseline_of(answer)
    base, name = time_of(peers, baseline), described(baseline, answer)
    if not base or not time:
        return joined(how_good, f"{name} has no plan here.")
    ratio = element("strong", times(base / time))
    return joined(
        how_good,
        "By the same numbers it is ",
        ratio,
        f" as fast as {name} ({about_ns(base, digits)}).",
    )


def time_parts(answer: IterationAnswer) -> Html:
    """Return the parts of the iteration time, and what would make another plan win."""
    if answer.iteration_ns is UNSET:
        return Html("")
    if answer.why is UNSET:
        stall = 0 if answer.stall_ns is UNSET else answer.stall_ns
        return paragraph(
            "Of an iteration of ",
            element("strong", format_ns(answer.iteration_ns)),
            ", computation waits ",
            element("strong", format_ns(stall)),
            f" for transfers ({_share(stall / max(answer.iteration_ns, 1))}).",
        )
    why, whole = answer.why, max(answer.iteration_ns, 1)
    parts = [
        ("backward", "computation", why.computation_ns),
        ("bytes", "waiting for bytes", max(why.exposed_bytes_ns, 0)),
        ("startups", "waiting for start-ups", max(why.exposed_startup_ns, 0)),
    ]
    rects, start = [], 0.0
    for kind, text, time in parts:
        width = 1000 * time / whole
        title = element("title", f"{text}: {format_ns(time)}")
        rect = {"x": start, "y": 0.0, "width": width, "height": 30.0}
        rects.append(element("rect", title, class_=f"{kind} apart", **rect))
        start += width
    spoken = "; ".join(f"{text} {format_ns(time)}" for _, text, time in parts)
    bar = element(
        "svg",
        *rects,
        viewBox="0 0 1000 30",
        preserveAspectRatio="none",
        class_="stacked",
        role="img",
        aria_label=f"An iteration of {format_ns(answer.iteration_ns)}: {spoken}",
    )
    keys = [
        joined(
            element("span", "", class_=f"key {kind}"),
            f" {text}: ",
            element("strong", format_ns(time)),
            f" ({_share(time / whole)})",
        )
        for kind, text, time in parts
    ]
    sent = ""
    if answer.communication_ns is not UNSET and answer.startup_ns is not UNSET:
        beside = "costs no time"
        if answer.slowed_ns is not UNSET:
            beside = f"slows it down by {format_ns(answer.slowed_ns)} in all"
        sent = (
            f"The network is busy for {format_ns(answer.communication_ns)} of the "
            f"{format_ns(answer.iteration_ns)}, {format_ns(answer.startup_ns)} of that with "
            f"start-ups; what happens beside the computation {beside}."
        )
    runner_up = "there is no other way of synchronising here that costs something else"
    if why.runner_up is not None:
        runner_up = runner_up_text(why.runner_up, answer.objective_ns or 0)
    scheduled = []
    if answer.scheduling is not UNSET:
        scheduled = [paragraph(as_sentence(scheduling_text(answer.scheduling)))]
    return joined(
        bar,
        listed(*keys, class_="legend"),
        paragraph(sent),
        paragraph(f"The runner-up: {runner_up}."),
        *scheduled,
    )


def transfer_table(answer: IterationAnswer) -> Html:
    """Return the table of all transfers, collapsed at first."""
    transfers = () if answer.transfers is UNSET else answer.transfers
    unit, length = unit_of(max(transfer.end_ns for transfer in transfers) // 2)
    rows = []
    for number, transfer in enumerate(transfers, start=1):
        part = {} if transfer.part is UNSET else transfer.part
        cut = f", {counted(len(part), 'of them', 'of them')} in part" if len(part) > 1 else ""
        cut = ", in part" if part and len(transfer.parameters) == 1 else cut
        cut = ", one of them in part" if len(part) == 1 < len(transfer.parameters) else cut
        late = max(transfer.end_ns - transfer.due_ns, 0)
        when = (transfer.ready_ns, transfer.start_ns, transfer.end_ns, transfer.due_ns)
        rows.append(
            (
                str(number),
                VERBS[transfer.kind],
                abbreviated(transfer.parameters) + cut,
                format_bytes(transfer.bytes),
                *(f"{time / length:,.3f}" for time in when),
                f"{late / length:,.3f}" if late else "–",
            )
        )
    moments = (f"{name} ({unit})" for name in ("ready", "start", "end", "due", "past due"))
    header = ("no.", "kind", "parameters", "size", *moments)
    return element(
        "details",
        element("summary", f"All {counted(len(rows), 'transfer')}, with their times"),
        table(
            "Transfers in the order in which they leave", header, rows, words=3, class_="transfers"
        ),
        paragraph(
            "Times count from the start of the backward pass. A transfer is ready when its last "
            "gradient is (a pull, when the backward pass and the pushes of its parameters have "
            "ended), and due when the next forward pass needs it.",
            class_="note",
        ),
    )


def alternative_rows(
    answer: IterationAnswer, share: Callable[[float], str], unknown: str
) -> list[tuple[str, ...]]:
    """Return a row for each algorithm and mode, the fastest first; `share` writes distances."""
    known = () if answer.alternatives is UNSET else answer.alternatives
    rows: list[tuple[str, ...]] = []
    for row in sorted(known, key=lambda row: (row.objective_ns is None, row.objective_ns or 0)):
        cells = ("–",) * 4
        if row.objective_ns is not None and answer.objective_ns:
            bound = row.lower_bound_ns
            cells = (
                "–" if row.transfers is None else f"{row.transfers:,}",
                format_ns(row.objective_ns),
                share(row.objective_ns / answer.objective_ns - 1),
                share(row.objective_ns / bound - 1) if bound else unknown,
            )
        rows.append((row.algorithm, row.mode, *cells))
    return rows


def alternative_table(answer: IterationAnswer) -> Html:
    """Return all algorithms and modes, the fastest first, and those left out."""
    rows, place = alternative_rows(answer, percent, "–"), None
    if answer.synchronisation is not UNSET:
        chosen = (answer.synchronisation.way, answer.synchronisation.mode)
        place = next((place for place, row in enumerate(rows) if row[:2] == chosen), None)
    shown = Html("")
    if answer.objective_ns is not None:
        shown = table("Ways of synchronising", ALTERNATIVES, rows, words=2, marked=place)
    why = [
        (alternative.algorithm, alternative.reason)
        for alternative in (() if answer.alternatives is UNSET else answer.alternatives)
        if alternative.reason is not UNSET
        and alternative.reason != answer.reason  # the verdict states that reason
    ]
    left = {} if answer.left_out is UNSET else answer.left_out
    return joined(shown, reasons("Left out:", [*why, *left.items()]))


def rule_table(answer: IterationAnswer) -> Html:
    """Return the target's rules, with the lines of its source code."""
    target = target_of(answer)
    assert target is not None
    title = f"Rules of {target.title}, {target.version}"
    return table(title, ("about", "rule", "source"), list(map(tuple, target.rules)), words=3)


def reasons(title: str, pairs: Sequence[tuple[str, str]]) -> Html:
    """Return the names without a plan, grouped by reason; nothing if there are none."""
    items = [
        joined(element("b", ", ".join(names)), f": {reason}")
        for reason, names in by_reason(pairs).items()
    ]
    if not items:
        return Html("")
    return joined(paragraph(title, class_="note"), listed(*items, class_="note"))


def _share(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
