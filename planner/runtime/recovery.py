"""Going on after a link has failed for good: all ranks live, and plan anew for what is left.

Problem. A link of a BCube fails in the middle of a step. All processes live; every one of them has
learned of it (`planner.runtime.world.watch`). Some may have made updates of that step, or all of
them, and others none.

Method. Ranks meet again in the job's store, over interfaces that work, and make their groups anew.
They find out which links carry nothing any more (`planner.runtime.world.probing`), and say how many
steps are complete; the least number counts, and who is further takes its last step back
(`planner.runtime.optimisers.undo`). Of shards each rank then gets what all the others have
(`planner.runtime.optimisers.whole`), and goes on with other ones, or as a replica. Rank 0 plans for
the damaged network, in the mode that the problem asks for if there is such a plan, and hands the
plan out; all compare hashes of parameters and optimiser state, and go on with the new program.

Guarantee. Training goes on from the last step that was complete on all ranks, with the parameters
and the optimiser state that it left, or it ends with one error on all ranks.

Complexity. One plan, one join, one hash of parameters and state. Source: own.
"""

import json
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import msgspec

from planner import iteration
from planner.bml import Damage
from planner.clusters import Cluster
from planner.errors import CommunicationError, InvalidInputError, PlannerError
from planner.iteration import Problem
from planner.jsonio.decoding import typed
from planner.jsonio.failures import FailedDocument, failed_document, failures_of
from planner.jsonio.iteration_making import answer
from planner.runtime.attaching import attach
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.optimisers.state import contents
from planner.runtime.world.joining import rejoin
from planner.runtime.world.probing import probe
from planner.runtime.world.world import World
from planner.topologies import BCube, Failures

__all__ = ["Recovery", "recover"]


class Recovery(NamedTuple):
    """What a job goes on with.

    Attributes
    ----------
    executor : Executor
        Follows the new plan; `steps` says how many are complete, `world` is the job as joined anew.
    problem : Problem
        What was planned for: the cluster with all that has failed.
    """

    executor: Executor
    problem: Problem


def recover(
    executor: Executor,
    problem: Problem,
    *,
    failures: Failures | None = None,
    time_limit: float | None = None,
) -> Recovery:
    """Go on, after a link has failed for good, from the last step that all ranks have completed.

    Every rank has to call it once it has got the `CommunicationError` of the failure::

        executor = attach(model, plan, optimizer, world, recoverable=True)
        while executor.steps < 1000:
            try:
                inputs, targets = batch(executor.steps)
                criterion(model(inputs), targets).backward()
                executor.step()
                if executor.steps == 1000:
                    executor.finish()
            except CommunicationError:
                executor, problem = recover(executor, problem)

    Parameters
    ----------
    executor : Executor
        What `attach` returned, with ``recoverable=True``. It is closed.
    problem : Problem
        The problem of whole iterations whose plan it followed: the cluster is a BCube.
    failures : Failures, optional
        What has failed, the same on all ranks, beside what they see: interfaces that are down, and
        neighbours that are not reached.
    time_limit : float, optional
        Seconds of planning; by default half the job's time-out, for which the others wait.

    Returns
    -------
    Recovery
        The new executor, and the new problem. Of the step that failed nothing is left but what
        buffers have seen: they become those of rank 0.

    Raises
    ------
    InvalidInputError
        If it is no such executor or problem.
    PlannerError
        If nothing is known to have failed, or there is no plan without it; on all ranks.
    DisagreementError
        If parameters or optimiser states differ between ranks.
    CommunicationError
        If a rank does not come in time.
    """
    complete = executor.complete
    if complete is None:
        raise InvalidInputError("executor", "expected one attached with recoverable=True")
    if executor.world.watch.error is None:
        raise PlannerError("nothing has failed: recover is for after a CommunicationError")
    bcube = _bcube(problem.cluster, executor.world, failures)
    with suppress(CommunicationError):  # which the caller has got
        executor.close()
    world = rejoin(executor.world)
    try:
        steps = min(map(int, world.gather("complete steps", str(complete))))
        executor.roll_back(steps, world)
        failed = _seen(bcube, problem.cluster, world, failures or Failures())
        if isinstance(executor, GradientExecutor):
            problem = replace(problem, modes=("replicated",))
        problem, plan = _replanned(problem, bcube, failed, world, time_limit)
        model, optimizer = executor.model, executor.optimizer
        world.agree("the parameters of the last complete step", contents(executor.parameters))
        resumed = attach(model, plan, optimizer, world, recoverable=True, steps=steps)
    except BaseException as error:
        world.report(error)
        raise
    return Recovery(resumed, problem)


def _bcube(cluster: Cluster, world: World, failures: Failures | None) -> BCube:
    bcube = cluster.topology
    if not isinstance(bcube, BCube):
        raise InvalidInputError("problem", "expected a cluster whose topology is a bcube")
    if cluster.workers != world.size:
        raise InvalidInputError(
            "problem", f"is for {cluster.workers} ranks, the job has {world.size}"
        )
    if failures is not None:
        failures.check(bcube)
        if not failures.servers <= cluster.failed.servers:
            raise InvalidInputError(
                "failures.servers", "a job goes on with all its ranks: start one without them"
            )
    return bcube


def _seen(bcube: BCube, cluster: Cluster, world: World, failures: Failures) -> Failures:
    """Return all that has failed: what was known, what ranks are told, and what they see."""
    world.agree("the failures", repr(failures))
    known = cluster.failed
    told = Failures(known.servers, known.nics | failures.nics, known.switches | failures.switches)
    dead = Damage(bcube, told).down
    seen = probe(world, bcube, cluster.ranks, dead)
    merged = replace(told, nics=told.nics | (seen - dead))
    if merged == known:
        raise PlannerError(
            "all links work, but for those that were known not to: say what has failed (`failures`)"
        )
    return merged


def _replanned(
    problem: Problem, bcube: BCube, failed: Failures, world: World, time_limit: float | None
) -> tuple[Problem, bytes]:
    """Return the problem without what has failed, and rank 0's plan for it."""

    def make() -> str:
        try:
            plan = _plan(_without(problem, failed), time_limit or world.timeout_s / 2)
        except PlannerError as error:
            raise PlannerError(f"there is no plan without what has failed: {error}") from error
        failures = msgspec.to_builtins(failed_document(bcube, failed))
        return json.dumps({"plan": plan, "failed": failures})

    heard = json.loads(world.from_first("the new plan", make))
    agreed = failures_of(bcube, typed(heard["failed"], FailedDocument))
    return _without(problem, agreed), heard["plan"].encode()


def _without(problem: Problem, failed: Failures) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, failed=failed))


def _plan(problem: Problem, time_limit: float) -> str:
    result = iteration.solve(problem, time_limit=time_limit)
    if result.infeasibility is not None and "replicated" not in problem.modes:
        # Around failures ranks need not have equal shares.
        problem = replace(problem, modes=("replicated",))
        result = iteration.solve(problem, time_limit=time_limit)
    if result.infeasibility is not None:
        raise PlannerError(result.infeasibility.reason)
    return msgspec.json.encode(answer(problem, result)).decode()
