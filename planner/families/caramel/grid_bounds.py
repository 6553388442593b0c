"""Slower lower bounds in NumPy, on grids of time: for concave costs, and for any windows.

`concave_bound` and `concave_loads`: a bound and a plan for nested windows, by dynamic programming.
Problem: as in `planner.families.caramel.bounds.Targets`, for costs that are the minimum of several
lines α + β·bytes. `Targets` gives all bytes the rate of the largest transfer; here each transfer
has the rate of its size. Method: see docs/caramel.md, "Why the concave bound holds". Times are
rounded outwards for the bound, inwards for a plan, which may have any cost. Windows that are not
nested are widened for the bound and tightened for the plan. Guarantee: no plan lasts less than the
bound; `ROUNDING` covers floating-point errors. The plan carries every byte once. Complexity:
O(grid³). Source: own.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import ceil
from operator import itemgetter, neg
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.caramel.bounds import NEAR, Nested, concave_bounds, outer_nesting
from planner.families.caramel.grid_costs import Floats, GridCost
from planner.families.caramel.pricing import Load
from planner.families.caramel.windows import Windows
from planner.model.costs import Line, TransferCost, supporting_lines

BOUND_GRID, PLAN_GRID = 128, 64
"""Grid points on each side."""

ROUNDING = 1e-9
"""Relative margin above all floating-point errors together."""


def rounded_down(value: float) -> int:
    """Return a valid bound in whole ns from one in floating point, lowered by `ROUNDING`."""
    return ceil(value * (1 - ROUNDING))


def grid_of(moments: Iterable[int], count: int) -> Floats:
    """Return about `count` rising moments from 0 to the largest; at most half of them are given.

    The other moments are evenly spaced, since transfers also end between given moments.
    """
    own = sorted(set(moments))
    top, step = own[-1], -(-2 * len(own) // count)
    own = own[::step]
    return np.unique([0, *own, top, *np.linspace(0, top, count - len(own) + 1)])


class _Side:
    """The left or the right side: moments, and the bytes a transfer from each can carry."""

    def __init__(
        self, moments: Sequence[int], sizes: Sequence[int], cost: GridCost, count: int, out: bool
    ) -> None:
        self.at = grid_of(moments, count)
        self.top = float(self.at[-1])
        later = np.append(self.at[1:], self.top) if out else self.at
        # Bytes from each moment to each later one.
        self.rooms = cost.room(np.maximum(later[None, :] - self.at[:, None], 0))
        # The same by the later moment; nothing from a moment that is not before it.
        self.earlier = np.ascontiguousarray(np.triu(self.rooms, 1).T)
        # Bytes available to a transfer that starts in the step.
        known, own = np.array(moments, dtype=np.float64), np.array(sizes, dtype=np.float64)
        order = np.argsort(known, kind="stable")
        reached = np.append(0, own[order].cumsum())
        if out:
            self.caps = reached[np.searchsorted(known[order], later, side="left")]
        else:
            self.caps = reached[np.searchsorted(known[order], later, side="right")]
        self.caps[-1] = 0  # the middle starts at the innermost moment

    def inside(self, time: Floats, cost: GridCost, size: Floats) -> Floats:
        """Return the end of a side's last transfer, at least the innermost moment (ns)."""
        ended = np.maximum(time + cost.of(size), self.top)
        return np.where(time < self.top, ended, self.top)


class _End(NamedTuple):
    """The best end: its value, its moments on both sides, and the bytes of the last transfers."""

    value: float
    row: int
    column: int
    left: float
    right: float


class _Inwards:
    """The table U for one set of nested windows."""

    def __init__(self, nested: Nested, cost: GridCost, count: int, *, outwards: bool) -> None:
        sizes = [sum(loads) for loads in nested.loads]
        self.cost = cost
        self.left = _Side(nested.heads, sizes, self.cost, count, outwards)
        self.right = _Side(nested.tails, sizes, self.cost, count, outwards)
        self.most = np.zeros((len(self.left.at), len(self.right.at)))
        rows, columns = self.most.shape
        # What a cell depends on stands left of it and above it: a diagonal is filled at once.
        # Transfers that start in the same step count as one (docs/caramel.md).
        for diagonal in range(rows + columns - 1):
            row = np.arange(max(diagonal - columns + 1, 0), min(diagonal + 1, rows))
            column = diagonal - row
            self.most[row, column] = np.maximum(
                _more(self.most[row], self.right, column),
                _more(self.most.T[column], self.left, row),
            )

    def best(self) -> _End:
        """Return the best end."""
        cost, carried = self.cost, self.most
        a, c = self.left.at[:, None], self.right.at[None, :]
        most_left = np.maximum(self.left.caps[:, None] - carried, 0)
        most_right = np.maximum(self.right.caps[None, :] - carried, 0)
        most = np.maximum(most_left, most_right)
        fill_left = np.minimum(cost.room(self.left.top - a), most_left)
        fill_right = np.minimum(cost.room(self.right.top - c), most_right)
        corners = [
            *((x, y) for x in (fill_left, most_left) for y in (fill_right, most_right)),
            *((x, most - x) for x in (fill_left, most_left)),
            *((most - y, y) for y in (fill_right, most_right)),
        ]
        ends = []
        for wanted_left, wanted_right in corners:
            x, y = np.minimum(wanted_left, most_left), np.minimum(wanted_right, most_right)
            y = np.minimum(y, most - x)
            rest = np.maximum(cost.total - carried - x - y, 0)
            value = self.left.inside(a, cost, x) + self.right.inside(c, cost, y) + cost.of(rest)
            row, column = np.unravel_index(int(value.argmin()), value.shape)
            place = int(row), int(column)
            ends.append(_End(float(value[place]), *place, float(x[place]), float(y[place])))
        return min(ends)

    def sizes(self, end: _End) -> list[tuple[str, float]]:
        """Return the side and the bytes of each transfer of the best end, the outermost first."""
        _, row, column, x, y = end
        last = [("left", x), ("right", y)]
        if self.left.caps[row] > self.right.caps[column]:
            last.reverse()
        made = []
        while self.most[row, column]:
            carried = self.most[row, column]
            for side, place, line in (
                ("left", row, self.most[:row, column]),
                ("right", column, self.most[row, :column]),
            ):
                half = self.left if side == "left" else self.right
                reached = np.minimum(line + half.rooms[:place, place], half.caps[:place])
                before = np.flatnonzero((line == carried) | (reached == carried))
                if len(before):
                    start = int(before[0])
                    made.append((side, float(carried - line[start])))
                    row, column = (start, column) if side == "left" else (row, start)
                    break
            else:
                raise AssertionError("it is carried by nothing")
        return [*made[::-1], *last]


def _more(carried: Floats, side: _Side, place: NDArray[np.int64]) -> Floats:
    """Return the bytes carried at some moments with at most one transfer from an earlier one.

    A row of `carried` has the bytes at all moments for one of `place`: 0 at those not yet known.
    """
    reached = np.minimum(carried + side.earlier[place], side.caps)
    return np.asarray(np.maximum(reached, carried).max(axis=1))


def concave_bound(windows: Windows, lines: Sequence[Line], count: int = BOUND_GRID) -> int:
    """Return the lower bound over all plans (ns), for a cost of at least the minimum of `lines`."""
    cost = GridCost.of_lines(lines, sum(windows.sizes))
    return max(
        rounded_down(_Inwards(nested, cost, count, outwards=True).best().value)
        for nested in outer_nesting(windows)
    )


def concave_loads(
    nested: Nested, cost: GridCost, element_bytes: int = 1, count: int = PLAN_GRID
) -> list[Load]:
    """Return the loads of a plan in transfer order; parameters may be cut at whole elements.

    The cost need not be concave: what is carried in the middle is one transfer.
    """
    search = _Inwards(nested, cost, count, outwards=False)
    left: list[Load] = []
    right: list[Load] = []
    # Parameters are popped from the end: the outermost window first, and in a window the smallest
    # parameter first, because the last parameter of a transfer may be cut.
    rest = [
        piece
        for members, sizes in zip(nested.members, nested.loads, strict=True)
        for piece in sorted(zip(members, sizes, strict=True), key=itemgetter(1))[::-1]
    ]
    until = 0.0  # bytes of all transfers so far
    carried = 0
    for side, size in search.sizes(search.best()):
        until += size
        load = []
        while rest and carried < round(until):
            parameter, there = rest.pop()
            missing = round(until) - carried
            taken = there if there <= missing else missing - missing % element_bytes
            if taken:
                load.append((parameter, taken))
                carried += taken
            if taken < there:
                rest.append((parameter, there - taken))
                break
        (left if side == "left" else right).append(tuple(load))
    return [load for load in (*left, tuple(rest[::-1]), *right[::-1]) if load]


# ---
# A start-up-aware lower bound for windows that are not nested.
#
# Problem: decide for any windows whether a target M can be reached, if s bytes take at least α +
# β·s. Method: refute targets by growing blocks of consecutive transfers; see docs/caramel.md, "Why
# the block bound holds". It widens no window. Guarantee: no plan reaches a refuted target. Not
# every unreachable target is refuted. Complexity: O(heads · tails) per block, with at most `GRID`
# heads and `GRID` tails; at most `BLOCKS` blocks per target. Source: own.

GRID = 160
"""Number of heads, and of tails, that are considered."""

BLOCKS = 500
"""Blocks examined per target; a target that needs more is not refuted."""

HALVINGS = 6
"""Bisection steps between the known bound and the plan's value."""


def block_bound(windows: Windows, line: Line, low: int, high: int) -> int:
    """Return a lower bound on the iteration of every plan, at least `low` (ns).

    `line` is an affine lower bound (α, β) on the cost of a transfer; `low` and `high` are a known
    bound and the value of a plan (ns).
    """
    if not all(line):
        return low
    blocks = _Blocks(windows, line)
    for by_heads in (True, False):
        end = high
        for _ in range(HALVINGS):
            middle = (low + end) // 2
            if middle == low:
                break
            if blocks.refuted(middle, by_heads=by_heads):
                low = middle + 1
            else:
                end = middle
    return low


class _Blocks:
    """Bytes by head and tail, and the targets that they refute."""

    def __init__(self, windows: Windows, line: Line) -> None:
        self.startup, self.rate = line
        pairs = list(zip(windows.heads, windows.tails, windows.sizes, strict=True))
        self.heads = _some(windows.heads)
        self.tails = _some(windows.tails)
        self.bytes = np.zeros((len(self.heads), len(self.tails)), dtype=np.int64)
        for head, tail, size in pairs:
            self.bytes[_at_most(self.heads, head), _at_most(self.tails, tail)] += size
        self.bytes = self.bytes.cumsum(axis=0).cumsum(axis=1)
        head, tail, _ = max(pairs, key=lambda window: window[0] + window[1])
        self.first = _at_most(self.heads, head), _at_most(self.tails, tail)
        self.early = np.array(self.heads, dtype=np.int64)
        self.late = np.array(self.tails, dtype=np.int64)

    def refuted(self, target: int, *, by_heads: bool) -> bool:
        """Return whether no plan is proven to reach `target`."""
        waiting = [(1, *self.first)]
        seen: list[tuple[int, int]] = []
        while waiting:
            count, row, column = heappop(waiting)
            if any(i >= row and j >= column for i, j in seen):
                continue
            seen.append((row, column))
            stretch = target - self.heads[row] - self.tails[column]
            room = (stretch - self.startup * count) // self.rate
            if room < 0:
                continue  # no such block exists
            if self.bytes[-1, -1] <= room or len(seen) > BLOCKS:
                return False
            above, after = self._outside(row, column, int(room), by_heads=by_heads)
            heappush(waiting, (count + 1, above, column))
            heappush(waiting, (count + 1, row, after))
        return True

    def _outside(self, row: int, column: int, room: int, *, by_heads: bool) -> tuple[int, int]:
        """Return the nearest head and tail from which on there are more than `room` bytes."""
        over = self.bytes[row:, column:] > room
        first = over.argmax(axis=1)
        rows = np.flatnonzero(over[np.arange(len(first)), first])
        rows, columns = rows + row, first[rows] + column
        earlier, later = self.early[row] - self.early[rows], self.late[column] - self.late[columns]
        far = earlier + later // 4 if by_heads else earlier // 4 + later
        nearest = int(far.argmin())
        return int(rows[nearest]), int(columns[nearest])


def _some(values: Sequence[int]) -> list[int]:
    """Return at most `GRID` distinct values, falling, the least one included."""
    distinct = sorted(set(values))
    step = -(-len(distinct) // GRID)
    return distinct[::step][::-1]


def _at_most(falling: Sequence[int], value: int) -> int:
    """Return the place of the largest value that is at most `value`."""
    return bisect_left(falling, -value, key=neg)


def tighter_bound(windows: Windows, cost: TransferCost, low: int, high: int) -> int:
    """Return a lower bound of at least `low` (ns); a plan of value `high` is known.

    Slower than `lower_bound`: for plans that are not near that bound.
    """
    for lines in concave_bounds(cost, sum(windows.sizes)):
        if len(lines) > 1:
            low = max(low, concave_bound(windows, lines))
    if high <= low + low // NEAR:
        return low
    for line in supporting_lines(cost, sum(windows.sizes)):
        low = block_bound(windows, line, low, high)
    return low
