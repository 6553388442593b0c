"""The plan beside what one would use instead: speed-ups and distances to the bound, as bars."""

from typing import TypeAlias

from planner.comparison import Comparison
from planner.iteration import JOINT, Evaluation, Plan
from planner.iteration.peers import BASELINE
from planner.report.html import Html, element, joined, table
from planner.report.words import METHODS, percent, times
from planner.units import format_ns

__all__ = ["Peers", "peer_table", "time_of"]

_HEADER = ("method", "what it is", "synchronises by", "iteration")


Peers: TypeAlias = Comparison[Plan, Evaluation]
"""This plan, as the joint one, and the other methods, by time."""


def time_of(peers: Peers, method: str) -> int | None:
    """Return how long an iteration lasts with a method; None if it has no plan."""
    return next((row.objective_ns for row in peers.rows if row.method == method), None)


def peer_table(peers: Peers, bound_ns: int | None) -> Html:
    """Return the table of all methods with a plan, with bars."""
    shown = [row for row in peers.rows if row.objective_ns]
    base = time_of(peers, BASELINE)
    gains = [_ratio(base, peer.objective_ns) for peer in shown]
    above = [_ratio(peer.objective_ns, bound_ns) for peer in shown]
    most = max((speedup for speedup in gains if speedup), default=1.0)
    farthest = max((ratio - 1 for ratio in above if ratio), default=0.0)
    rows: list[tuple[str, ...]] = []
    for peer, gain, distance in zip(shown, gains, above, strict=True):
        assert peer.objective_ns is not None
        assert peer.plan is not None
        travels = f"{' + '.join(peer.plan.algorithms)}, {peer.plan.mode}"
        far = 0.0 if distance is None else max(distance - 1, 0)
        faster = (
            "–" if gain is None else _measured(_bar(gain / most, "gain", 1 / most), times(gain))
        )
        farther: str = "–"
        if distance is not None:
            share = far / farthest if farthest else 0.0
            farther = _measured(_bar(share, "far"), "below it" if distance < 1 else percent(far))
        known = METHODS.get(peer.method, "")
        rows.append((peer.method, known, travels, format_ns(peer.objective_ns), faster, farther))
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
