"""A plan for the ranks that are there, as after a restart with fewer or more of them.

Problem. torchrun starts a job again, with other ranks than before. The plan it had is for those.

Method. Of a profile, the ranks time their network, and what is planned is the transfer of gradients
over it as measured; of a problem of whole iterations, the cluster gets as many workers. Rank 0
plans and hands the plan out.

Guarantee. All ranks have the same problem, which is for as many ranks as there are, and the same
plan. Complexity. That of a sweep of the network, of planning, and of a message a rank. Source. Own.
"""

from dataclasses import replace
from fractions import Fraction

from planner import caramel, iteration
from planner.costs import AffineCost, DepthCost, TableCost
from planner.errors import PlannerError
from planner.iteration.resizing import resized
from planner.profiles import Profile
from planner.programs import digest
from planner.runtime.following import handed_out
from planner.runtime.measuring.courses import Plan, Planned, Problem
from planner.runtime.measuring.sweep import measure_network
from planner.runtime.world.world import World
from planner.sweeps import ELEMENT_BYTES, fit_network, sweep_sizes

__all__ = ["plan_for"]

_LARGEST = 4 * 10**6
_REPETITIONS = 5


def plan_for(
    world: World, job: Profile | iteration.Problem, *, time_limit: float | None = None
) -> Planned:
    """Return a problem and a plan for the ranks that are there.

    Every rank has to call it, whenever the job starts::

        world = join()
        plan = plan_for(world, profile)
        executor = attach(model, plan, optimizer, world, steps=steps)
        following = follow(executor, plan)

    Parameters
    ----------
    world : World
        What `join` returned.
    job : Profile or iteration.Problem
        The model as profiled: the network is timed, for which ranks send. Or a problem for any
        number of workers, whose cluster's numbers are taken as they are; its plan is replicated.
    time_limit : float, optional
        Seconds of planning, for which all ranks wait; by default half the job's time-out.

    Returns
    -------
    Planned
        The problem and its plan, as `attach` and `follow` take them.

    Raises
    ------
    InvalidInputError
        If the cluster's topology has no such number of workers.
    DisagreementError
        If the model's times or sizes are not the same on all ranks: read them from one file.
    PlannerError
        If there is no plan; on all ranks.
    CommunicationError
        If a rank does not take part in time.
    """
    limit = time_limit or world.timeout_s / 2
    if isinstance(job, Profile):
        problem: Problem = caramel.Problem.from_profile(
            job, _measured(world, job), workers=world.size
        )
    else:
        with world.refusing():
            problem = replace(resized(job, world.size), modes=("replicated",))
    world.agree("the problem", digest(problem.graph.ops, problem.graph.parameters))
    plan = handed_out(world, "the plan", lambda: _solved(problem, limit))
    return Planned(problem, plan)


def _measured(world: World, profile: Profile) -> AffineCost | TableCost | DepthCost:
    """Return what an all-reduce takes among the ranks that are there."""
    if world.size == 1:
        return AffineCost(0, Fraction(0))
    whole = profile.parameter_bytes // ELEMENT_BYTES * ELEMENT_BYTES
    sizes = sweep_sizes(max(min(whole, _LARGEST), 2**10))
    cost = fit_network(measure_network(world, sizes=sizes, repetitions=_REPETITIONS)).cost("table")
    assert cost is not None
    return cost


def _solved(problem: Problem, time_limit: float) -> Plan:
    if isinstance(problem, caramel.Problem):
        planned = caramel.solve(problem, time_limit=time_limit).plan
        assert planned is not None
        return planned
    result = iteration.solve(problem, time_limit=time_limit)
    if result.infeasibility is not None:
        raise PlannerError(f"there is no plan for these ranks: {result.infeasibility.reason}")
    assert result.plan is not None
    return result.plan
