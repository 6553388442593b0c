"""Plans of fully sharded training, in terms of ``fully_shard``.

Units are calls of ``fully_shard``; `Unit.keep` is ``reshard_after_forward=False``;
`Unit.forward_at` and `Unit.backward_at` give the prefetch lists. Gathers are issued in order of
use.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Plan", "Unit", "layer_ranges"]


class Unit(NamedTuple):
    """Layers whose parameters are gathered together, and whose gradients are scattered together.

    Attributes
    ----------
    start, stop : int
        Half-open range of layers.
    keep : bool
        Whether the parameters stay gathered until the backward computation.
    recompute : bool
        Whether the activations are computed a second time, layer by layer.
    forward_at : int
        Step that issues the gather for the forward pass, when that step's own parameters have
        arrived. The unit's own step issues it as soon as the step before has ended.
    backward_at : int or None
        The same for the backward pass; None exactly if `keep`. A step after the unit's forward
        step; for the last unit also that step, as FSDP2's streams gather it during its computation.
    """

    start: int
    stop: int
    keep: bool
    recompute: bool
    forward_at: int
    backward_at: int | None


@dataclass(frozen=True)
class Plan:
    """What every rank does in an iteration.

    Attributes
    ----------
    mesh : int
        Place in `Problem.meshes`.
    units : tuple of Unit
        In order of layers.
    buffers : int
        Most reduce-scatters whose input is held (``set_reduce_scatter_max_input_buffers``): before
        a unit's gradients are copied, the reduce-scatter this many units earlier has ended.
    """

    mesh: int
    units: tuple[Unit, ...]
    buffers: int = 1

    @property
    def issues(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the steps whose gathers it issues, in order of use."""
        issued: list[list[int]] = [[] for _ in range(2 * len(self.units))]
        last = len(issued) - 1
        for u, unit in enumerate(self.units):
            issued[unit.forward_at].append(u)
        for u, unit in reversed(list(enumerate(self.units))):
            if unit.backward_at is not None:
                issued[unit.backward_at].append(last - u)
        return tuple(map(tuple, issued))

    def unit_of(self, step: int) -> int:
        """Return the unit that a step computes."""
        return step if step < len(self.units) else 2 * len(self.units) - 1 - step


def layer_ranges(cuts: Iterable[int], layers: int) -> list[tuple[int, int]]:
    """Return the ranges of layers that begin at the cuts; the first cut is 0."""
    starts = list(cuts)
    return list(zip(starts, [*starts[1:], layers], strict=True))
