"""The complete analysis of recorded ranks: time breakdown, waits, causes, possible saving.

How much of the waiting for transfers could a better plan save? Method: `planner.caramel` plans the
trace's own graph with transfers at the fastest recorded cost. Its lower bound gives the least wait
of all plans of these all-reduces; its plan shows what can be saved. If gradients are unknown, or
differ from what was all-reduced, only bytes count: all of them at the best rate, overlapping all
computation. Kernels that count as computation but may be transfers may hide waits: these waits are
added to the most that can be saved.
Guarantee: in the model (computation as recorded on one rank, transfer costs independent of
overlap) no grouping, cutting or order of the all-reduces saves more than `at_most_ns`.
Complexity: that of the planner. Source: own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from planner.families.caramel import Problem, solve
from planner.families.caramel.evaluation import Evaluation
from planner.families.caramel.problem import Plan
from planner.model.costs import AffineCost
from planner.model.graphs import Graph
from planner.solving.result import Result
from planner.traces.recorded import (
    Breakdown,
    Recorded,
    StepParts,
    breakdown_of,
    check_one_each,
    clipped,
    length,
    parts_of,
    periods_of,
    without,
)
from planner.traces.waits import CAUSES, Wait, costs_of, one_of_several, waits_of


@dataclass(frozen=True, slots=True)
class Saving:
    """The possible saving per step (ns)."""

    exposed_ns: int  # mean wait for transfers without the host's delays
    straggler_ns: int  # part of it due to late ranks, which a plan does not claim to save
    least_ns: int  # lower bound on the wait under any plan
    plan_ns: int | None = None  # wait under `planned`
    planned: tuple[Problem, Result[Plan, Evaluation]] | None = None
    reason: str = ""  # why there is no plan
    doubtful_ns: int = 0  # additional wait if the doubtful kernels were transfers

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
    least, plan_ns, planned = max(whole - compute_ns, 0), None, None
    size = 0 if graph is None else sum(parameter.size_bytes for parameter in graph.parameters)
    if graph is None:
        pass
    elif set(sent_bytes) != {"all_reduce"}:
        others = ", ".join(sorted(set(sent_bytes) - {"all_reduce"})) or "nothing"
        reason = f"plans are for all-reduces of gradients alone; {others} was sent"
    elif not 0.9 <= sent_bytes["all_reduce"] / size <= 1.1:
        reason = (
            f"{sent_bytes['all_reduce']:,} bytes were all-reduced a step, and gradients have "
            f"{size:,}"
        )
    else:
        reason = ""
        problem = Problem(graph, costs["all_reduce"], workers=workers)
        result = solve(problem, time_limit=time_limit)
        compute = problem.windows.compute_ns
        assert result.objective_ns is not None
        least = max((result.lower_bound_ns or 0) - compute, 0)
        plan_ns, planned = max(result.objective_ns - compute, 0), (problem, result)
    return Saving(
        exposed_ns,
        straggler_ns,
        min(least, exposed_ns),
        plan_ns,
        planned,
        reason,
        doubtful_ns,
    )


@dataclass(frozen=True, slots=True)
class Why:
    """The analysis of recorded ranks."""

    ranks: tuple[Recorded, ...]
    breakdowns: tuple[Breakdown, ...]  # of each rank over the whole trace
    parts: tuple[StepParts, ...]  # of each step of each rank
    waits: tuple[Wait, ...]  # of all steps and ranks, the longest first
    causes: Mapping[str, int]  # sums over all waits, by cause (ns)
    costs: Mapping[str, AffineCost]  # the lowest of each collective; none for one rank of several
    steps: int  # least number of steps of a rank; 1 if none are marked
    in_all: int  # steps of all ranks together
    saving: Saving  # of a step, as the mean over ranks and steps

    @property
    def unexplained(self) -> bool:
        """Whether transfers may be hidden in the computation of a rank, or are missing."""
        return any(rank.unexplained for rank in self.ranks)

    @property
    def one_of_several(self) -> bool:
        """Whether the only recorded rank belongs to a job of several."""
        return one_of_several(self.ranks)


def why(
    ranks: Sequence[Recorded],
    graph: Graph | None = None,
    reason: str = "",
    *,
    time_limit: float | None = None,
) -> Why:
    """Return the causes of waiting, and the time a better plan could save.

    `ranks` is one rank or several of one job; two traces of one rank are an `InvalidInputError`.
    `graph` is a recorded step's dataflow, None if unknown, for the `reason`.
    """
    check_one_each(ranks)
    waits, costs = waits_of(ranks), costs_of(ranks)
    parts = tuple(part for rank in ranks for part in parts_of(rank))
    in_all = sum(max(1, len(rank.steps)) for rank in ranks)
    known = {
        name: sum(
            transfer.size_bytes or 0
            for rank in ranks
            for transfer in rank.transfers
            if transfer.collective == name and (transfer.step >= 0 or not rank.steps)
        )
        // in_all
        for name in costs
    }
    exposed = sum(wait.waited_ns - wait.causes["input"] - wait.causes["host"] for wait in waits)
    if one_of_several(ranks):
        given = f"one rank of {ranks[0].ranks}" if ranks[0].ranks else "one rank of several"
        reason = (
            f"from {given} start-ups cannot be told from waiting for other ranks: give the traces "
            "of all ranks"
        )
        graph = None
    return Why(
        ranks=tuple(ranks),
        breakdowns=tuple(map(breakdown_of, ranks)),
        parts=parts,
        waits=tuple(sorted(waits, key=lambda wait: -wait.waited_ns)),
        causes={name: sum(wait.causes[name] for wait in waits) for name in CAUSES},
        costs=costs,
        steps=max(1, min(len(rank.steps) for rank in ranks)),
        in_all=in_all,
        saving=saving_of(
            exposed // in_all,
            sum(wait.causes["straggler"] for wait in waits) // in_all,
            sum(part.compute_ns for part in parts) // in_all,
            known,
            costs,
            graph,
            doubtful_ns=sum(map(_doubtful_ns, ranks)) // in_all,
            workers=max(2, max((rank.ranks or 0 for rank in ranks), default=0)),
            reason=reason,
            time_limit=time_limit,
        ),
    )


def _doubtful_ns(rank: Recorded) -> int:
    """Return the additional wait if the doubtful kernels were transfers (ns)."""
    if rank.certain is None:
        return 0
    doubtful = without(rank.computation, rank.certain)
    return sum(length(clipped(doubtful, period)) for period in periods_of(rank))
