"""Local search for sharded plans that interleave pushes with pulls in the forward pass.

Problem: iBatch both ways (`planner.families.iteration.baselines`) sends all pushes before all
pulls. If the channel is idle in the forward pass, gradients of parameters read late can be pushed
between pulls. Method: a plan is built from its end, with one push in each idle interval before a
pull; details in docs/iteration.md, "How pushes and pulls are interleaved". Local search starts from
iBatch's groups and from one per moment. Guarantee: the first plan, all pushes before all pulls, is
the best of its class, up to the rounding of each transfer (concave costs and tables: of the grid).
Complexity: O(units · log units) per value, of tables O(units²); at most `BUDGET` values. Source:
own.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, groupby, pairwise

from planner.families.caramel.bounds import Nested, Targets, UnitCost
from planner.families.caramel.pricing import Load, groups_of
from planner.families.caramel.windows import Windows
from planner.families.iteration.plan import Way, lines_of
from planner.families.iteration.problem import Problem
from planner.model.costs import Line, TableCost, TransferCost
from planner.solving.bucketing import earliest_end, ends_by
from planner.solving.deadline import Deadline
from planner.solving.transfers import Kind, Transfer

BUDGET = 400
"""Most plans whose time is computed."""

UNITS = 60
"""Units of neighbouring parameters whose groups are searched, at most."""

SIDE_GRID = 256
"""Grid points of one side, for concave costs."""

NEAR = 2000
"""A plan within 1/NEAR of the target is not improved."""


def interleaved(
    problem: Problem, way: Way, target: int, deadline: Deadline
) -> Iterator[tuple[Transfer, ...]]:
    """Yield the transfers of some sharded plans.

    `target` is a lower bound, near which the search ends.
    """
    sides = _Sides(problem.base.windows, problem.pushed, problem.pulled, way, problem.element_bytes)
    yield _transfers(sides, sides.apart())
    if not deadline.passed:
        yield _transfers(sides, sides.plan(_best_ends(sides, target, deadline)))


@dataclass(frozen=True)
class _Sides:
    """Pushed and pulled bytes, the windows, and the cost of both."""

    windows: Windows
    pushed: Sequence[int]
    pulled: Sequence[int]
    way: Way
    element: int

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Lines whose minimum is the cost; of a table, one through its ends."""
        return lines_of(self.way, "push")

    @cached_property
    def cost(self) -> UnitCost:
        """Cost of a push, or a pull, by its size; of a table only the start-up and the unit."""
        return UnitCost(self.lines)

    @cached_property
    def measured(self) -> bool:
        """Whether a cost is a table."""
        return any(isinstance(option.half, TableCost) for option in self.way.options)

    def room(self, time: int) -> int:
        """Return the most bytes that a push carries in a time (ns); of a table nearly the most."""
        if not self.measured:
            return self.cost.room(time * self.cost.unit)
        return _room(self.way.half, time, sum(self.pushed))

    @cached_property
    def order(self) -> list[int]:
        """Parameters, the last read first; ties go to the parameter that is ready first."""
        known = self.windows
        return sorted(range(len(self.pulled)), key=lambda j: (known.tails[j], known.heads[j], j))

    def plan(self, ends: Sequence[int]) -> list[tuple[Kind, Load]]:
        """Return the transfers of groups of pulls that end at these places of the order."""
        heads, tails = self.windows.heads, self.windows.tails
        left = list(self.pushed)
        waiting: list[tuple[int, int]] = []  # (-head, parameter), pulled behind this point
        steps: list[tuple[Kind, Load]] = []  # last transfer first
        now = 0  # counted back from the end of the iteration
        for begin, end in pairwise((0, *ends)):
            group = self.order[begin:end]
            read = max(now, tails[group[-1]])
            load = self._fill(read - now, waiting, left)
            if load:
                steps.append(("push", load))
            steps.append(("pull", tuple((j, self.pulled[j]) for j in group)))
            now = read + self.way.pull.cost_ns(sum(self.pulled[j] for j in group))
            for j in group:
                heappush(waiting, (-heads[j], j))
        steps += [("push", load) for load in self._batches("push", heads, left)]
        return steps[::-1]

    def apart(self) -> list[tuple[Kind, Load]]:
        """Return all pushes, then all pulls, each in the best batches, with parameters cut."""
        pushes = self._batches("push", self.windows.heads, self.pushed)[::-1]
        pulls = self._batches("pull", self.windows.tails, self.pulled)
        return [*(("push", load) for load in pushes), *(("pull", load) for load in pulls)]

    def _fill(self, time: int, waiting: list[tuple[int, int]], left: list[int]) -> Load:
        """Take as many waiting bytes as can be pushed in a time (ns)."""
        room = self.room(time)
        load: list[tuple[int, int]] = []
        while waiting and room > 0:
            j = waiting[0][1]
            size = left[j] if left[j] <= room else room - room % self.element
            if not size:
                break
            load.append((j, size))
            left[j] -= size
            room -= size
            if not left[j]:
                heappop(waiting)
        return tuple(load)

    def _batches(self, kind: Kind, tails: Sequence[int], left: Sequence[int]) -> list[Load]:
        """Return the pulls that end earliest; if `tails` are heads, the pushes, the last first."""
        rest = sorted((j for j, size in enumerate(left) if size), key=lambda j: (-tails[j], j))
        cost = self.way.cost(kind)
        units = [tuple(unit) for _, unit in groupby(rest, key=lambda j: tails[j])]
        nested = Nested(
            members=tuple(units),
            heads=(0,) * len(units),
            tails=tuple(tails[unit[0]] for unit in units),
            loads=tuple(tuple(left[j] for j in unit) for unit in units),
        )
        targets = Targets(nested, self.lines)
        least, openings = targets.least(0)
        batches = [targets.cut_loads(least, openings, self.element)]
        if len(self.lines) > 1 and units:
            from planner.families.caramel.grid_bounds import concave_loads  # imports NumPy
            from planner.families.caramel.grid_costs import GridCost

            priced = GridCost.of_lines(self.lines, sum(left))
            batches.append(concave_loads(nested, priced, self.element, SIDE_GRID))
        if self.measured and rest:
            from planner.families.iteration.table_batches import table_batches  # imports NumPy

            moments, sizes = [tails[j] for j in rest], [left[j] for j in rest]
            cut = table_batches(moments, sizes, cost, self.element)
            batches.append([tuple((rest[at], size) for at, size in load) for load in cut[::-1]])
        return min(batches, key=lambda loads: _end(loads, tails, cost))


def _end(loads: Sequence[Load], tails: Sequence[int], cost: TransferCost) -> int:
    """Return when the last tail of loads of one side ends (ns)."""
    free = end = 0
    for load in loads:
        free += cost.cost_ns(sum(size for _, size in load))
        end = max(end, free + max(tails[j] for j, _ in load))
    return end


def _room(cost: TransferCost, time: int, most: int) -> int:
    """Return a number of bytes that a transfer carries in a time, the most if costs never fall."""
    if cost.cost_ns(1) > time:
        return 0
    return bisect_right(range(1, most + 1), time, key=cost.cost_ns)


class _Ends:
    """Values of plans by the ends of their groups of pulls, in units of neighbouring parameters."""

    def __init__(self, sides: _Sides) -> None:
        self.sides, self.cost = sides, sides.cost
        known, unit = sides.windows, 1 if sides.measured else self.cost.unit
        self.unit = unit
        ordered = [(known.heads[j], known.tails[j]) for j in sides.order]
        places = [n for n, (at, following) in enumerate(pairwise(ordered), 1) if at != following]
        places = places[:: len(places) // UNITS + 1]
        self.places = (*places, len(sides.order))
        members = [sides.order[begin:end] for begin, end in pairwise((0, *self.places))]
        self.backward = known.backward_ns * unit
        self.heads = [max(known.heads[j] for j in group) * unit for group in members]
        self.tails = [known.tails[group[-1]] * unit for group in members]
        self.pushed = [sum(sides.pushed[j] for j in group) for group in members]
        self.pulled = [sum(sides.pulled[j] for j in group) for group in members]
        self.by_head = sorted(range(len(members)), key=lambda place: -self.heads[place])

    def fewest(self) -> set[int]:
        """Return the ends of iBatch's pulls, whose last end is the earliest.

        They are the fewest such groups, unless the cost is a table.
        """
        if self.sides.measured:
            every = range(len(self.tails))
            _, before = self._earliest(self.tails, every, self.pulled, self.sides.way.pull)
            ends, place = set(), len(self.tails)
            while place:
                ends.add(place)
                place = before[place]
            return ends
        tails, sent = self.tails[::-1], self.cost.beyond(self.pulled[::-1])
        end = earliest_end(tails, sent, self.cost.startup)
        ends, startups, place = set(), 0, 0
        while place < len(sent):
            ends.add(len(sent) - place)
            startups += self.cost.startup
            place = bisect_right(sent, end - startups - tails[place])
        return ends

    def value(self, ends: set[int], below: int | None) -> int | None:
        """Return the iteration time, or None if it is not below `below`; in 1 / unit ns."""
        cost, left = self.cost, list(self.pushed)
        waiting: list[tuple[int, int]] = []
        now = begin = 0
        for end in sorted(ends):
            # In the idle interval before the group is read: one push of the gradients ready last,
            # as many bytes as fit after its start-up.
            read = max(now, self.tails[end - 1])
            room = self._room(read - now) if waiting else 0
            while room > 0 and waiting:
                place = waiting[0][1]
                taken = min(left[place], room)
                left[place] -= taken
                room -= taken
                if not left[place]:
                    heappop(waiting)
            now = read + self._pull(sum(self.pulled[begin:end]))
            for place in range(begin, end):
                heappush(waiting, (-self.heads[place], place))
            begin = end
        # Before the first pull: the backward pass, and all other pushes in the best batches.
        rest = [place for place in self.by_head if left[place]]
        if self.sides.measured:
            end, _ = self._earliest(self.heads, rest[::-1], left, self.sides.way.half)
            value = now + max(self.backward, end)
            return value if below is None or value < below else None
        heads = [self.heads[place] for place in rest]
        sent = cost.beyond([left[place] for place in rest])
        if below is not None:
            time = below - 1 - now
            if time < self.backward or not ends_by(time, heads, sent, cost.startup):
                return None
        return now + max(self.backward, earliest_end(heads, sent, cost.startup))

    def _room(self, time: int) -> int:
        """Return the most bytes of a push in a time; in 1 / unit ns."""
        return self.sides.room(time) if self.sides.measured else self.cost.room(time)

    def _pull(self, size: int) -> int:
        """Return the cost of a pull; in 1 / unit ns."""
        return self.sides.way.pull.cost_ns(size) if self.sides.measured else self.cost.of(size)

    @staticmethod
    def _earliest(
        moments: Sequence[int], places: Sequence[int], sizes: Sequence[int], cost: TransferCost
    ) -> tuple[int, list[int]]:
        """Return the earliest end of batches of some units, by rising moments, and the batches."""
        from planner.families.iteration.table_batches import earliest_batches  # imports NumPy

        ready = [0, *(moments[place] for place in places)]
        sent = list(accumulate((sizes[place] for place in places), initial=0))
        return earliest_batches(ready, sent, cost)


def _best_ends(sides: _Sides, target: int, deadline: Deadline) -> list[int]:
    """Return the best ends found, as places in the order."""
    search = _Ends(sides)
    count = len(search.places)
    moving = [end for end in range(1, count) if search.tails[end - 1] != search.tails[end]]
    enough = (target + target // NEAR) * search.unit
    best: tuple[int, set[int]] | None = None
    budget = BUDGET
    for ends in (search.fewest(), {*moving, count}):
        now = ends
        value = search.value(now, None)
        assert value is not None
        improving = True
        while improving and value > enough and budget > 0 and not deadline.passed:
            improving = False
            for end in moving:
                budget -= 1
                changed = now ^ {end}
                new = search.value(changed, value)
                if new is not None:
                    now, value, improving = changed, new, True
        if best is None or value < best[0]:
            best = value, now
    assert best is not None
    return [search.places[end - 1] for end in sorted(best[1])]


def _transfers(sides: _Sides, steps: Sequence[tuple[Kind, Load]]) -> tuple[Transfer, ...]:
    """Return the transfers of these loads."""
    sides_by_kind: tuple[tuple[Kind, Sequence[int]], ...] = (
        ("push", sides.pushed),
        ("pull", sides.pulled),
    )
    made = {}
    for kind, sizes in sides_by_kind:
        loads = (load for other, load in steps if other == kind)
        made[kind] = iter(groups_of(loads, sizes, sides.element, kind=kind))
    return tuple(next(made[kind]) for kind, _ in steps)
