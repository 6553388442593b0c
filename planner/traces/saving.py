"""Bounds how much of the waiting for transfers a better plan could save.

Method: `planner.caramel` plans the trace's own graph with transfers at the fastest recorded cost.
No plan of these all-reduces can save what its lower bound waits; its plan saves the rest. If
gradients are unknown, or differ from what was all-reduced, only bytes count: all of them at the
best rate, overlapping all computation. Kernels that count as computation but may be transfers may
hide waits: these are added to what can be saved at most.
Guarantee: in the model (computation as recorded on one rank, transfer costs independent of
overlap) no grouping, cutting or order of the all-reduces saves more than `at_most_ns`.
Complexity: that of the planner. Source: own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil

from planner.families.caramel import Problem, solve
from planner.families.caramel.evaluation import Evaluation
from planner.families.caramel.problem import Plan
from planner.model.costs import AffineCost
from planner.model.graphs import Graph
from planner.solving.result import Result


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan for the trace's own graph, and its problem."""

    problem: Problem
    result: Result[Plan, Evaluation]


@dataclass(frozen=True, slots=True)
class Saving:
    """The possible saving per step (ns).

    `exposed_ns` is the mean wait for transfers without the host's delays; `straggler_ns` the part
    of it due to late ranks, which a plan for one rank does not claim to save. `least_ns` is waited
    under any plan, `plan_ns` under `planned`; both are None without a plan, for the `reason`.
    `doubtful_ns` would be waited too if the doubtful kernels were transfers.
    """

    exposed_ns: int
    straggler_ns: int
    least_ns: int
    plan_ns: int | None = None
    planned: Planned | None = None
    reason: str = ""
    doubtful_ns: int = 0

    @property
    def at_most_ns(self) -> int:
        """Upper bound on the saving of any plan."""
        return max(self.exposed_ns + self.doubtful_ns - self.least_ns, 0)

    @property
    def saved_ns(self) -> int | None:
        """The saving of the plan, without waits for late ranks; None without a plan."""
        if self.plan_ns is None:
            return None
        return max(self.exposed_ns - self.straggler_ns - self.plan_ns, 0)


def saving_of(
    exposed_ns: int,
    straggler_ns: int,
    compute_ns: int,
    sent_bytes: Mapping[str, int],
    costs: Mapping[str, AffineCost],
    graph: Graph | None,
    *,
    doubtful_ns: int = 0,
    workers: int,
    reason: str = "",
    time_limit: float | None = None,
) -> Saving:
    """Return the possible saving per step.

    `sent_bytes` and `costs` are the bytes per step and the lowest cost of each collective. Without
    a `graph`, for the given `reason`, nothing is planned.
    """
    whole = sum(ceil(costs[name].ns_per_byte * size) for name, size in sent_bytes.items())
    least = max(whole - compute_ns, 0)

    def without_plan(why: str) -> Saving:
        return Saving(
            exposed_ns,
            straggler_ns,
            min(least, exposed_ns),
            reason=why,
            doubtful_ns=doubtful_ns,
        )

    if graph is None:
        return without_plan(reason)
    size = sum(parameter.size_bytes for parameter in graph.parameters)
    if set(sent_bytes) != {"all_reduce"}:
        others = ", ".join(sorted(set(sent_bytes) - {"all_reduce"})) or "nothing"
        return without_plan(f"plans are for all-reduces of gradients alone; {others} was sent")
    if not 0.9 <= sent_bytes["all_reduce"] / size <= 1.1:
        return without_plan(
            f"{sent_bytes['all_reduce']:,} bytes were all-reduced a step, and gradients have "
            f"{size:,}"
        )
    problem = Problem(graph, costs["all_reduce"], workers=workers)
    result = solve(problem, time_limit=time_limit)
    compute = problem.windows.compute_ns
    assert result.objective_ns is not None
    least = max((result.lower_bound_ns or 0) - compute, 0)
    return Saving(
        exposed_ns,
        straggler_ns,
        min(least, exposed_ns),
        max(result.objective_ns - compute, 0),
        Planned(problem, result),
        doubtful_ns=doubtful_ns,
    )


# ---
# Estimates the cost of a transfer without waiting: the highest line below all recorded transfers.
#
# Method: of all lines below the fastest transfer of each size, with start-up and slope >= 0, take
# the one nearest to these in sum: an edge of the lower convex hull, or the line through the origin
# and one point. Guarantee: no recorded transfer was faster than its line. With a single size the
# start-up is unknown and taken as 0. Complexity: O(n log n) for the hull, O(edges · sizes) for the
# choice. Source: own.


def fastest(points: Iterable[tuple[int, int]]) -> AffineCost:
    """Return the lower envelope of transfers, given as bytes (at least 1) and time (ns)."""
    least: dict[int, int] = {}
    for size, time in points:
        least[size] = min(time, least.get(size, time))
    known = sorted(least.items())
    hull: list[tuple[int, int]] = []
    for x, y in known:
        while len(hull) > 1 and _above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    lines = [(Fraction(0), min(Fraction(y, x) for x, y in known))]
    lines.append((Fraction(min(y for _, y in known)), Fraction(0)))
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = Fraction(y1 - y0, x1 - x0)
        if slope >= 0 and y0 - slope * x0 >= 0:
            lines.append((y0 - slope * x0, slope))
    if len(known) == 1:
        lines = lines[:1]
    startup, slope = max(lines, key=lambda line: sum(line[0] + line[1] * x for x, _ in known))
    return AffineCost(int(startup), slope)


def _above(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b is not below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
