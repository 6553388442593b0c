"""How much of what computation waited a better plan could save, at most and for certain.

Problem. The trace's own graph, with its own gradients, and transfers that cost what the fastest of
the trace did, is a problem of planning gradient transfers: how short can its iteration be?

Method. `planner.caramel` plans it. What its lower bound waits, no plan of these all-reduces can
save; what its plan waits, that plan does not. Where gradients are unknown, or are not what was
all-reduced, only the bytes count: all of them at the best rate, beside all computation.

Kernels that may be transfers, and count as computation, may hide waits: what they would add is
added to what can be saved at most.

Guarantee. Up to the model (computation as recorded on one rank, transfers that cost the same
whatever runs beside them), no grouping, cutting or order of the all-reduces saves more than
`at_most_ns`.

Complexity: that of the planner. Source: own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from planner.caramel import Problem, solve
from planner.caramel.evaluation import Evaluation
from planner.caramel.problem import Plan
from planner.costs import AffineCost
from planner.graphs import Graph
from planner.results import Result

__all__ = ["Planned", "Saving", "saving_of"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan for the trace's own graph, and its problem."""

    problem: Problem
    result: Result[Plan, Evaluation]


@dataclass(frozen=True, slots=True)
class Saving:
    """What can be saved of a step, in ns.

    Attributes
    ----------
    exposed_ns : int
        What computation waited for these transfers, the host's delays aside, in the mean of steps.
    straggler_ns : int
        Of that, for ranks that came later; the plan for one rank does not say that it saves it.
    least_ns : int
        What it waits for them under any plan.
    plan_ns : int or None
        What it waits under the plan; None without one.
    planned : Planned or None
        The plan.
    reason : str
        Why there is none; else empty.
    doubtful_ns : int
        What it would wait besides, were kernels that may be transfers counted as such.
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
        """What no plan can save more of."""
        return max(self.exposed_ns + self.doubtful_ns - self.least_ns, 0)

    @property
    def saved_ns(self) -> int | None:
        """What the plan saves besides waits for other ranks; None without one."""
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
    """Return what a better plan saves.

    Parameters
    ----------
    exposed_ns, straggler_ns, compute_ns : int
        What a step waits for transfers, of that for ranks that came later, and what it computes.
    sent_bytes : mapping of str to int
        Bytes of a step, by collective.
    costs : mapping of str to AffineCost
        What each collective costs at best.
    graph : Graph or None
        The step's dataflow; None if it is unknown, for the `reason`.
    doubtful_ns : int
        What a step would wait besides, were kernels that may be transfers counted as such.
    workers : int
        Ranks of the job.
    reason : str
        Why there is no graph.
    time_limit : float, optional
        Seconds for planning.
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
