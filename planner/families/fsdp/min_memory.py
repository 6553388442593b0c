"""Least memory in which a chain can be trained, and what takes most of it.

Problem: find the plan with the smallest peak memory.
Method: one reduce-scatter buffer, no prefetch; dynamic programming from the last layer to the first
decides whether a memory suffices, bisection finds the least. Smallest units are tried first, as
they are nearly always best. Proof: docs/fsdp.md, "Why the least memory is exact".
Guarantee: whether anything fits is exact. The least memory is exact up to `MAX_UNITS` smallest
units; on longer chains it is what the smallest units need.
Complexity: O(layers · log bytes) per mesh if the smallest units are best; otherwise O(layers ·
(layers of a unit that fits)²).
Source: own.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

from planner.families.fsdp.evaluation import evaluate, peak_of
from planner.families.fsdp.problem import Plan, Problem, at_use, layer_ranges
from planner.model.units import format_bytes
from planner.solving.pareto import staircase
from planner.solving.result import Infeasibility

MAX_UNITS = 100
"""Up to this many smallest units, larger units are tried for the least memory."""


def finest_units(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Return the smallest units that ties allow."""
    starts = [layer for layer in range(problem.layers) if problem.cuts[layer]]
    return tuple(layer_ranges(starts, problem.layers))


def wrapped(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Return the default blocks, joined where ties forbid a boundary."""
    blocks = problem.blocks
    if blocks is None:
        return finest_units(problem)
    starts = [layer for layer in blocks if problem.cuts[layer]]
    return tuple(layer_ranges(starts, problem.layers))


def spread(problem: Problem, most: int) -> list[int]:
    """Return the starts of the smallest units; if more than `most`, some at about equal bytes."""
    starts = [start for start, _ in finest_units(problem)]
    if len(starts) <= most:
        return starts
    sums = problem.prefixes["parameter_bytes"]
    part = -(-sums[-1] // most)
    chosen = [0]
    for start in starts:
        if sums[start] - sums[chosen[-1]] >= part:
            chosen.append(start)
    return chosen


def least_memory(problem: Problem, mesh: int) -> Plan:
    """Return the plan (`at_use`) with the smallest peak; on long chains, of the smallest units."""
    low, high = 0, 1
    while (plan := _plan(problem, mesh, high, 1)) is None:
        low, high = high, 2 * high
    plan = shrunk(problem, plan, low, lambda most: _plan(problem, mesh, most, 1))
    if len(plan.units) <= MAX_UNITS:
        low = _always_there(problem, mesh) - 1
        plan = shrunk(problem, plan, low, lambda most: _plan(problem, mesh, most, None))
    return plan


def shrunk(
    problem: Problem,
    plan: Plan,
    low: int,
    within: Callable[[int], Plan | None],
    slack: Fraction = Fraction(0),
) -> Plan:
    """Return the plan with the least peak above `low` (bytes), to within a share of the peak.

    `within` returns a plan that fits into a memory (bytes), or None; it returned `plan` before.
    """
    while low + 1 + slack * (high := peak_of(problem, plan)) < high:
        middle = (low + high) // 2
        smaller = within(middle)
        if smaller is None:
            low = middle
        else:
            plan = smaller
    return plan


def fitting(problem: Problem, mesh: int, memory_bytes: int) -> Plan | None:
    """Return a plan (`at_use`) that fits into the given memory, or None."""
    plan = _plan(problem, mesh, memory_bytes, 1)
    if plan is None and memory_bytes >= _always_there(problem, mesh):
        plan = _plan(problem, mesh, memory_bytes, None)
    return plan


def memory_infeasibility(problem: Problem) -> Infeasibility | None:
    """Return the infeasibility if nothing fits into memory, otherwise None."""
    limit = problem.memory_bytes
    if limit is None:
        return None
    if any(fitting(problem, mesh, limit) for mesh in range(len(problem.meshes))):
        return None
    least = least_memory(problem, 0)
    for mesh in range(1, len(problem.meshes)):
        if fitting(problem, mesh, peak_of(problem, least) - 1) is not None:
            least = least_memory(problem, mesh)
    evaluation = evaluate(problem, least)
    peak = evaluation.peak
    parts = (
        (peak.activations, "activations", "a smaller batch size or recomputing them"),
        (
            evaluation.state_bytes,
            "what each rank stores of parameters and the optimiser's state",
            "more shards or a smaller optimiser",
        ),
        (peak.parameters + peak.buffers, "gathered parameters and buffers", "smaller layers"),
        (peak.gradients, "gradients", "smaller layers or more shards"),
    )
    size, dominant, remedy = max(parts, key=lambda part: part[0])
    unit = least.units[least.unit_of(peak.step)]
    return Infeasibility(
        f"memory: no plan fits into memory_bytes ({limit}); {format_bytes(evaluation.peak_bytes)} "
        f"({evaluation.peak_bytes} bytes) would do, mostly for {dominant} "
        f"({format_bytes(size)}): {remedy} would help",
        ("memory_bytes",),
        tuple(range(unit.start, unit.stop)),
    )


def _always_there(problem: Problem, mesh: int) -> int:
    """Return a lower bound on the peak of every plan (bytes); see `fsdp.bounds`."""
    shards = problem.meshes[mesh].shards
    shares = problem.share_sums[shards]
    remembered = accumulate(map(min, problem.checkpoints, problem.activations))
    moments = (
        max(kept + size + sum(problem.gradients[i : i + 2]) + shares[-1] - after, 2 * size)
        for i, (kept, size, after) in enumerate(
            zip(remembered, problem.parameter_bytes, (*shares[2:], shares[-1]), strict=True)
        )
    )
    return problem.state_bytes(shards) + max(moments)


class _Unit(NamedTuple):
    """A unit that may come first in the rest of the chain, and the memory it leaves."""

    before: int  # bytes that earlier units may keep at most
    made: int  # bytes of its gradients
    stop: int
    keep: bool
    recompute: bool
    following: Any  # the next unit


def _plan(problem: Problem, mesh: int, memory_bytes: int, longest: int | None) -> Plan | None:
    """Return a plan that fits, with units of at most `longest` smallest units, or None."""
    shards = problem.meshes[mesh].shards
    room = memory_bytes - problem.state_bytes(shards)
    starts = [*(start for start, _ in finest_units(problem)), problem.layers]
    sizes = problem.prefixes["parameter_bytes"]
    shares = problem.share_sums[shards]
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
    rows = []
    start, unit = 0, max(firsts[0], key=lambda unit: unit.before)
    while unit.following is not None:
        rows.append((start, unit.stop, unit.keep, unit.recompute))
        start, unit = unit.stop, unit.following
    return at_use(mesh, rows)


def _first(
    problem: Problem,
    layers: tuple[int, int],
    followers: list[_Unit],
    room: int,
    shares: Sequence[int],
) -> _Unit | None:
    """Return the unit whose choices, and next unit, leave most memory to earlier units."""
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


# ---
# Units for little memory (`tight`): least sum of transfers, with nothing gathered ahead.
#
# Problem: with little memory transfers hide behind little computation. Which units that fit
# minimise the sum of transfers, each unit gathered twice and scattered once? Method: dynamic
# programming from the last layer to the first; labels are the cost and the gradients of the first
# unit. Why each unit alone decides whether it fits: docs/fsdp.md, "How the best units are found".
# Guarantee: least sum for units of up to `EVERY` smallest units; of more, lengths about an eighth
# apart are tried. Complexity: O(layers · lengths · log labels). Source: own.

# Units of up to EVERY smallest units: every length is tried; the longest has about MOST.
EVERY, MOST = 32, 256


def _numbers() -> tuple[int, ...]:
    numbers = [1]
    while numbers[-1] < MOST:
        numbers.append(numbers[-1] + (1 if numbers[-1] < EVERY else numbers[-1] // 8))
    return tuple(numbers)


_NUMBERS = _numbers()


class _Label(NamedTuple):
    cost: int
    made: int
    units: Any  # linked list: (end of the first unit, units after it)


def cheapest_units(
    problem: Problem, mesh: int, *, recompute: bool = False, ahead: int = 0
) -> tuple[tuple[int, int], ...] | None:
    """Return the units, each with room for `ahead` times its parameters; None if none fit."""
    assert problem.memory_bytes is not None
    over = problem.meshes[mesh]
    apart = problem.apart(over)
    room = problem.memory_bytes - problem.state_bytes(over.shards)
    sums, shares = problem.prefixes, problem.share_sums[over.shards]
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    kept = sums["checkpoints" if recompute else "activations"]
    starts = [*(start for start, _ in finest_units(problem)), problem.layers]
    labels: dict[int, list[_Label]] = {problem.layers: [_Label(0, 0, None)]}
    for place in range(len(starts) - 2, -1, -1):
        start = starts[place]
        left = room - kept[start]
        tried: list[_Label] = []
        again, reached = 0, start
        for number in _NUMBERS:
            if place + number >= len(starts):
                break
            stop = starts[place + number]
            size, made = sizes[stop] - sizes[start], gradients[stop] - gradients[start]
            own, later = shares[stop] - shares[start], shares[-1] - shares[stop]
            remembered, more = kept[stop] - kept[start], ahead * size
            if max(2 * size, size + remembered, 2 * made + later) + more > left:
                break  # longer units do not fit either
            if recompute:
                again = max(again, *problem.activations[reached:stop])
            reached = stop
            copied = 2 * size if stop < problem.layers else 0
            beside = left - remembered - later - more - max(copied, again + size + made)
            costs = 2 * over.gather_ns(size) + over.reduce_ns(made)
            costs = max(costs, over.sum_ns(own)) if apart else costs + over.sum_ns(own)
            behind = labels[stop]  # sorted by rising cost and falling gradients
            cheapest = bisect_left(behind, -beside, key=lambda label: -label.made)
            if cheapest < len(behind):
                label = behind[cheapest]
                tried.append(_Label(costs + label.cost, made, (stop, label.units)))
        labels[start] = staircase(tried, lambda label: label[:2], lambda label: label.made)
    if not labels[0]:
        return None
    ranges: list[tuple[int, int]] = []
    start, trail = 0, min(labels[0], key=lambda label: label.cost).units
    while trail is not None:
        stop, trail = trail
        ranges.append((start, stop))
        start = stop
    return tuple(ranges)
