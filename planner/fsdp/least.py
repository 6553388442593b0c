"""The least memory in which a chain can be trained at all, and what takes most of it.

Problem: which plan has the smallest peak?

Method: one buffer for reduce-scatters, and no gather before it is needed: all of that only ever
takes memory away. Left to choose are the units, and what each keeps: parameters after its forward
pass (which spares the copy of a second gather), and activations or checkpoints. What units keep
adds to all moments of later ones by its size alone, and of the later units a unit's own moments
know the next one's gradients. So, for a given memory, going through the layers from the last to the
first gives how much the units before may keep at most, for each unit that can come next; if even
nothing is too much, nothing fits. The least memory for which something fits is found by halving,
between a sum of what is there in any plan and what the smallest units need.

Small units are nearly always best: a larger one helps only where the copy of gradients makes the
peak, by freeing activations first. So they are tried first.

Guarantee: whether anything fits is decided exactly; the least memory is exact for chains of up to
`MAX_UNITS` smallest units, and of longer ones what those need.
Complexity: O(layers · log bytes) for each mesh where the smallest units are best; else
O(layers · (layers of a unit that fits)²). Source: own.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from planner.fsdp.evaluation import evaluate
from planner.fsdp.plan import layer_ranges
from planner.fsdp.problem import Problem
from planner.fsdp.shaping import Shape, at_use
from planner.results import Infeasibility
from planner.solving.pareto import staircase
from planner.units import format_bytes

__all__ = ["Least", "finest", "fitting", "least_memory", "too_little", "wrapped"]


MAX_UNITS = 100
"""Up to so many of the smallest units, larger ones are tried for the least memory."""


class Least(NamedTuple):
    """The smallest peak, and a shape that has it."""

    memory_bytes: int
    shape: Shape


def finest(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Return the smallest units that ties allow."""
    starts = [layer for layer in range(problem.layers) if problem.cuts[layer]]
    return tuple(layer_ranges(starts, problem.layers))


def wrapped(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Return the blocks that people wrap, joined where ties forbid to cut."""
    blocks = problem.blocks
    if blocks is None:
        return finest(problem)
    starts = [layer for layer in blocks if problem.cuts[layer]]
    return tuple(layer_ranges(starts, problem.layers))


def spread(problem: Problem, ranges: Sequence[tuple[int, int]], most: int) -> list[int]:
    """Return where some ranges start; of more than `most`, some with as many bytes between."""
    starts = [start for start, _ in ranges]
    if len(starts) <= most:
        return starts
    sums = problem.prefixes["parameter_bytes"]
    part = -(-sums[-1] // most)
    chosen = [0]
    for start in starts:
        if sums[start] - sums[chosen[-1]] >= part:
            chosen.append(start)
    return chosen


def least_memory(problem: Problem, mesh: int) -> Least:
    """Return the smallest peak of all plans on one mesh; of long chains in the smallest units."""
    low, high = 0, 1
    while (shape := _shape(problem, mesh, high, 1)) is None:
        low, high = high, 2 * high
    best = _halved(problem, mesh, low, Least(high, shape), 1)
    if len(shape.ranges) > MAX_UNITS:
        return best
    low = _always_there(problem, mesh) - 1
    return best if low + 1 >= best.memory_bytes else _halved(problem, mesh, low, best, None)


def fitting(problem: Problem, mesh: int, memory_bytes: int) -> Shape | None:
    """Return a shape that fits into some memory, if any does."""
    shape = _shape(problem, mesh, memory_bytes, 1)
    if shape is None and memory_bytes >= _always_there(problem, mesh):
        shape = _shape(problem, mesh, memory_bytes, None)
    return shape


def too_little(problem: Problem) -> Infeasibility | None:
    """Return why nothing fits into memory, if nothing does."""
    limit = problem.memory_bytes
    if limit is None:
        return None
    if any(fitting(problem, mesh, limit) for mesh in range(len(problem.meshes))):
        return None
    least = least_memory(problem, 0)
    for mesh in range(1, len(problem.meshes)):
        if fitting(problem, mesh, least.memory_bytes - 1) is not None:
            least = least_memory(problem, mesh)
    evaluation = evaluate(problem, at_use(least.shape))
    peak = evaluation.peak
    parts = {
        "activations": peak.activations,
        "what each rank stores of parameters and the optimiser's state": evaluation.state_bytes,
        "gathered parameters and buffers": peak.parameters + peak.buffers,
        "gradients": peak.gradients,
    }
    dominant = max(parts, key=lambda name: parts[name])
    helps = {
        "activations": "a smaller batch size or recomputing them would help",
        "what each rank stores of parameters and the optimiser's state": "more shards or a smaller "
        "optimiser would help",
        "gathered parameters and buffers": "smaller layers would help",
        "gradients": "smaller layers or more shards would help",
    }
    unit = least.shape.ranges[at_use(least.shape).unit_of(peak.step)]
    return Infeasibility(
        f"memory: no plan fits into memory_bytes ({limit}); {format_bytes(least.memory_bytes)} "
        f"({least.memory_bytes} bytes) would do, mostly for {dominant} "
        f"({format_bytes(parts[dominant])}): {helps[dominant]}",
        ("memory_bytes",),
        tuple(range(*unit)),
    )


def _halved(problem: Problem, mesh: int, low: int, best: Least, longest: int | None) -> Least:
    """Return the least memory for units of so many layers at most, above what does not do."""
    while low + 1 < best.memory_bytes:
        middle = (low + best.memory_bytes) // 2
        shape = _shape(problem, mesh, middle, longest)
        if shape is None:
            low = middle
        else:
            best = Least(middle, shape)
    return best


def _always_there(problem: Problem, mesh: int) -> int:
    """Return what is in memory at some moment of every plan; see `planner.fsdp.bounds`."""
    shards = problem.meshes[mesh].shards
    scattered = [*list(accumulate(reversed(problem.shares(shards))))[::-1], 0, 0]
    remembered = accumulate(map(min, problem.checkpoints, problem.activations))
    following = [*problem.gradients[1:], 0]
    moments = (
        max(kept + size + made + next_made + scattered[layer + 2], 2 * size)
        for layer, (kept, size, made, next_made) in enumerate(
            zip(remembered, problem.parameter_bytes, problem.gradients, following, strict=True)
        )
    )
    return problem.state_bytes(shards) + max(moments)


class _Unit(NamedTuple):
    """A unit that may come first, and what fits before it."""

    before: int  # bytes that earlier units may keep at most
    made: int  # bytes of its gradients
    stop: int
    keep: bool
    recompute: bool
    following: Any  # the unit behind it


def _shape(problem: Problem, mesh: int, memory_bytes: int, longest: int | None) -> Shape | None:
    """Return what fits into memory in units of so many smallest ones at most, or None."""
    shards = problem.meshes[mesh].shards
    room = memory_bytes - problem.state_bytes(shards)
    starts = [*(start for start, _ in finest(problem)), problem.layers]
    sizes = problem.prefixes["parameter_bytes"]
    shares = list(accumulate(problem.shares(shards), initial=0))
    end = _Unit(room, 0, problem.layers, False, False, None)
    firsts: dict[int, list[_Unit]] = {problem.layers: [end]}
    for place in range(len(starts) - 2, -1, -1):
        start = starts[place]
        last = len(starts) - 1 if longest is None else min(place + longest, len(starts) - 1)
        units: list[_Unit] = []
        for stop in starts[place + 1 : last + 1]:
            if 2 * (sizes[stop] - sizes[start]) > room:
                break
            unit = _first(problem, (start, stop), firsts[stop], room, shares)
            if unit is not None:
                units.append(unit)
        firsts[start] = staircase(
            units, lambda unit: (unit.made, -unit.before), lambda unit: -unit.before
        )
    if not firsts[0]:
        return None
    ranges: list[tuple[int, int]] = []
    chosen: list[_Unit] = []
    start, unit = 0, max(firsts[0], key=lambda unit: unit.before)
    while unit.following is not None:
        ranges.append((start, unit.stop))
        chosen.append(unit)
        start, unit = unit.stop, unit.following
    return Shape(
        mesh,
        tuple(ranges),
        tuple(unit.keep for unit in chosen),
        tuple(unit.recompute for unit in chosen),
        1,
    )


def _first(
    problem: Problem,
    layers: tuple[int, int],
    followers: list[_Unit],
    room: int,
    shares: list[int],
) -> _Unit | None:
    """Return a unit with the choices, and the unit behind it, that leave most to earlier ones."""
    start, stop = layers
    size, made, whole, checkpoint = (
        problem.prefixes[name][stop] - problem.prefixes[name][start]
        for name in ("parameter_bytes", "gradients", "activations", "checkpoints")
    )
    scattered = shares[-1] - shares[stop]
    again = max(problem.activations[start:stop])
    best = None
    for recompute in (False, True) if problem.checkpoint_bytes is not None and again else (False,):
        kept, extra = (checkpoint, again) if recompute else (whole, 0)
        alone = room - max(2 * size, size + kept, 2 * made + scattered if made else 0)
        for keep in (True, False):
            copied = 0 if keep else 2 * size
            beside = room - kept - scattered - max(copied, extra + size + made)
            for following in followers:
                before = min(alone, beside - following.made)
                if following.following is not None:
                    before = min(before, following.before - kept - size * keep)
                if before >= 0 and (best is None or before > best.before):
                    best = _Unit(before, made, stop, keep, recompute, following)
    return best
