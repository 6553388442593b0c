"""A lower bound for any cost if transfers take longer than computation: cells of bytes.

Problem: bound the iteration of every plan of nested windows, however bytes are grouped and cut.
Method: transfers are taken in the order of the windows that they reach, the outermost first; each
goes to the left or to the right end. A state has the bytes carried and the time used on the right;
its value is the time used on both sides less `GridCost.rate` for the bytes. So a cell of bytes
loses the variation of a transfer's overhead only. Derivation: docs/caramel.md, "Why the bound for
any cost holds". Guarantee: no plan lasts less. Complexity: O(cells² · columns) in NumPy.
Source: own.
"""

import numpy as np
from numpy.typing import NDArray

from planner.families.caramel.bounds import Nested, outer_nesting
from planner.families.caramel.grid_bounds import rounded_down
from planner.families.caramel.grid_costs import Floats, GridCost, last_bytes, places
from planner.families.caramel.windows import Windows

CELLS, COLUMNS, BEYOND = 256, 128, 32
"""The numbers of byte cells, and of time columns up to the largest tail and beyond it."""

Columns = NDArray[np.int64]


def byte_bound(windows: Windows, cost: GridCost, cells: int = CELLS, columns: int = COLUMNS) -> int:
    """Return the lower bound over all plans (ns)."""
    return max(
        rounded_down(_least(nested, cost, cells, columns)) for nested in outer_nesting(windows)
    )


def _least(nested: Nested, cost: GridCost, cells: int, columns: int) -> float:
    """Return the least iteration for one set of nested windows."""
    heads, tails = nested.heads[::-1], nested.tails[::-1]  # rising
    sizes = [sum(loads) for loads in nested.loads[::-1]]
    moments = [head + tail for head, tail in zip(heads, tails, strict=True)]
    first, window = [0], [0]
    for place, inside in zip(*places(moments, sizes, cells), strict=True):
        begin = first[-1]
        first += [begin + cut for cut in inside if cut]
        window += [place] * (len(first) - len(window))
    # Every window has a place of its own; of very many windows only some places are used.
    used = [0, *range(len(first) - 1, 0, -max(len(first) // cells, 1))[::-1]]
    first, window = [first[place] for place in used], [window[place] for place in used]
    edges = np.array(first, dtype=np.float64)
    last, rate, top = last_bytes(edges), cost.rate, float(tails[-1])
    beyond = np.linspace(top, top + float(cost.of(edges[-1:])[0]), BEYOND)
    right = np.unique([*np.linspace(0, top, columns + 1), *beyond])
    after = np.append(right[1:], np.inf)  # the end of each column
    overheads = cost.overheads(edges)
    fewest = np.maximum(edges[None, :] - last[:, None], 1)
    quickest = cost.of(fewest)
    slowest = cost.of(np.maximum(last[None, :] - edges[:, None], fewest))
    moving = int(np.searchsorted(right, top))  # columns from which transfers on the right start
    values = np.full((len(edges), len(right)), np.inf)
    values[0, 0] = 0
    for cell in range(1, len(edges)):
        before, over = values[:cell], overheads[:cell, cell, None]
        head, tail = float(heads[window[cell]]), float(tails[window[cell]])
        waits = head + right - rate * last[:cell, None]
        np.minimum.reduce(np.maximum(before, waits) + over, axis=0, out=values[cell])
        value = before[:, :moving] + np.maximum(tail - after[:moving], 0) + over
        early = np.maximum(right[:moving], tail) + quickest[:cell, cell, None]
        late = np.maximum(after[:moving], tail) + slowest[:cell, cell, None]
        _spread(values[cell], value, _column(right, early), _column(right, late))
    # The innermost window ends on the left, and its tail follows; or on the right, after its head.
    ended = np.maximum(
        values[-1] + np.maximum(top - after, 0), heads[-1] + right - rate * first[-1]
    )
    return float(ended.min()) + rate * first[-1]


def _column(right: Floats, times: Floats) -> Columns:
    """Return the column of each time."""
    return np.asarray(np.searchsorted(right, times, side="right") - 1)


def _spread(ends: Floats, values: Floats, first: Columns, last: Columns) -> None:
    """Lower the values of all columns from `first` to `last`."""
    known = np.isfinite(values)
    values, first, last = values[known], first[known], last[known]
    while len(values):
        np.minimum.at(ends, first, values)
        more = first < last
        values, first, last = values[more], first[more] + 1, last[more]
