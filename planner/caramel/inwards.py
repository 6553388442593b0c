"""Concave costs and nested windows: a bound that knows how much each transfer carries, and a plan.

Problem: as in `planner.caramel.nested`, with transfers that cost f(bytes), the least of several
lines α + β·bytes: which is the least iteration M? There all bytes are given the rate of the largest
transfer; but what is sent early and late goes in small ones, at other lines.

Windows are [h, M - t], the innermost first. Transfers that start at h_0 or later and end by M - t_0
are as good as one, the *middle*, since f is concave. The others start before h_0 (left) or end
after M - t_0 (right), and carry what the windows that are open for so long have. Go inwards: let
U(a, c) be the most bytes that left transfers which end by a and right ones that start at M - c or
later carry. A left transfer that leaves at a ≥ h_p can carry windows from p on, so that with those
before it, of windows further out, it carries no more than all windows from p on have:

    U(a', c) ≥ min(U(a, c) + room(a' - a), bytes of windows with heads up to a),

where room is the most bytes of one transfer in a time; on the right alike. In whichever order they
are added, none carries too much, and in the order of their windows from the outermost on, all that
they can carry is allowed (Hall's condition for nested windows). Then M is the least a + c + f(S -
U(a, c)). The last left and the last right transfer may end in the middle of it: with x and y bytes
M = max(h_0, a + f(x)) + max(t_0, c + f(y)) + f(S - U - x - y), concave between the kinks, so that
the least is at a corner of what x and y can be.

Times are put on a grid: rounded outwards, every transfer is as if it had been up to a step longer,
which makes a bound; rounded inwards, a plan. Windows that are not nested are widened for the one
and tightened for the other.

Guarantee: no plan lasts less than the bound (it is computed in floating point, and a part in 10^9
taken off). The plan carries every byte once.

Complexity: O(grid³) in NumPy. Source: own.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.caramel.loads import Load
from planner.caramel.nested import Line, Nested, widened
from planner.caramel.windows import Windows

__all__ = ["ROUNDING", "ConcaveCost", "concave_bound", "concave_loads", "grid_of", "surely"]

BOUND_GRID, PLAN_GRID = 128, 64
"""Moments on each side."""

ROUNDING = 1e-9
"""More than all errors of floating point together, relatively."""

Floats = NDArray[np.float64]


class ConcaveCost:
    """The least of several lines, for arrays.

    Parameters
    ----------
    lines : sequence of Line
        At least one.
    total : float
        Bytes of all transfers together.
    """

    def __init__(self, lines: Sequence[Line], total: float) -> None:
        self._lines = [(float(startup), float(rate)) for startup, rate in lines]
        self.total = float(total)

    def of(self, sizes: Floats) -> Floats:
        """Return what transfers cost, in ns."""
        costs = [startup + rate * sizes for startup, rate in self._lines]
        return np.asarray(np.min(costs, axis=0))

    def room(self, times: Floats) -> Floats:
        """Return the most bytes one transfer can carry in each of some times."""
        rooms = [
            np.clip((times - startup) / rate, 0, self.total)
            if rate
            else np.where(times >= startup, self.total, 0)
            for startup, rate in self._lines
        ]
        return np.asarray(np.max(rooms, axis=0))


def surely(value: float) -> int:
    """Return a bound computed in floating point as one that holds, in whole ns."""
    return ceil(value * (1 - ROUNDING))


def grid_of(moments: Iterable[int], count: int) -> Floats:
    """Return about so many rising moments from 0 to the largest, half of them given ones at most.

    They do not all lie among the given ones, as what ends between two of them counts.
    """
    own = sorted(set(moments))
    top, step = own[-1], -(-2 * len(own) // count)
    own = own[::step]
    return np.unique([0, *own, top, *np.linspace(0, top, count - len(own) + 1)])


class _Side:
    """The left or the right side: moments, and what one transfer from each on can carry."""

    def __init__(
        self, moments: Sequence[int], sizes: Sequence[int], cost: ConcaveCost, count: int, out: bool
    ) -> None:
        self.at = grid_of(moments, count)
        self.top = float(self.at[-1])
        later = np.append(self.at[1:], self.top) if out else self.at
        # To each moment, within the same step first.
        self.rooms = cost.room(np.maximum(later[None, :] - self.at[:, None], 0))
        # All bytes that one may carry which starts in the step.
        known, own = np.array(moments, dtype=np.float64), np.array(sizes, dtype=np.float64)
        order = np.argsort(known, kind="stable")
        reached = np.append(0, own[order].cumsum())
        if out:
            self.caps = reached[np.searchsorted(known[order], later, side="left")]
        else:
            self.caps = reached[np.searchsorted(known[order], later, side="right")]
        self.caps[-1] = 0  # from the innermost moment on it is the middle

    def inside(self, time: Floats, cost: ConcaveCost, size: Floats) -> Floats:
        """Return when a last transfer ends, or the innermost moment if that is later."""
        ended = np.maximum(time + cost.of(size), self.top)
        return np.where(time < self.top, ended, self.top)


class _End(NamedTuple):
    """The best end: what it makes, from which moments on, and the last transfers' bytes."""

    value: float
    row: int
    column: int
    left: float
    right: float


class _Inwards:
    """U for one set of nested windows."""

    def __init__(
        self, nested: Nested, lines: Sequence[Line], count: int, *, outwards: bool
    ) -> None:
        sizes = [sum(loads) for loads in nested.loads]
        self.cost = ConcaveCost(lines, sum(sizes))
        self.left = _Side(nested.heads, sizes, self.cost, count, outwards)
        self.right = _Side(nested.tails, sizes, self.cost, count, outwards)
        self.most = np.zeros((len(self.left.at), len(self.right.at)))
        for row, carried in enumerate(self.most):
            left = self.left.rooms[row, row], self.left.caps[row]
            for column in range(len(carried)):
                if outwards:
                    right = self.right.rooms[column, column], self.right.caps[column]
                    carried[column] = _within(float(carried[column]), left, right)
                further = _more(carried[column], self.right, column)
                np.maximum(carried[column + 1 :], further, out=carried[column + 1 :])
            further = _more(carried, self.left, row)
            np.maximum(self.most[row + 1 :], further, out=self.most[row + 1 :])

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
        """Return sides and bytes of the transfers that make an end, the outermost first."""
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


def _within(carried: float, left: tuple[float, float], right: tuple[float, float]) -> float:
    """Return what is carried with transfers that end in the step in which they start."""
    ways = []
    for sides in ((left, right), (right, left)):
        most = carried
        for room, cap in sides:
            most = max(most, min(most + room, cap))
        ways.append(most)
    return max(ways)


def _more(carried: Floats, side: _Side, place: int) -> Floats:
    """Return what is carried at later moments with one more transfer, or none."""
    rooms = side.rooms[place, place + 1 :]
    if carried.ndim:
        rooms = rooms[:, None]
    return np.asarray(np.maximum(np.minimum(carried + rooms, side.caps[place]), carried))


def concave_bound(windows: Windows, lines: Sequence[Line], count: int = BOUND_GRID) -> int:
    """Return what no plan undercuts, in ns.

    Parameters
    ----------
    windows : Windows
        The parameters and their windows.
    lines : sequence of Line
        A transfer costs at least the least of them.
    count : int
        Moments of the grid on each side.
    """
    nests = widened(windows)
    return max(surely(_Inwards(nest, lines, count, outwards=True).best().value) for nest in nests)


def concave_loads(
    nested: Nested, lines: Sequence[Line], element_bytes: int = 1, count: int = PLAN_GRID
) -> list[Load]:
    """Return what each transfer of a plan carries, in transfer order.

    Parameters
    ----------
    nested : Nested
        The windows; parameters may be cut.
    lines : sequence of Line
        A transfer costs the least of them.
    element_bytes : int
        Parameters are cut at multiples of so many bytes.
    count : int
        Moments of the grid on each side.
    """
    search = _Inwards(nested, lines, count, outwards=False)
    left: list[Load] = []
    right: list[Load] = []
    rest = [piece for window in _outermost_first(nested) for piece in window][::-1]
    until = 0.0  # bytes that all transfers so far are to carry
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


def _outermost_first(nested: Nested) -> Iterator[list[tuple[int, int]]]:
    """Yield parameters and bytes of each window; the largest of them, which may be cut, last."""
    for members, loads in zip(nested.members[::-1], nested.loads[::-1], strict=True):
        yield sorted(zip(members, loads, strict=True), key=itemgetter(1))
