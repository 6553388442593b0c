"""Prefetch: choose the step that issues each gather, for given units and memory.

Method: gathers are issued in order of use, so memory limits the number issued up to each step. The
largest sequence that never falls issues every gather as early as any plan can. Proof: docs/fsdp.md,
"How gathers are issued".
Guarantee: optimal if gathers do not compete with reduce-scatters. On one channel an early gather
delays the next reduce-scatter; `Ahead` limits the gathers on their way.
Complexity: O(units · log units). Source: own.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from planner.families.fsdp.evaluation import levels, loads_of
from planner.families.fsdp.problem import Plan, Problem, Unit


class Shape(NamedTuple):
    """A plan without the steps that issue gathers; fields as in `Plan` and `Unit`."""

    mesh: int
    ranges: tuple[tuple[int, int], ...]
    keep: tuple[bool, ...]
    recompute: tuple[bool, ...]
    buffers: int


class Ahead(NamedTuple):
    """Prefetch distance: most gathers on their way while a step computes; None for no limit."""

    forward: int | None = None
    backward: int | None = None


FARTHEST = Ahead()
"""No limit but memory."""


class Room(NamedTuple):
    """Most gathers that memory allows to be issued ahead of their use."""

    needed: tuple[int, ...]  # step of each gather, in order of use
    used: tuple[int, ...]  # gathers used up to each step
    most: tuple[int, ...]  # most gathers issued when each step has begun to compute


def shape_of(plan: Plan) -> Shape:
    """Return the shape of a plan."""
    units = plan.units
    return Shape(
        plan.mesh,
        tuple((unit.start, unit.stop) for unit in units),
        tuple(unit.keep for unit in units),
        tuple(unit.recompute for unit in units),
        plan.buffers,
    )


def at_use(shape: Shape) -> Plan:
    """Return the plan that issues every gather in its own step."""
    last = 2 * len(shape.ranges) - 1
    units = (
        Unit(start, stop, keep, recompute, u, None if keep else last - u)
        for u, ((start, stop), keep, recompute) in enumerate(
            zip(shape.ranges, shape.keep, shape.recompute, strict=True)
        )
    )
    return Plan(shape.mesh, tuple(units), shape.buffers)


class Needs(NamedTuple):
    """Memory that a shape needs if every gather is issued in its own step (bytes)."""

    needed: tuple[int, ...]
    used: tuple[int, ...]
    issued: tuple[int, ...]  # bytes of the first gathers, by their number
    computing: tuple[int, ...]  # peak from the computation of each step on
    before: tuple[int, ...]  # peak of each step before its computation
    again: int  # first step that may issue a gather for the backward pass

    @property
    def least(self) -> int:
        """Least memory that suffices."""
        return max(*self.computing, *self.before)

    def within(self, memory_bytes: int | None) -> Room | None:
        """Return how many gathers fit ahead of their use; None if the memory is too little."""
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
        return Room(self.needed, self.used, tuple(_falling(most)))


def needs_of(problem: Problem, shape: Shape) -> Needs:
    """Return the memory that a shape needs."""
    plan = at_use(shape)
    count = len(plan.units)
    kept_from = max((u for u, keep in enumerate(shape.keep) if not keep), default=count)
    needed = [*range(count)]
    needed += [2 * count - 1 - u for u in reversed(range(count)) if not shape.keep[u]]
    loads = loads_of(problem, plan)
    sizes = (loads[plan.unit_of(step)].parameter_bytes for step in needed)
    uses = [0] * (2 * count)
    for step in needed:
        uses[step] = 1
    state = problem.state_bytes(problem.meshes[shape.mesh].shards)
    computing, before = [state] * (2 * count), [state] * (2 * count)
    for level in levels(plan, loads):
        side = before if level.stage in ("wait", "copy") else computing
        side[level.step] = max(side[level.step], state + level.moving)
    return Needs(
        tuple(needed),
        tuple(accumulate(uses)),
        tuple(accumulate(sizes, initial=0)),
        tuple(computing),
        tuple(before),
        kept_from + 1,
    )


def room_of(problem: Problem, shape: Shape) -> Room | None:
    """Return the room for gathers ahead, or None if the shape does not fit into memory."""
    return needs_of(problem, shape).within(problem.memory_bytes)


def filled(problem: Problem, shape: Shape, ahead: Ahead = FARTHEST) -> Plan | None:
    """Return the plan with the earliest issues possible, or None if it does not fit into memory."""
    room = room_of(problem, shape)
    return None if room is None else filled_room(shape, room, ahead)


def filled_room(shape: Shape, room: Room, ahead: Ahead = FARTHEST) -> Plan:
    """Return the plan with the earliest issues that the room allows."""
    count = len(shape.ranges)
    most = list(room.most)
    for step, used in enumerate(room.used):
        limit = ahead.forward if step < count else ahead.backward
        if limit is not None:
            most[step] = min(most[step], used + limit)
    return issued_by(shape, room, _falling(most))


def issued_by(shape: Shape, room: Room, issued: Sequence[int]) -> Plan:
    """Return the plan in which this many gathers are issued when each step computes."""
    count = len(shape.ranges)
    at: list[int] = [0] * (2 * count)
    step = 0
    for number, needed in enumerate(room.needed):
        while step < needed and issued[step] <= number:
            step += 1
        at[needed] = min(step, needed)
    units = (
        unit._replace(forward_at=at[u], backward_at=None if unit.keep else at[2 * count - 1 - u])
        for u, unit in enumerate(at_use(shape).units)
    )
    return Plan(shape.mesh, tuple(units), shape.buffers)


def _falling(most: Sequence[int]) -> list[int]:
    """Return the largest non-decreasing sequence below the given one."""
    return list(accumulate(reversed(most), min))[::-1]
