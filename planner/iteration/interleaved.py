"""Sharded plans that pull during the backward pass, or push during the forward pass.

Problem: iBatch both ways (`planner.iteration.sharded`) sends all pushes before all pulls. Where
computation leaves the channel idle, pulls of what was pushed already could be sent between pushes.
Which pushes go together, and what is pulled in between?

Method: where groups of pushes end, in order of readiness, decides everything else. A group leaves
when its last gradient is ready. If the channel is idle until then, one pull of what was pushed, of
what is read first and as much as fits, leaves before it; what is left is pulled behind the pushes
in the best batches. The ends are searched: from iBatch's, and from a group for each moment, one end
more or less as long as that helps. Time runs both ways: read backwards, pulls are pushes, and the
same gives plans that push between pulls.

The first plan has all pushes before all pulls, both in the best batches of parameters that may be
cut (`planner.caramel.nested`).

Guarantee: the first plan is the best of its class, up to the rounding of each transfer.

Complexity: O(units · log units) a value, at most `BUDGET` values each way. Of more than `UNITS`
parameters with different windows, neighbours are searched together. Source: own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, groupby, pairwise

from planner.caramel.nested import Nested, Targets
from planner.costs import AffineCost
from planner.deadline import Deadline
from planner.iteration.problem import Kind, Part, Problem, Transfer
from planner.iteration.sharded_bound import ends_by, least_end

__all__ = ["interleaved"]

BUDGET = 400
"""Values computed at most, each way."""

UNITS = 60
"""Parameters, or neighbours taken together, of which ends are searched."""

NEAR = 2000
"""A plan within this part of the target is not improved."""

Load = list[tuple[int, int]]
"""Pairs (parameter, bytes) of one transfer."""


def interleaved(
    problem: Problem, half: AffineCost, target: int, deadline: Deadline
) -> Iterator[tuple[Transfer, ...]]:
    """Yield the transfers of some sharded plans.

    Parameters
    ----------
    problem : Problem
        The problem.
    half : AffineCost
        What a push, or a pull, costs.
    target : int
        What no plan undercuts; a plan near it ends the search.
    deadline : Deadline
        When to stop.
    """
    known = problem.base.windows
    sides = _Sides(
        known.heads, known.tails, problem.pushed, problem.pulled, half, problem.element_bytes
    )
    yield _transfers(sides, sides.apart())
    for side, turned in ((sides, False), (sides.backwards(), True)):
        if deadline.passed:
            break
        ends = _best_ends(side, target, deadline)
        steps = side.plan(ends)
        yield _transfers(sides, _turned(steps) if turned else steps)


@dataclass(frozen=True)
class _Sides:
    """What is pushed and pulled, when it is ready, and what follows when it is read."""

    heads: Sequence[int]
    tails: Sequence[int]
    pushed: Sequence[int]
    pulled: Sequence[int]
    half: AffineCost
    element: int

    def backwards(self) -> "_Sides":
        """Return the same with time running backwards."""
        return _Sides(self.tails, self.heads, self.pulled, self.pushed, self.half, self.element)

    @cached_property
    def order(self) -> list[int]:
        """Parameters in order of readiness; of those ready at once, what is read last first."""
        return sorted(range(len(self.heads)), key=lambda j: (self.heads[j], self.tails[j], j))

    def plan(self, ends: Sequence[int]) -> list[tuple[Kind, Load]]:
        """Return the transfers of groups that end at these places of the order."""
        left = list(self.pulled)
        waiting: list[tuple[int, int]] = []  # (-tail, parameter)
        steps: list[tuple[Kind, Load]] = []
        now = 0
        for begin, end in pairwise((0, *ends)):
            group = self.order[begin:end]
            ready = max(now, self.heads[group[-1]])
            load = self._fill(ready - now, waiting, left)
            if load:
                steps.append(("pull", load))
                now += self.half.cost_ns(sum(size for _, size in load))
            steps.append(("push", [(j, self.pushed[j]) for j in group]))
            now = max(now, ready) + self.half.cost_ns(sum(self.pushed[j] for j in group))
            for j in group:
                heappush(waiting, (-self.tails[j], j))
        rest = [j for j, size in enumerate(left) if size]
        if rest:
            steps += [("pull", load) for load in self.batches(rest, left)]
        return steps

    def apart(self) -> list[tuple[Kind, Load]]:
        """Return all pushes, then all pulls, each in the best batches, cut where that helps."""
        every = range(len(self.heads))
        pushes = self.backwards().batches(every, self.pushed)[::-1]
        pulls = self.batches(every, self.pulled)
        return [*(("push", load) for load in pushes), *(("pull", load) for load in pulls)]

    def _fill(self, time: int, waiting: list[tuple[int, int]], left: list[int]) -> Load:
        """Take as much of what waits as can be pulled in a time."""
        rate, time = self.half.ns_per_byte, time - self.half.startup_ns
        room = int(time / rate) if rate else sum(left)
        load: Load = []
        while time > 0 and waiting and room > 0:
            j = waiting[0][1]
            size = left[j] if left[j] <= room else room - room % self.element
            if not size:
                break
            load.append((j, size))
            left[j] -= size
            room -= size
            if not left[j]:
                heappop(waiting)
        return load

    def batches(self, parameters: Iterable[int], left: Sequence[int]) -> list[Load]:
        """Return pulls that end as early as can be, before the forward pass reads them."""
        rest = sorted(parameters, key=lambda j: (-self.tails[j], j))
        units = [tuple(unit) for _, unit in groupby(rest, key=lambda j: self.tails[j])]
        nested = Nested(
            members=tuple(units),
            heads=(0,) * len(units),
            tails=tuple(self.tails[unit[0]] for unit in units),
            loads=tuple(tuple(left[j] for j in unit) for unit in units),
        )
        line = (self.half.ns_per_byte * 0 + self.half.startup_ns, self.half.ns_per_byte)
        targets = Targets(nested, (line,))
        least, openings = targets.least(0)
        return [list(load) for load in targets.cut_loads(least, openings, self.element)]


class _Ends:
    """Values of plans by where their groups of pushes end, in units of neighbours."""

    def __init__(self, sides: _Sides) -> None:
        unit, rate = sides.half.ns_per_byte.denominator, sides.half.ns_per_byte.numerator
        self.startup = sides.half.startup_ns * unit
        self.unit = unit
        places = [
            place
            for place in range(1, len(sides.order))
            if _window(sides, sides.order[place]) != _window(sides, sides.order[place - 1])
        ]
        if len(places) >= UNITS:
            places = _spread(sides, places)
        self.places = (*places, len(sides.order))
        members = [sides.order[begin:end] for begin, end in pairwise((0, *self.places))]
        self.heads = [sides.heads[unit[-1]] * self.unit for unit in members]
        self.tails = [max(sides.tails[j] for j in unit) * self.unit for unit in members]
        self.pushed = [rate * sum(sides.pushed[j] for j in unit) for unit in members]
        self.pulled = [rate * sum(sides.pulled[j] for j in unit) for unit in members]
        self.by_tail = sorted(range(len(members)), key=lambda place: -self.tails[place])

    def fewest(self) -> set[int]:
        """Return the ends of iBatch's pushes: as few as let the last end as early as can be."""
        heads, sent = self.heads[::-1], list(accumulate(self.pushed[::-1]))
        end = least_end(heads, sent, self.startup)
        ends, startups, place = set(), 0, 0
        while place < len(sent):
            ends.add(len(sent) - place)
            startups += self.startup
            limit = end - startups - heads[place]
            while place < len(sent) and sent[place] <= limit:
                place += 1
        return ends

    def value(self, ends: set[int], below: int | None) -> int | None:
        """Return what the iteration lasts; None if that is not below another value."""
        startup, left = self.startup, list(self.pulled)
        waiting: list[tuple[int, int]] = []
        now = worst = begin = 0
        for end in sorted(ends):
            # The channel is idle until the group is ready: one pull of what is read first, as long
            # as there is room behind its start-up. Times are whole multiples of 1 / unit ns.
            head = self.heads[end - 1]
            room = head - now - startup
            if room > 0 and waiting:
                tail = -waiting[0][0]
                now += startup
                while room > 0 and waiting:
                    place = waiting[0][1]
                    taken = min(left[place], room)
                    left[place] -= taken
                    room -= taken
                    now += taken
                    if left[place]:
                        break
                    heappop(waiting)
                worst = max(worst, now + tail)
            now = max(now, head) + startup + sum(self.pushed[begin:end])
            for place in range(begin, end):
                heappush(waiting, (-self.tails[place], place))
            begin = end
        # All else in the best batches behind the last push.
        rest = [place for place in self.by_tail if left[place]]
        if rest:
            tails = [self.tails[place] for place in rest]
            sent = list(accumulate(left[place] for place in rest))
            if below is not None and not ends_by(below - 1 - now, tails, sent, startup):
                return None
            worst = max(worst, now + least_end(tails, sent, startup))
        return worst if below is None or worst < below else None


def _window(sides: _Sides, parameter: int) -> tuple[int, int]:
    return sides.heads[parameter], sides.tails[parameter]


def _spread(sides: _Sides, places: Sequence[int]) -> list[int]:
    """Return some of the places, at about equal distances in time and in bytes together."""
    total, last = sum(sides.pushed) or 1, max(sides.heads) or 1
    sent = list(accumulate(sides.pushed[j] for j in sides.order))
    kept, reached = [], 0.0
    for place in places:
        moment = sides.heads[sides.order[place - 1]] / last + sent[place - 1] / total
        if moment >= reached:
            kept.append(place)
            reached = moment + 2 / UNITS
    return kept


def _best_ends(sides: _Sides, target: int, deadline: Deadline) -> list[int]:
    """Return the best ends found, as places in the order."""
    search = _Ends(sides)
    count = len(search.places)
    moving = [end for end in range(1, count) if search.heads[end - 1] != search.heads[end]]
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


def _turned(steps: Sequence[tuple[Kind, Load]]) -> list[tuple[Kind, Load]]:
    """Return steps as they are if time runs the other way."""
    return [("push" if kind == "pull" else "pull", load) for kind, load in reversed(steps)]


def _transfers(sides: _Sides, steps: Sequence[tuple[Kind, Load]]) -> tuple[Transfer, ...]:
    """Return transfers; pieces of a parameter leave from its first byte on.

    All but one of them are whole elements. That one, if the parameter ends inside an element, has
    its last bytes, wherever it comes: where time was turned, what is left over comes first.
    """
    reached: dict[tuple[Kind, int], int] = {}
    transfers = []
    for kind, load in steps:
        parts = []
        sizes = sides.pushed if kind == "push" else sides.pulled
        for j, size in load:
            if size % sides.element:
                start = sizes[j] - size
            else:
                start = reached.get((kind, j), 0)
                reached[kind, j] = start + size
            parts.append(Part(j, start, start + size))
        transfers.append(Transfer(kind, tuple(parts)))
    return tuple(transfers)
