"""Plans of fully sharded training.

What a plan says, ``fully_shard`` can be told: units are its calls, `Unit.keep` is
``reshard_after_forward=False``, and `Unit.forward_at` and `Unit.backward_at` say which modules the
others prefetch. Gathers are issued in order of use.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Plan", "Unit", "layer_ranges"]


class Unit(NamedTuple):
    """Layers that are gathered together, and whose gradients are scattered together.

    Attributes
    ----------
    start, stop : int
        Half-open range of layers.
    keep : bool
        Whether its parameters stay gathered until its backward computation.
    recompute : bool
        Whether its activations are computed a second time, layer by layer.
    forward_at : int
        Step that issues its gather for the forward pass, when its own parameters have arrived; its
        own step issues it as soon as the step before has ended.
    backward_at : int or None
        The same of the gather for the backward pass; None exactly if it keeps its parameters. A
        step behind its own forward one; or that, of the last unit: as FSDP2's streams gather it
        beside its computation.
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
        Reduce-scatters whose input is kept at most (``set_reduce_scatter_max_input_buffers``):
        before a unit's gradients are copied, the reduce-scatter so many units before has ended.
    """

    mesh: int
    units: tuple[Unit, ...]
    buffers: int = 1

    @property
    def issues(self) -> tuple[tuple[int, ...], ...]:
        """Steps whose gathers each step issues, in order of use."""
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
    """Return the ranges of layers that begin at the cuts, the first of which is 0."""
    starts = list(cuts)
    return list(zip(starts, [*starts[1:], layers], strict=True))
