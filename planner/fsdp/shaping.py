"""From what is gathered together and kept to a plan: when each gather is issued.

Problem: with units, what they keep and a memory limit given, in which step is each gather issued?
The earlier, the sooner it arrives, and the longer its buffer takes memory.

Method: gathers are issued in order of use, so what is on its way in a step is told by how many have
been issued up to it, m(s), and so is whether it fits: m(s) <= M(s), each step for itself. The
largest m that never falls has every gather issued as early as any plan can, all at once: the least
of the M from a step on.

Guarantee: if gathers do not compete with reduce-scatters, no other steps make the iteration
shorter. On one channel a gather that is issued early delays the reduce-scatter behind it; `ahead`
limits how many gathers are on their way.
Complexity: O(units · log units). Source: own.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from planner.fsdp.evaluation import levels, loads_of
from planner.fsdp.plan import Plan, Unit
from planner.fsdp.problem import Problem

__all__ = [
    "FARTHEST",
    "Ahead",
    "Needs",
    "Room",
    "Shape",
    "at_use",
    "filled",
    "filled_room",
    "issued_by",
    "needs_of",
    "room_of",
    "shape_of",
]


class Shape(NamedTuple):
    """All of a plan but when gathers are issued.

    Attributes
    ----------
    mesh : int
        Place in `Problem.meshes`.
    ranges : tuple of (int, int)
        Layers of each unit.
    keep, recompute : tuple of bool
        Of each unit.
    buffers : int
        As in `Plan`.
    """

    mesh: int
    ranges: tuple[tuple[int, int], ...]
    keep: tuple[bool, ...]
    recompute: tuple[bool, ...]
    buffers: int


class Ahead(NamedTuple):
    """Most gathers that are on their way while a step computes; None for any number."""

    forward: int | None = None
    backward: int | None = None


FARTHEST = Ahead()
"""As many as there is room for."""


class Room(NamedTuple):
    """What a shape leaves to gathers ahead of their use.

    Attributes
    ----------
    needed : tuple of int
        Step of each gather, in order of use.
    used : tuple of int
        How many gathers are used up to each step.
    most : tuple of int
        How many can have been issued at most when each step has begun to compute.
    """

    needed: tuple[int, ...]
    used: tuple[int, ...]
    most: tuple[int, ...]


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
    """What a shape needs in memory if every gather is issued in its own step.

    Attributes
    ----------
    needed, used : tuple of int
        As in `Room`.
    issued : tuple of int
        Bytes of the first gathers, by their number.
    computing, before : tuple of int
        Most bytes that are in memory from the computation of each step on, and before it.
    again : int
        The first step in which a gather for the backward pass may be issued.
    """

    needed: tuple[int, ...]
    used: tuple[int, ...]
    issued: tuple[int, ...]
    computing: tuple[int, ...]
    before: tuple[int, ...]
    again: int

    @property
    def least(self) -> int:
        """Least memory that does."""
        return max(*self.computing, *self.before)

    def within(self, memory_bytes: int | None) -> Room | None:
        """Return what so much memory leaves to gathers ahead, or None if it is too little."""
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
            most[step] = min(most[step], steps // 2)  # the first one freed is not free before
        return Room(self.needed, self.used, tuple(_falling(most)))


def needs_of(problem: Problem, shape: Shape) -> Needs:
    """Return what a shape needs in memory."""
    plan = at_use(shape)
    count = len(plan.units)
    kept_from = max((u for u, keep in enumerate(shape.keep) if not keep), default=count)
    needed = [*range(count)]
    needed += [2 * count - 1 - u for u in reversed(range(count)) if not shape.keep[u]]
    sums = problem.prefixes["parameter_bytes"]
    sizes = []
    for step in needed:
        start, stop = shape.ranges[plan.unit_of(step)]
        sizes.append(sums[stop] - sums[start])
    uses = [0] * (2 * count)
    for step in needed:
        uses[step] = 1
    state = problem.state_bytes(problem.meshes[shape.mesh].shards)
    computing, before = [state] * (2 * count), [state] * (2 * count)
    for level in levels(plan, loads_of(problem, plan)):
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
    """Return what is left for gathers ahead, or None if the shape does not fit into memory."""
    return needs_of(problem, shape).within(problem.memory_bytes)


def filled(problem: Problem, shape: Shape, ahead: Ahead = FARTHEST) -> Plan | None:
    """Return the plan with the earliest issues there are, or None if none fits into memory."""
    room = room_of(problem, shape)
    return None if room is None else filled_room(shape, room, ahead)


def filled_room(shape: Shape, room: Room, ahead: Ahead = FARTHEST) -> Plan:
    """Return the plan with the earliest issues that there is room for."""
    count = len(shape.ranges)
    most = list(room.most)
    for step, used in enumerate(room.used):
        limit = ahead.forward if step < count else ahead.backward
        if limit is not None:
            most[step] = min(most[step], used + limit)
    return issued_by(shape, room, _falling(most))


def issued_by(shape: Shape, room: Room, issued: Sequence[int]) -> Plan:
    """Return the plan with so many gathers issued when each step computes."""
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
    """Return the largest sequence below one that never falls."""
    return list(accumulate(reversed(most), min))[::-1]
