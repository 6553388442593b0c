"""How many machines a job should have.

Problem: a cluster may have up to so many machines. With which number of them does an epoch of a
profiled model take the least time, every worker computing whole batches of the profile's size?

Method: Yan's performance model prices an epoch with every number of machines
(`planner.iteration.epochs`). Then the iteration is planned (`planner.iteration.solve`) with the
best few of them, with all machines, and with one, which is added because in that model a single
replica too reads its weights over the network. An epoch has ceil(samples / (batch size * workers))
iterations; of the numbers of machines that make equally many only Yan's best is a candidate.

Candidates are planned in the order of a bound: computation, and what the network needs for all
bytes without start-ups, times iterations. Once the bound of the next is no better than the best
plan, it and those behind it are left out: they cannot win.

Guarantee: of the candidates the one whose plan makes the shortest epoch, of equally short ones the
one with the fewest machines, unless the time limit cuts in. Nothing is proven of numbers of
machines that are no candidates.

Complexity: O(machines + ops), and one run of `planner.iteration.solve` for each candidate that is
not left out: at most 5.

Source: Yan et al., "Performance Modeling and Scalability Optimization of Distributed Deep Learning
Systems", KDD'15 (the model); the rest is our own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.clusters import Cluster
from planner.deadline import Deadline
from planner.errors import InvalidInputError, NotApplicableError
from planner.iteration.epochs import Estimate, batch_size_of, computation_ns, yan_estimates
from planner.iteration.problem import Plan, Problem
from planner.iteration.solver import solve
from planner.iteration.synchronisation import least
from planner.methods import deadline_in
from planner.profiles import Profile
from planner.results import Infeasibility, Result
from planner.topologies import BCube, Rails, Switch
from planner.validation import integer, total

__all__ = [
    "SHORTLIST",
    "Candidate",
    "Sizing",
    "choose_size",
    "resized",
]

SHORTLIST = 3
"""Numbers of machines that are taken from Yan's ranking, each with other iterations an epoch."""

LEAST_SECONDS = 0.001
"""What a candidate gets at least."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A number of machines that was considered for planning.

    Attributes
    ----------
    cluster : Cluster
        The cluster with so many machines.
    iterations : int
        Iterations of an epoch.
    estimate_ns : int
        Time of an epoch by Yan's model.
    bound_ns : int or None
        What no plan's epoch undercuts; None if nothing can be planned.
    result : Result or None
        The planned iteration, or why there is none; None if it was not planned, because of the
        bound or because the time was up.
    """

    cluster: Cluster
    iterations: int
    estimate_ns: int
    bound_ns: int | None
    result: Result[Plan] | None

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
    """How many machines a job should have, and what was compared.

    Attributes
    ----------
    candidates : tuple of Candidate
        By number of machines.
    chosen : Candidate or None
        The one whose plan makes the shortest epoch; None if no candidate has a plan.
    ranking : tuple of Estimate
        Every number of machines by Yan's model, the best first.
    timed_out : bool
        Whether a candidate was left out because the time was up.
    """

    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    ranking: tuple[Estimate, ...]
    timed_out: bool = False

    @property
    def infeasibility(self) -> Infeasibility | None:
        """Why there is no plan with all machines, where there is none with any number of them."""
        last = self.candidates[-1].result
        return last.infeasibility if self.chosen is None and last is not None else None


def choose_size(
    profile: Profile,
    cluster: Cluster,
    epoch_samples: int,
    *,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Sizing:
    """Choose how many machines of a cluster a job should have.

    Parameters
    ----------
    profile : Profile
        The model; `batch_size` is what each worker computes in an iteration.
    cluster : Cluster
        The most machines there are, on a switch, a Fat-Tree or rails.
    epoch_samples : int
        Samples of an epoch.
    time_limit : float, optional
        Seconds, of which each candidate gets an equal share of what is left. At least one is
        planned.
    progress : callable, optional
        Called with what is planned next.
    **options
        As for `Problem.from_profile`.

    Raises
    ------
    NotApplicableError
        If the cluster is a BCube, whose machines follow from its ports and levels, or Yan's model
        cannot price the job.
    InvalidInputError
        If the profile has no batch size, or an input cannot mean anything.
    """
    integer(epoch_samples, "epoch_samples", minimum=1)
    batch_size_of(profile)  # refuses epochs that cannot be counted
    deadline = deadline_in(time_limit)
    resized(cluster, cluster.machines)  # refuses what has no other size
    problems = {cluster.machines: Problem.from_profile(profile, cluster, **options)}
    ranking = yan_estimates(profile, problems[cluster.machines], epoch_samples)
    ranked = {one.machines: one for one in ranking}
    found = {}
    for machines in {1, cluster.machines, *_shortlist(ranking)}:
        smaller = resized(cluster, machines)
        iterations = ranked[machines].iterations
        one = Candidate(smaller, iterations, ranked[machines].epoch_ns, None, None)
        try:
            if machines not in problems:
                problems[machines] = Problem.from_profile(profile, smaller, **options)
            one = replace(one, bound_ns=iterations * _bound(problems[machines]))
        except InvalidInputError as error:  # such as an algorithm for powers of two only
            reason = Infeasibility(f"{machines} machines: {error}", (error.path,))
            one = replace(one, result=Result("auto", None, None, None, 0.0, infeasibility=reason))
        found[machines] = one
    return _planned(found, problems, ranking, deadline, progress)


def _shortlist(ranking: Sequence[Estimate]) -> list[int]:
    """Return the best of those with equally many iterations, for the best few of these."""
    best: dict[int, int] = {}
    for one in ranking:
        best.setdefault(one.iterations, one.machines)
    return list(best.values())[:SHORTLIST]


def _planned(
    found: dict[int, Candidate],
    problems: Mapping[int, Problem],
    ranking: tuple[Estimate, ...],
    deadline: Deadline,
    progress: Callable[[str], None] | None,
) -> Sizing:
    """Plan the candidates that may be the best, the most promising first."""
    waiting = sorted(
        (one.bound_ns, machines) for machines, one in found.items() if one.bound_ns is not None
    )
    best: tuple[int, int] | None = None
    timed_out = False
    for place, (bound, machines) in enumerate(waiting):
        if best is not None and best < (bound, machines):
            break
        if best is not None and deadline.passed:
            timed_out = True
            break
        if progress:
            progress(f"{machines} of {max(found)} machines")
        left = deadline.remaining_s
        if left is not None:
            left = max(left / (len(waiting) - place), LEAST_SECONDS)
        result = solve(problems[machines], time_limit=left)
        found[machines] = replace(found[machines], result=result)
        epoch = found[machines].epoch_ns
        if epoch is not None:
            total(epoch, "epoch_samples", "the time of an epoch")
            best = (epoch, machines) if best is None else min(best, (epoch, machines))
    return Sizing(
        tuple(found[machines] for machines in sorted(found)),
        None if best is None else found[best[1]],
        ranking,
        timed_out,
    )


def resized(cluster: Cluster, machines: int) -> Cluster:
    """Return the cluster with fewer machines, plugged into the same switches.

    Parameters
    ----------
    cluster : Cluster
        A cluster on a switch, a Fat-Tree or rails.
    machines : int
        Machines; hosts on rails. At most as many as the cluster has.

    Raises
    ------
    NotApplicableError
        If the cluster is a BCube.
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


def _bound(problem: Problem) -> int:
    """Return what no iteration undercuts: one worker's computation, and what all bytes take."""
    cheapest = least(problem.cluster)
    pushed, pulled = sum(problem.pushed), sum(problem.pulled)
    replicated = cheapest.all_reduce.cost_ns(pushed)
    sharded = cheapest.half.cost_ns(pushed + pulled)
    return max(computation_ns(problem), min(replicated, sharded))
