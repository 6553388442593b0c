"""Prefetch: choose the step that issues each gather, for given units and memory.

Method: gathers are issued in order of use, so memory limits the number issued up to each step. The
largest sequence that never falls issues every gather as early as any plan can. Proof: docs/fsdp.md,
"How gathers are issued".
Guarantee: optimal if gathers do not compete with reduce-scatters. On one channel an early gather
delays the next reduce-scatter; `PrefetchDistance` limits the gathers on their way.
Complexity: O(units · log units). Source: own.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from planner.families.fsdp.evaluation import levels, loads_of
from planner.families.fsdp.min_memory import finest_units
from planner.families.fsdp.problem import Channels, Plan, Problem, Unit, at_use


class PrefetchDistance(NamedTuple):
    """Prefetch distance: most gathers on their way while a step computes; None for no limit."""

    forward: int | None = None
    backward: int | None = None


FARTHEST = PrefetchDistance()
"""No limit but memory."""


class MemoryNeeds(NamedTuple):
    """Memory that units need if every gather is issued in its own step (bytes)."""

    needed: tuple[int, ...]  # step of each gather, in order of use
    used: tuple[int, ...]  # gathers used up to each step
    issued: tuple[int, ...]  # bytes of the first gathers, by their number
    computing: tuple[int, ...]  # peak from the computation of each step on
    before: tuple[int, ...]  # peak of each step before its computation
    again: int  # first step that may issue a gather for the backward pass

    @property
    def least(self) -> int:
        """Least memory that suffices."""
        return max(*self.computing, *self.before)

    def within(self, memory_bytes: int | None) -> list[int] | None:
        """Return the most gathers issued when each step computes; None if too little memory."""
        steps = len(self.used)
        most = [len(self.needed)] * steps
        if memory_bytes is not None:
            if memory_bytes < self.least:
                return None
            for step in range(steps):
                room = self.issued[self.used[step]] + memory_bytes - self.computing[step]
                if step + 1 < steps:
                    following = self.issued[self.used[step + 1]]
                    room = min(room, following + memory_bytes - self.before[step + 1])
                most[step] = bisect_right(self.issued, room) - 1
        for step in range(min(self.again, steps)):
            most[step] = min(most[step], steps // 2)  # nothing has been freed yet
        return _falling(most)


def needs_of(problem: Problem, plan: Plan) -> MemoryNeeds:
    """Return the memory needs of a plan that issues every gather in its own step (`at_use`)."""
    count, keep = len(plan.units), [unit.keep for unit in plan.units]
    kept_from = max((u for u, kept in enumerate(keep) if not kept), default=count)
    needed = [*range(count)]
    needed += [2 * count - 1 - u for u in reversed(range(count)) if not keep[u]]
    loads = loads_of(problem, plan)
    sizes = (loads[plan.unit_of(step)].parameter_bytes for step in needed)
    uses = [0] * (2 * count)
    for step in needed:
        uses[step] = 1
    state = problem.state_bytes(problem.meshes[plan.mesh].shards)
    computing, before = [state] * (2 * count), [state] * (2 * count)
    for level in levels(plan, loads):
        side = before if level.stage in ("wait", "copy") else computing
        side[level.step] = max(side[level.step], state + level.moving)
    return MemoryNeeds(
        tuple(needed),
        tuple(accumulate(uses)),
        tuple(accumulate(sizes, initial=0)),
        tuple(computing),
        tuple(before),
        kept_from + 1,
    )


def prefetched(problem: Problem, plan: Plan, ahead: PrefetchDistance = FARTHEST) -> Plan | None:
    """Return the plan with the earliest issues possible, or None if it does not fit into memory."""
    return filled_within(plan, needs_of(problem, plan), problem.memory_bytes, ahead)


def filled_within(
    plan: Plan, needs: MemoryNeeds, memory_bytes: int | None, ahead: PrefetchDistance
) -> Plan | None:
    """Return the plan with the earliest issues that a memory allows, or None."""
    count, most = len(plan.units), needs.within(memory_bytes)
    if most is None:
        return None
    for step, used in enumerate(needs.used):
        limit = ahead.forward if step < count else ahead.backward
        if limit is not None:
            most[step] = min(most[step], used + limit)
    return issued_by(plan, needs.needed, _falling(most))


def issued_by(plan: Plan, steps: Sequence[int], issued: Sequence[int]) -> Plan:
    """Return the plan in which this many gathers are issued when each step computes.

    `steps`: the step of each gather, in order of use.
    """
    last = 2 * len(plan.units) - 1
    at: list[int] = [0] * (last + 1)
    step = 0
    for number, needed in enumerate(steps):
        while step < needed and issued[step] <= number:
            step += 1
        at[needed] = min(step, needed)
    units = (
        unit._replace(forward_at=at[u], backward_at=None if unit.keep else at[last - u])
        for u, unit in enumerate(plan.units)
    )
    return Plan(plan.mesh, tuple(units), plan.buffers)


def keeping_last(plan: Plan, kept: int, buffers: int) -> Plan:
    """Return a plan (`at_use`) that keeps the last units, which are needed again first."""
    first = len(plan.units) - kept
    units = (unit._replace(keep=u >= first) for u, unit in enumerate(plan.units))
    return at_use(plan.mesh, units, buffers)


def _falling(most: Sequence[int]) -> list[int]:
    """Return the largest non-decreasing sequence below the given one."""
    return list(accumulate(reversed(most), min))[::-1]


# ---
# Neighbourhood of the local search: every plan (`at_use`) and prefetch distance one change away.
#
# Changes: one buffer more or less; a unit kept or not, recomputed or not; another prefetch
# distance; a unit boundary moved, removed or added.
# Complexity: O(units) neighbours, each in O(units). Source: own.


def changes(
    problem: Problem, plan: Plan, ahead: PrefetchDistance
) -> Iterator[tuple[Plan, PrefetchDistance]]:
    """Yield everything that is one change away."""
    units, count, kept = plan.units, len(plan.units), problem.activations

    def changed(first: int, stop: int, *others: Unit, buffers: int = plan.buffers) -> Plan:
        """Return the plan with other units; what keeps nothing is not recomputed."""
        made = (
            unit._replace(recompute=unit.recompute and any(kept[unit.start : unit.stop]))
            for unit in others
        )
        return at_use(plan.mesh, (*units[:first], *made, *units[stop:]), buffers)

    for buffers in (plan.buffers + 1, plan.buffers - 1):
        if 1 <= buffers <= count:
            yield replace(plan, buffers=buffers), ahead
    for u, unit in enumerate(units):
        yield changed(u, u + 1, unit._replace(keep=not unit.keep)), ahead
    if problem.channels != "two":
        for distance in (1, 2, 3, 4, 6, 8, None):
            yield plan, PrefetchDistance(ahead.forward, distance)
            yield plan, PrefetchDistance(distance, ahead.backward)
    starts = [start for start, _ in finest_units(problem)]
    places = {start: place for place, start in enumerate(starts)}
    for u, (before, unit) in enumerate(pairwise(units), 1):
        place = places[unit.start]
        for other in (place - 1, place + 1, place - 3, place + 3):
            if 0 < other < len(starts) and before.start < starts[other] < unit.stop:
                cut = starts[other]
                halves = before._replace(stop=cut), unit._replace(start=cut)
                yield changed(u - 1, u + 1, *halves), ahead
    for u, (before, unit) in enumerate(pairwise(units), 1):
        whole, most = unit._replace(start=before.start), min(plan.buffers, count - 1)
        yield changed(u - 1, u + 1, whole, buffers=most), ahead
    for u, unit in enumerate(units):
        inside = [cut for cut in starts if unit.start < cut < unit.stop]
        for cut in inside[len(inside) // 2 : len(inside) // 2 + 1]:
            halves = unit._replace(stop=cut), unit._replace(start=cut)
            yield changed(u, u + 1, *halves), ahead
    if problem.checkpoint_bytes is not None:
        for u, unit in enumerate(units):
            if any(problem.activations[unit.start : unit.stop]):
                yield changed(u, u + 1, unit._replace(recompute=not unit.recompute)), ahead


def by_streams(plan: Plan, channels: Channels) -> Plan:
    """Return the plan that FSDP2's own streams carry out for a plan's lists.

    These issue at other moments than the host asks: docs/fsdp.md, "When FSDP2's streams issue a
    gather".
    """
    count = len(plan.units)
    copied = [
        step for step in range(2 * count) if step < count or not plan.units[plan.unit_of(step)].keep
    ]
    units = []
    for u, unit in enumerate(plan.units):
        ahead = unit.forward_at - (1 if unit.forward_at < u else 2)
        again = unit.backward_at
        if again is not None and again < count:
            again = max(again - 1, 0)
        elif again is not None and (again == count or channels != "one"):
            again = max(step for step in copied if step <= min(again, 2 * count - 2 - u))
        units.append(unit._replace(forward_at=max(ahead, 0), backward_at=again))
    return replace(plan, units=tuple(units))
