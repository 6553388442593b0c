"""How short an iteration can be by the number of its transfers, for one op order and affine costs.

Problem: every transfer costs a start-up, so that all plans of many transfers are long. Those of few
are the solutions of a mixed-integer program: which heads and which tails transfer k may reach (each
a staircase of binary variables), and how much of each parameter it carries.

Guarantee: what HiGHS proves, but for its tolerance; it shares nothing with the library's bounds.
Complexity: for k transfers of n parameters a program of 2kn binary variables and kn others: seconds
to minutes, for the few cases where plan and bound differ.
Source: own.
"""

from itertools import pairwise
from math import ceil

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner import AffineCost
from planner.families.caramel.windows import Windows

ROUNDING = 1e-6
"""Plans that are so much longer, relatively, than another count as equal."""


def bound_by_count(known: Windows, cost: AffineCost, value: int, seconds: float) -> float | None:
    """Return a bound on what all plans last, at most the value of one; None without time for it.

    Parameters
    ----------
    known : Windows
        Heads, tails and sizes of the parameters.
    cost : AffineCost
        What transfers cost; its start-up is above 0.
    value : int
        What some plan lasts, in nanoseconds: there is no need to know about longer ones.
    seconds : float
        How long the program may be solved.
    """
    least = min(known.heads) + float(sum(known.sizes) * cost.ns_per_byte) + min(known.tails)
    few = ceil((value * (1 - ROUNDING) - least) / cost.startup_ns) - 1
    found = least_with(few, known, cost, seconds) if few > 0 else value
    return None if found is None else min(found, least + (few + 1) * cost.startup_ns, value)


def least_with(most: int, known: Windows, cost: AffineCost, seconds: float) -> float | None:
    """Return a bound on what plans of at most so many transfers last; None if there was no time."""
    unit = max(known.heads) / 100 + 1  # of times: tolerances are absolute
    cells: dict[tuple[int, int], int] = {}
    for head, tail, size in zip(known.heads, known.tails, known.sizes, strict=True):
        cells[head, tail] = cells.get((head, tail), 0) + size
    heads, tails = (sorted({window[side] for window in cells}) for side in (0, 1))
    startup, rate = cost.startup_ns / unit, float(cost.ns_per_byte) / unit
    carried = range(0, most * len(cells), len(cells))  # first variable of each transfer
    reached = range(carried.stop, carried.stop + most * len(heads), len(heads))
    lasting = range(reached.stop, reached.stop + most * len(tails), len(tails))
    ends, last = lasting.stop, lasting.stop + most
    rows: list[tuple[dict[int, float], float, float]] = []
    for place, (window, size) in enumerate(cells.items()):
        whole = size * rate
        rows.append(({first + place: 1 for first in carried}, whole, whole))
        for k in range(most):
            head = reached[k] + heads.index(window[0])
            tail = lasting[k] + tails.index(window[1])
            rows += [({carried[k] + place: 1, at: -whole}, -np.inf, 0) for at in (head, tail)]
    for k in range(most):
        for values, first in ((heads, reached[k]), (tails, lasting[k])):
            rows += [
                ({first + place: 1, first + place - 1: -1}, -np.inf, 0)
                for place in range(1, len(values))
            ]
        sent = dict.fromkeys(range(carried[k], carried[k] + len(cells)), -1.0)
        step = _staircase(heads, reached[k], unit)
        step[reached[k]] -= startup  # of a transfer that carries something
        rows.append(({ends + k: 1, **sent, **step}, 0, np.inf))
        if k:
            follows = {ends + k: 1.0, ends + k - 1: -1.0, reached[k]: -startup}
            rows.append(({**follows, **sent}, 0, np.inf))
            rows.append(({reached[k - 1]: 1, reached[k]: -1}, 0, np.inf))  # empty ones come last
        rows.append(({last: 1, ends + k: -1, **_staircase(tails, lasting[k], unit)}, 0, np.inf))
    count = last + 1
    entries = [
        (row, at, value) for row, (terms, _, _) in enumerate(rows) for at, value in terms.items()
    ]
    row, at, value = zip(*entries, strict=True)
    whole_numbers = np.zeros(count)
    whole_numbers[carried.stop : ends] = 1
    upper = np.where(whole_numbers, 1, np.inf)
    goal = np.zeros(count)
    goal[last] = 1
    found = milp(
        goal,
        constraints=LinearConstraint(
            coo_array((value, (row, at)), shape=(len(rows), count)).tocsr(),
            [low for _, low, _ in rows],
            [high for _, _, high in rows],
        ),
        integrality=whole_numbers,
        bounds=Bounds(0, upper),
        options={"time_limit": seconds},
    )
    return None if found.mip_dual_bound is None else found.mip_dual_bound * unit


def _staircase(values: list[int], first: int, unit: float) -> dict[int, float]:
    """Return the terms of minus the largest value reached."""
    steps = [values[0], *(after - before for before, after in pairwise(values))]
    return {first + place: -step / unit for place, step in enumerate(steps)}
