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
    peers = [
        Peer(
            row.method,
            row.objective_ns,
            f"{' + '.join(row.plan.algorithms)}, {row.plan.mode}" if row.plan is not None else "",
            row.infeasibility.reason if row.infeasibility else "",
        )
        for row in comparison.rows
    ]
    peers += [Peer(name, None, reason=reason) for name, reason in comparison.left_out]
    return tuple(peers)


def time_of(peers: Sequence[Peer], method: str) -> int | None:
    """Return how long an iteration lasts with a method; None if it has no plan."""
    return next((peer.iteration_ns for peer in peers if peer.method == method), None)


def peer_table(peers: Sequence[Peer], bound_ns: int | None) -> Html:
    """Return the table of all methods with a plan, with bars."""
    shown = [peer for peer in peers if peer.iteration_ns]
    base = time_of(peers, BASELINE)
    gains = [_ratio(base, peer.iteration_ns) for peer in shown]
    above = [_ratio(peer.iteration_ns, bound_ns) for peer in shown]
    most = max((speedup for speedup in gains if speedup), default=1.0)
    farthest = max((ratio - 1 for ratio in above if ratio), default=0.0)
    rows: list[tuple[str, ...]] = []
    for peer, gain, distance in zip(shown, gains, above, strict=True):
        assert peer.iteration_ns is not None
        far = 0.0 if distance is None else max(distance - 1, 0)
        faster = (
            "–" if gain is None else _measured(_bar(gain / most, "gain", 1 / most), times(gain))
        )
        farther: str = "–"
        if distance is not None:
            share = far / farthest if farthest else 0.0
            farther = _measured(_bar(share, "far"), "below it" if distance < 1 else percent(far))
        known = METHODS.get(peer.method, "")
        rows.append(
            (peer.method, known, peer.travels, format_ns(peer.iteration_ns), faster, farther)
        )
    header = (*_HEADER, f"speed-up over {BASELINE}", "above the bound")
    place = next((i for i, peer in enumerate(shown) if peer.method == JOINT), None)
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
