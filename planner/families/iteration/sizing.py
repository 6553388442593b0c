"""Choose the number of machines with the shortest epoch, and of iterations scheduled at once.

Problem: every worker computes whole batches: ceil(samples / (batch size * workers)) iterations.
Method: best-first search over the numbers of machines, by a bound on the epoch: first from
computation and network volume, then from `planner.families.iteration.bounds`, then the plan. It
ends when no bound is below the best epoch. Guarantee: compared with the plans found, no other
number has a shorter epoch in the problem's op order, and no smaller number an equal one, except at
the time limit. Complexity: O(machines + ops), a strong bound per number that the first bound
leaves, a plan per number that the second leaves. Source: own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any

from planner.families import bigdl, drizzle
from planner.families.drizzle.problem import MAX_GROUP_NS, MAX_OVERHEAD
from planner.families.iteration.alternatives import Alternative
from planner.families.iteration.evaluation import Evaluation
from planner.families.iteration.family import JOINT, bound_under, solve_all
from planner.families.iteration.plan import Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.synchronisation import least
from planner.families.iteration.transfers import limit_infeasible
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.profiles import Profile
from planner.model.topologies import BCube, Rails, Switch
from planner.model.validation import MAX_VALUE, integer, shown, total
from planner.solving.compare import Place
from planner.solving.deadline import Cancel, Deadline
from planner.solving.result import Infeasibility, Result

MAX_MACHINES = 4096
"""Most machines of which numbers are compared."""

SHOWN = 3
"""Unplanned numbers of machines that are shown, besides one and all."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The cluster with a number of machines, and its epochs.

    `bound_ns` holds for all plans, and is None if no plan is possible or the bound is unknown.
    `result` is the planned iteration or why there is none; None if it was not planned, because of
    its bound or the deadline.
    """

    cluster: Cluster
    iterations: int
    bound_ns: int | None
    result: Result[Plan, Evaluation] | None
    alternatives: tuple[Alternative, ...] = ()

    @property
    def machines(self) -> int:
        """Machines; hosts on rails."""
        return self.cluster.machines

    @property
    def epoch_ns(self) -> int | None:
        """Time of an epoch by the plan; None without one."""
        if self.result is None or self.result.objective_ns is None:
            return None
        return self.iterations * self.result.objective_ns


@dataclass(frozen=True, slots=True)
class Sizing:
    """The chosen number of machines (None if none has a plan), and the numbers compared.

    `candidates`: one machine, all machines, planned numbers, and those with the next lowest bounds.
    `timed_out`: the deadline left a number unplanned that might be better.
    """

    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    timed_out: bool = False

    @property
    def infeasibility(self) -> Infeasibility | None:
        """Why there is no plan with all machines, if there is none with any number of them."""
        last = self.candidates[-1].result
        return last.infeasibility if self.chosen is None and last is not None else None


def choose_size(
    profile: Profile,
    cluster: Cluster,
    epoch_samples: int,
    *,
    time_limit: float | None = None,
    cancel: Cancel | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Sizing:
    """Choose how many machines of a cluster a job should have.

    Parameters
    ----------
    profile : Profile
        The model; `batch_size` is that of each worker in an iteration.
    cluster : Cluster
        The most machines available, on a switch, a Fat-Tree or rails.
    epoch_samples : int
        Samples of an epoch.
    time_limit : float, optional
        Seconds after which no further number is planned. At least one is.
    cancel : Cancel, optional
        Stops in the same way.
    progress : callable, optional
        Called with the next task.
    **options
        As for `Problem.from_profile`.

    Raises
    ------
    NotApplicableError
        If the cluster is a BCube, whose ports and levels determine the machines, or has too many
        machines.
    InvalidInputError
        If the profile has no batch size, or an input is invalid.
    """
    integer(epoch_samples, "epoch_samples", minimum=1)
    if profile.batch_size is None:
        raise InvalidInputError(
            "profile.batch_size", "missing: the iterations of an epoch follow from it"
        )
    if cluster.machines > MAX_MACHINES:
        raise NotApplicableError(
            "cluster.machines",
            f"at most {MAX_MACHINES} machines are compared, got {cluster.machines}",
        )
    deadline = Deadline.of(time_limit, cancel)
    resized(cluster, cluster.machines)  # raises for a topology without other sizes
    problem = Problem.from_profile(profile, cluster, **options)
    batch = profile.batch_size * cluster.workers_per_host
    iterations = {
        machines: _iterations(epoch_samples, batch * machines)
        for machines in range(1, cluster.machines + 1)
    }
    return _Search(problem, iterations, deadline, progress).run()


def _iterations(epoch_samples: int, together: int) -> int:
    """Return the number of iterations of an epoch; the last one is filled up."""
    most = MAX_VALUE // together
    if epoch_samples > most * together:
        raise InvalidInputError(
            "epoch_samples",
            f"expected an integer <= {most * together}, in iterations of {together} samples, "
            f"got {shown(epoch_samples)}",
        )
    return -(-epoch_samples // together)


class _Search:
    """Plans numbers of machines, the one with the least bound first."""

    def __init__(
        self,
        problem: Problem,
        iterations: Mapping[int, int],
        deadline: Deadline,
        progress: Callable[[str], None] | None,
    ) -> None:
        self._problem, self._deadline, self._progress = problem, deadline, progress
        self._known = {
            machines: Candidate(resized(problem.cluster, machines), count, None, None)
            for machines, count in iterations.items()
        }
        self._too_few = 0  # up to this many machines have too little memory

    def run(self) -> Sizing:
        """Return the best number of machines, and the numbers compared."""
        most = len(self._known)
        if all(limit_infeasible(self._problem, mode) for mode in self._problem.modes):
            self._too_few = most
            self._planned(most, self._problem)  # for the reason
        waiting = []  # (bound on the epoch, machines, whether it is the stronger bound)
        for machines, candidate in self._known.items():
            bound_ns = self._bounded(machines, _simple_bound(self._problem, candidate.cluster))
            waiting.append((bound_ns, machines, False))
        heapify(waiting)
        best: tuple[int, int] | None = None
        while waiting and (best is None or waiting[0] < best):
            if self._deadline.passed and any(known.result for known in self._known.values()):
                break
            _, machines, strong = heappop(waiting)
            problem = None if machines <= self._too_few else self._resized(machines)
            if problem is None:
                self._note(machines, bound_ns=None)
            elif not strong and not self._deadline.passed:
                heappush(waiting, (self._bounded(machines, bound_under(problem)), machines, True))
            else:
                epoch = self._planned(machines, problem)
                if epoch is not None:
                    best = min((epoch, machines), best or (epoch, machines))
                elif all(limit_infeasible(problem, mode) for mode in problem.modes):
                    self._too_few = max(self._too_few, machines)  # fewer have less memory in all
        timed_out = bool(waiting) and (best is None or waiting[0] < best)
        return self._sizing(None if best is None else best[1], timed_out)

    def _note(self, machines: int, **known: Any) -> None:
        self._known[machines] = replace(self._known[machines], **known)

    def _epoch(self, machines: int, iteration_ns: int) -> int:
        epoch = self._known[machines].iterations * iteration_ns
        return total(epoch, "epoch_samples", "the time of an epoch")

    def _bounded(self, machines: int, iteration_ns: int) -> int:
        """Record a bound on the iteration, and return the bound on the epoch."""
        known = self._known[machines].bound_ns or 0
        bound_ns = max(known, self._epoch(machines, iteration_ns))
        self._note(machines, bound_ns=bound_ns)
        return bound_ns

    def _resized(self, machines: int) -> Problem | None:
        """Return the problem with another number of machines, or None and keep the reason."""
        try:
            return replace(self._problem, cluster=self._known[machines].cluster)
        except InvalidInputError as error:  # such as an algorithm for powers of two only
            reason = Infeasibility(f"{machines} machines: {error}", (error.path,))
            none: Result[Plan, Evaluation] = Result(
                JOINT, None, None, None, 0.0, infeasibility=reason
            )
            self._note(machines, bound_ns=None, result=none)
            return None

    def _planned(self, machines: int, problem: Problem) -> int | None:
        """Plan for a number of machines, and return the time of an epoch."""
        if self._progress:
            self._progress(f"{machines} of {len(self._known)} machines")
        result, listed = solve_all(problem, time_limit=self._deadline.share(1))
        self._note(machines, result=result, alternatives=listed)
        return None if result.objective_ns is None else self._epoch(machines, result.objective_ns)

    def _sizing(self, chosen: int | None, timed_out: bool) -> Sizing:
        """Return the result, with the numbers of machines to show."""
        most, known = len(self._known), self._known
        results = {size: candidate.result for size, candidate in known.items() if candidate.result}
        shown = {1, most, *(machines for machines, result in results.items() if result.plan)}
        shown.update(sorted(results.keys() - shown)[-SHOWN:])  # some infeasible numbers
        for machines in {1, most} - results.keys():
            self._resized(machines)  # keeps the reason if it cannot be
        next_best = sorted(
            (candidate.bound_ns, machines)
            for machines, candidate in known.items()
            if candidate.bound_ns is not None and machines not in shown
        )
        shown.update(machines for _, machines in next_best[:SHOWN])
        return Sizing(
            tuple(known[machines] for machines in sorted(shown)),
            None if chosen is None else known[chosen],
            timed_out,
        )


def resized(cluster: Cluster, machines: int) -> Cluster:
    """Return the cluster with fewer machines, on the same switches.

    `machines` are hosts on rails, at most as many as the cluster has. Raises `NotApplicableError`
    for a BCube.
    """
    topology = cluster.topology
    if isinstance(topology, BCube):
        raise NotApplicableError(
            "cluster.topology",
            f"a bcube of {topology.n}-port switches and {topology.k} levels has "
            f"{topology.servers} machines and no other number; expected a switch, a fattree or "
            "rails",
        )
    integer(machines, "machines", minimum=1, maximum=cluster.machines)
    if isinstance(topology, Switch):
        topology = Switch(machines)
    elif isinstance(topology, Rails):
        topology = replace(topology, hosts=machines)
    return replace(cluster, machines=machines, topology=topology)


def _simple_bound(problem: Problem, cluster: Cluster) -> int:
    """Return a lower bound on the iteration from computation and network volume (ns)."""
    cheapest = least(cluster)
    pushed, pulled = sum(problem.pushed), sum(problem.pulled)
    replicated = cheapest.all_reduce.cost_ns(pushed)
    sharded = cheapest.half.cost_ns(pushed + pulled)
    return max(problem.base.windows.compute_ns, min(replicated, sharded))


# ---
# Group size: the number of iterations that an engine such as Spark schedules at once.
#
# Problem: the engine's driver schedules every task of every iteration, which adds to the planned
# iterations. Method: Drizzle's group size (`planner.drizzle`), with a whole planned iteration,
# communication included, as the computation time, and the tasks of all machines. Guarantee: the
# smallest group that keeps both limits, or the limits that bind. Complexity: O(1). Source:
# Venkataraman, Ding, Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle on Apache
# Spark".


def scheduling_problem(cluster: Cluster, iteration_ns: int, **limits: Any) -> drizzle.Problem:
    """Return the problem of the group size; unscheduled, an iteration takes `iteration_ns`."""
    scheduling = cluster.scheduling
    if scheduling is None:
        raise NotApplicableError(
            "cluster.scheduling", "missing: what the engine's driver spends on tasks and groups"
        )
    return drizzle.Problem(
        compute_ns=iteration_ns,
        tasks=cluster.working * scheduling.tasks_per_machine,
        group_ns=scheduling.group_ns,
        task_ns=scheduling.task_ns,
        constant_task_ns=scheduling.constant_task_ns,
        **{"max_overhead": MAX_OVERHEAD, "max_group_ns": MAX_GROUP_NS, **limits},
    )


def scheduling_from_profile(
    profile: Profile, place: Place, options: Mapping[str, Any]
) -> drizzle.Problem:
    """Return the problem of iterations that compute, and then synchronise by slices."""
    cluster = place.cluster
    assert cluster is not None
    if cluster.scheduling is None:
        raise InvalidInputError(
            "--cluster",
            f"{cluster.name} does not say what its engine's driver spends on tasks; drizzle-64 "
            "does",
        )
    sliced = bigdl.BIGDL.from_profile(profile, place, {"machines": cluster.workers, "tasks": None})
    iteration_ns = profile.forward_ns + profile.backward_ns
    iteration_ns += bigdl.solve(sliced).objective_ns or 0
    limits = {"max_overhead": options["max_overhead"], "max_group_ns": options["max_group"]}
    return scheduling_problem(cluster, iteration_ns, **limits)


def group_size(
    cluster: Cluster, iteration_ns: int, **limits: Any
) -> Result[drizzle.Plan, drizzle.Evaluation]:
    """Choose how many planned iterations the driver schedules at once.

    Parameters
    ----------
    cluster : Cluster
        A cluster whose engine schedules iterations.
    iteration_ns : int
        Time of one iteration without scheduling.
    **limits
        `max_overhead`: largest share of scheduling in the time of an iteration, above 0 and below
        1. `max_group_ns`: longest time of a group; None for no limit.

    Raises
    ------
    NotApplicableError
        If the cluster has no scheduling costs.
    InvalidInputError
        If an input is invalid, or the time of the group does not fit in 63 bits; its path leads to
        a limit, or into the cluster's document.
    """
    try:
        return drizzle.solve(scheduling_problem(cluster, iteration_ns, **limits))
    except NotApplicableError:
        raise
    except InvalidInputError as error:
        place = "" if error.path in limits else "cluster.scheduling."
        raise InvalidInputError(f"{place}{error.path}", error.message) from None
