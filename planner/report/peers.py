"""The plan beside what one would use instead: speed-ups and distances to the bound, as bars."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.comparison import Comparison
from planner.iteration import JOINT, Evaluation, Plan
from planner.report.html import Html, element, joined, table
from planner.report.words import METHODS, percent, times
from planner.units import format_ns

__all__ = ["BASELINE", "Peer", "peer_table", "peers_of", "time_of"]

BASELINE = "ddp"
"""What speed-ups count from."""

_HEADER = ("method", "what it is", "synchronises by", "iteration")


@dataclass(frozen=True, slots=True)
class Peer:
    """What one method does.

    Attributes
    ----------
    method : str
        Its name.
    iteration_ns : int or None
        How long an iteration lasts; None without a plan.
    travels : str
        By which algorithm and in which mode.
    reason : str
        Why there is no plan, if so.
    """

    method: str
    iteration_ns: int | None
    travels: str = ""
    reason: str = ""


def peers_of(comparison: Comparison[Plan, Evaluation]) -> tuple[Peer, ...]:
    """Return all methods of a comparison, the fastest first; those without a plan last."""
    found = [
        Peer(
            one.method,
            one.objective_ns,
            f"{one.plan.algorithm}, {one.plan.mode}" if one.plan is not None else "",
            one.infeasibility.reason if one.infeasibility else "",
        )
        for one in comparison.rows
    ]
    found += [Peer(name, None, reason=reason) for name, reason in comparison.left_out]
    return tuple(found)


def time_of(peers: Sequence[Peer], method: str) -> int | None:
    """Return how long an iteration lasts with a method; None if it has no plan."""
    return next((one.iteration_ns for one in peers if one.method == method), None)


def peer_table(peers: Sequence[Peer], bound_ns: int | None) -> Html:
    """Return the table of all methods with a plan, with bars."""
    shown = [one for one in peers if one.iteration_ns]
    base = time_of(peers, BASELINE)
    gains = [_ratio(base, one.iteration_ns) for one in shown]
    above = [_ratio(one.iteration_ns, bound_ns) for one in shown]
    most = max((one for one in gains if one), default=1.0)
    farthest = max((one - 1 for one in above if one), default=0.0)
    rows: list[tuple[str, ...]] = []
    for one, gain, distance in zip(shown, gains, above, strict=True):
        assert one.iteration_ns is not None
        far = 0.0 if distance is None else max(distance - 1, 0)
        faster = (
            "–" if gain is None else _measured(_bar(gain / most, "gain", 1 / most), times(gain))
        )
        farther: str = "–"
        if distance is not None:
            share = far / farthest if farthest else 0.0
            farther = _measured(_bar(share, "far"), "below it" if distance < 1 else percent(far))
        known = METHODS.get(one.method, "")
        rows.append((one.method, known, one.travels, format_ns(one.iteration_ns), faster, farther))
    header = (*_HEADER, f"speed-up over {BASELINE}", "above the bound")
    place = next((i for i, one in enumerate(shown) if one.method == JOINT), None)
    return table(
        "Methods by the time of an iteration", header, rows, words=3, marked=place, class_="peers"
    )


def _ratio(over: int | None, under: int | None) -> float | None:
    return over / under if over and under else None


def _measured(bar: Html, text: str) -> Html:
    """Return a bar with its number, as wide as all others."""
    return joined(bar, element("span", text, class_="value"))


def _bar(share: float, kind: str, line: float | None = None) -> Html:
    """Return a bar of some share of the room, with a line across at another share."""
    parts = [
        element(
            "rect", x=0, y=1, width=max(100 * share, 0.6 if share else 0), height=8, class_=kind
        )
    ]
    if line is not None:
        parts.append(element("path", d=f"M{100 * line:.2f} 0V10", class_="one"))
    return element(
        "svg",
        *parts,
        viewBox="0 0 101 10",
        preserveAspectRatio="none",
        class_="bar",
        aria_hidden="true",
    )
