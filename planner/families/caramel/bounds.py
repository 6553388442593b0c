"""Lower bounds on the iteration of every plan, for one op order and one cost.

Problem: bound the iteration, however gradients are grouped, cut and ordered. Method: take the
largest of three bounds: the computation itself; Jackson's preemptive schedule at the best rate of
any transfer; the start-up-aware bound on widened windows (`Targets`), for each affine or concave
cost below the given cost. `planner.families.caramel.grid_bounds` has slower bounds.
Guarantee: no plan for this op order and cost lasts less. Complexity: O(n log n), plus O(states ·
log n · log M) per supporting line; about as many states as groups. Source: Jackson's rule as in
Carlier, EJOR 11 (1982); the start-up-aware bound is our own.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate
from math import lcm
from operator import itemgetter

from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import Load
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, DepthCost, Line, TransferCost, supporting_lines
from planner.model.validation import MAX_VALUE

# ---
# The start-up-aware bound for nested windows, and the groups that reach it.
#
# Problem: parameters have nested windows [head, M - tail] (in a chain, the layer nearest the input
# has the innermost window), and transfers cost α + β·bytes or the minimum of such lines. Groups and
# cuts are free. Find the least iteration M and its groups. Method: add windows outwards from the
# innermost one; the first window that does not fit opens a group; bisection over M. See
# docs/caramel.md, "Why the start-up-aware bound holds". Guarantee: a lower bound on every plan. For
# one line the cut groups reach it up to rounding to whole nanoseconds and bytes. Windows that are
# not nested are widened for a bound, tightened for groups.


@dataclass(frozen=True, slots=True)
class Nested:
    """Nested windows, the innermost first: heads and tails do not increase.

    `members` are the parameters of each window, `loads` their bytes.
    """

    members: tuple[tuple[int, ...], ...]
    heads: tuple[int, ...]
    tails: tuple[int, ...]
    loads: tuple[tuple[int, ...], ...]


def outer_nesting(windows: Windows) -> tuple[Nested, ...]:
    """Return the windows widened until they are nested, at the right end and at the left end."""
    return _both_ways(windows, min, outwards=True)


def inner_nesting(windows: Windows) -> tuple[Nested, ...]:
    """Return the windows tightened until they are nested, at the right end and at the left end."""
    return _both_ways(windows, max, outwards=False)


def _both_ways(
    windows: Windows, choose: Callable[[int, int], int], *, outwards: bool
) -> tuple[Nested, ...]:
    pairs = list(zip(windows.heads, windows.tails, strict=True))
    results = []
    for kept, changed in ((0, 1), (1, 0)):
        order = sorted(range(len(pairs)), key=lambda j: (-pairs[j][kept], -pairs[j][changed], j))
        walk = order if outwards else order[::-1]
        moved = accumulate((pairs[j][changed] for j in walk), choose)
        value = dict(zip(walk, moved, strict=True))
        units: dict[tuple[int, int], list[int]] = {}
        for j in order:
            new = (pairs[j][0], value[j]) if kept == 0 else (value[j], pairs[j][1])
            units.setdefault(new, []).append(j)
        result = Nested(
            members=tuple(map(tuple, units.values())),
            heads=tuple(head for head, _ in units),
            tails=tuple(tail for _, tail in units),
            loads=tuple(tuple(windows.sizes[j] for j in unit) for unit in units.values()),
        )
        if result not in results:
            results.append(result)
    return tuple(results)


Openings = tuple[tuple[int, str], ...]
"""Windows that open a group, and the side: "left", "right" or "both"."""


class UnitCost:
    """The minimum of several lines, in a unit of time that makes all values integers.

    `unit`: units per nanosecond; `startup`: α, the least start-up.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.unit = lcm(*(value.denominator for line in lines for value in line))
        self._lines = [(int(a * self.unit), int(b * self.unit)) for a, b in lines]
        self.startup = min(startup for startup, _ in self._lines)

    def of(self, size: int) -> int:
        """Return the cost of one transfer."""
        return min(startup + rate * size for startup, rate in self._lines)

    def room(self, time: int) -> int:
        """Return the most bytes one transfer can carry in a time; 0 if it is too short."""
        return max(
            (time - startup) // rate if rate else MAX_VALUE if time >= startup else 0
            for startup, rate in self._lines
        )

    def ns(self, time: int) -> int:
        """Return a time in ns, rounded up."""
        return -(-time // self.unit)

    def beyond(self, sizes: Iterable[int]) -> list[int]:
        """Return the cost of the cumulative bytes beyond the least start-up."""
        return [self.of(size) - self.startup for size in accumulate(sizes)]


class Targets:
    """Reachability of targets for one set of nested windows and the minimum of some lines."""

    def __init__(self, nested: Nested, lines: Sequence[Line]) -> None:
        self.nested, self._cost = nested, UnitCost(lines)
        self._unit, self._startup = self._cost.unit, self._cost.startup
        self._heads = [head * self._unit for head in nested.heads]
        self._tails = [tail * self._unit for tail in nested.tails]
        # Cost of one transfer of all windows up to each; each further transfer adds a start-up.
        self._needed = list(map(self._cost.of, accumulate(map(sum, nested.loads))))

    def least(self, at_least: int) -> tuple[int, Openings]:
        """Return the least reachable integer target, at least `at_least`, and its openings."""
        openings = self.openings(at_least)
        if openings is not None:
            return at_least, openings
        one_group = self._heads[0] + self._needed[-1] + self._tails[0]
        low, high = at_least, self._cost.ns(one_group)
        best: Openings = ()
        while high - low > 1:
            middle = (low + high) // 2
            openings = self.openings(middle)
            if openings is None:
                low = middle
            else:
                high, best = middle, openings
        return high, best

    def openings(self, target: int) -> Openings | None:
        """Return openings that reach `target` with the fewest groups, or None."""
        count = len(self._needed)
        end = target * self._unit
        covered = self._covered(end - self._heads[0] - self._tails[0])
        if not covered:
            return None
        # Fewest groups first, then the farthest: (groups, -covered, head, tail, openings).
        waiting: list[tuple[int, int, int, int, Openings]] = [
            (1, -covered, self._heads[0], self._tails[0], ())
        ]
        seen: list[tuple[int, int]] = []
        while waiting:
            groups, behind, head, tail, path = heappop(waiting)
            window = -behind
            if window == count:
                return path
            if any(h <= head and t <= tail for h, t in seen):
                continue  # dominated: as far on both sides, no more groups
            seen.append((head, tail))
            for side, more, h, t in (
                ("left", 1, self._heads[window], tail),
                ("right", 1, head, self._tails[window]),
                ("both", 2, self._heads[window], self._tails[window]),
            ):
                covered = self._covered(end - self._startup * (groups + more - 1) - h - t)
                if covered > window:
                    state = (groups + more, -covered, h, t, (*path, (window, side)))
                    heappush(waiting, state)
        return None

    def _covered(self, capacity: int) -> int:
        """Return how many windows, from the innermost on, fit into `capacity`."""
        return bisect_right(self._needed, capacity)

    def plans(self, at_least: int, element_bytes: int) -> tuple[list[Load], list[Load]]:
        """Return loads for the least target, with parameters uncut, and cut where needed."""
        least, openings = self.least(at_least)
        return self.whole_loads(openings), self.cut_loads(least, openings, element_bytes)

    def whole_loads(self, openings: Openings) -> list[Load]:
        """Return the load of each group in transfer order, with parameters uncut.

        Every window goes into the group opened last. The target may be missed: a group with more
        bytes than its own interval holds delays the groups inside it.
        """
        sides = dict(openings)
        latest: list[tuple[int, int]] = []
        groups = [latest]
        for window in range(len(self._needed)):
            if window in sides:
                latest = []
                groups.insert(0 if sides[window] == "left" else len(groups), latest)
            latest.extend(self._load(window))
        return list(map(tuple, groups))

    def cut_loads(self, target: int, openings: Openings, element_bytes: int = 1) -> list[Load]:
        """Return the load of each group in transfer order, with parameters cut where needed.

        A group carries what its own interval, less the start-up, allows. Every window fits
        into the groups open for it; a parameter that fits into none of them whole is cut.
        """
        sides = dict(openings)
        head, tail = self._heads[0], self._tails[0]
        groups: list[list[tuple[int, int]]] = [[]]
        rooms = [self._cost.room(target * self._unit - head - tail)]
        for window in range(len(self._needed)):
            side = sides.get(window, "")
            if side in ("left", "both"):
                groups.insert(0, [])
                rooms.insert(0, self._cost.room(head - self._heads[window]))
                head = self._heads[window]
            if side in ("right", "both"):
                groups.append([])
                rooms.append(self._cost.room(tail - self._tails[window]))
                tail = self._tails[window]
            # The largest parameter comes last, because the last may have to be cut.
            for parameter, size in sorted(self._load(window), key=itemgetter(1)):
                _pack(groups, rooms, parameter, size, element_bytes)
        return [tuple(group) for group in groups if group]

    def _load(self, window: int) -> Iterable[tuple[int, int]]:
        return zip(self.nested.members[window], self.nested.loads[window], strict=True)


def _pack(
    groups: list[list[tuple[int, int]]], rooms: list[int], parameter: int, size: int, element: int
) -> None:
    """Put a parameter where it fits best whole, or in pieces where most room is left."""
    fitting = [place for place, room in enumerate(rooms) if room >= size]
    while not fitting:
        place = max(range(len(rooms)), key=lambda number: (rooms[number], -number))
        piece = rooms[place] - rooms[place] % element
        if piece <= 0:  # only a remainder of rounding is left to send
            fitting = [place]
            break
        groups[place].append((parameter, piece))
        rooms[place] -= piece
        size -= piece
        fitting = [place for place, room in enumerate(rooms) if room >= size]
    place = min(fitting, key=lambda number: (rooms[number], number))
    groups[place].append((parameter, size))
    rooms[place] -= size


NEAR = 2000
"""A plan within 1/NEAR of its bound is good enough: slow bounds and searches are skipped."""


def concave_bounds(cost: TransferCost, largest: int) -> list[tuple[Line, ...]]:
    """Return concave lower bounds on the cost of a transfer, each the minimum of some lines.

    Every supporting line is such a bound. The minimum over all depths is another bound if the cost
    of every depth is affine.
    """
    bounds: list[tuple[Line, ...]] = [(line,) for line in supporting_lines(cost, largest)]
    if isinstance(cost, DepthCost) and len(cost.by_depth) > 1:
        affine = [
            depth_cost for _, depth_cost in cost.by_depth if isinstance(depth_cost, AffineCost)
        ]
        if len(affine) == len(cost.by_depth):
            bounds.append(tuple((Fraction(line.startup_ns), line.ns_per_byte) for line in affine))
    return bounds


def lower_bound(windows: Windows, cost: TransferCost) -> int:
    """Return a lower bound on the iteration of every plan (ns)."""
    best = preemptive_bound(windows, cost)
    nests = outer_nesting(windows)
    for lines in concave_bounds(cost, sum(windows.sizes)):
        for nested in nests:
            best, _ = Targets(nested, lines).least(best)
    return best
