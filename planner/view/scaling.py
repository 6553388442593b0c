"""Texts that all drawings of a job configuration share."""

from collections.abc import Sequence

from planner.model.units import printable, three_digits
from planner.solving.views import LayerTime


def factor_text(factor: float | None) -> str:
    """Return a constant's factor as text; – if no end was found."""
    return "–" if factor is None else three_digits(factor)


def slowdown_text(epoch_ns: int, best_ns: int) -> str:
    """Return the slowdown against the best epoch: 0%, 3.21%, and from twice on 12.3×."""
    if epoch_ns == best_ns or not best_ns:
        return "0%"
    ratio = epoch_ns / best_ns
    if ratio >= 2:
        return f"{ratio:.4g}×"
    return "<0.01%" if ratio < 1.00005 else f"{ratio - 1:.2%}"


def grouped(layers: Sequence[LayerTime], most: int) -> list[LayerTime]:
    """Return at most `most` rows: single layers, or ranges of equal length."""
    if len(layers) <= most:
        return [LayerTime(printable(layer.name), layer.phases_ns) for layer in layers]
    each = -(-len(layers) // most)
    ranges = []
    for start in range(0, len(layers), each):
        members = layers[start : start + each]
        sums = tuple(map(sum, zip(*(layer.phases_ns for layer in members), strict=True)))
        ranges.append(LayerTime(f"layers {start} … {start + len(members) - 1}", sums))
    return ranges
