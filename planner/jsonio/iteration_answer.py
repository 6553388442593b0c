"""The JSON face of whole iterations: what is answered."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.costs import AffineCost
from planner.iteration import (
    Alternative,
    Evaluation,
    Explanation,
    Plan,
    Problem,
    Transfer,
    evaluate,
    explain,
    network_bound,
)
from planner.iteration.evaluation import cost_of
from planner.iteration.scheduling import Groups
from planner.iteration.sizing import Sizing
from planner.jsonio.caramel import OpTimes
from planner.jsonio.types import Moment, PositiveSize, Size
from planner.results import Result

__all__ = [
    "AlternativeAnswer",
    "CandidateAnswer",
    "IterationAnswer",
    "SchedulingAnswer",
    "SizingAnswer",
    "TransferAnswer",
    "Why",
    "answer",
]

Names = Annotated[tuple[str, ...], Meta(min_length=1)]
Mode = Literal["replicated", "sharded"]
Count = Annotated[int, Meta(ge=1)]


class TransferAnswer(Struct, frozen=True, kw_only=True):
    """One transfer; times count from the start of the backward pass.

    An all-reduce sums up on all workers; a push sums up, each worker its share; a pull hands the
    updated shares out. It is due when the forward pass would need it if that never waited.
    """

    kind: Literal["all_reduce", "push", "pull"]
    parameters: Names
    bytes: PositiveSize
    ready_ns: Moment
    start_ns: Moment
    startup_end_ns: Moment
    end_ns: Moment
    due_ns: Moment
    part: (
        Annotated[
            dict[str, tuple[Size, Size]],
            Meta(description="[first byte, byte after the last] of parameters sent in parts"),
        ]
        | UnsetType
    ) = UNSET


class CostAnswer(Struct, frozen=True, kw_only=True):
    """What a transfer costs: ``startup_ns + bytes · ns_per_byte``."""

    startup_ns: Size
    ns_per_byte: float


class SynchronisationAnswer(Struct, frozen=True, kw_only=True):
    """The chosen way of synchronising, and what its transfers cost."""

    algorithm: str
    mode: Mode
    steps: Annotated[int, Meta(ge=0, description="of an all-reduce")]
    all_reduce: CostAnswer
    push: CostAnswer
    pull: CostAnswer


class AlternativeAnswer(Struct, frozen=True, kw_only=True):
    """The best plan of one algorithm and one mode, or why there is none."""

    algorithm: str
    mode: Mode
    objective_ns: Moment | None
    lower_bound_ns: Moment | None
    transfers: Annotated[int, Meta(ge=0)] | None
    reason: str | UnsetType = UNSET


class ChangeAnswer(Struct, frozen=True, kw_only=True):
    """What would make the runner-up the shorter one, with both plans as they are."""

    what: Literal["startup", "bandwidth"]
    factor: Annotated[float, Meta(gt=0)]


class RunnerUp(Struct, frozen=True, kw_only=True):
    """The next best way of synchronising that costs something else."""

    algorithm: str
    mode: Mode
    objective_ns: Moment
    wins_if: tuple[ChangeAnswer, ...]


class Why(Struct, frozen=True, kw_only=True):
    """Where the time goes, and what would have to change for another plan to win."""

    computation_ns: Moment
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: RunnerUp | None


class MemoryAnswer(Struct, frozen=True, kw_only=True):
    """What each worker has to remember under the plan, with its largest transfer."""

    needed_bytes: Size
    available_bytes: Size | None


class CandidateAnswer(Struct, frozen=True, kw_only=True):
    """A number of machines that was considered."""

    machines: Count
    workers: Count
    iterations: Count
    yan_epoch_ns: Annotated[int, Meta(ge=0, description="ns of an epoch by Yan's model")]
    bound_epoch_ns: Moment | None
    epoch_ns: Annotated[int, Meta(ge=0, description="ns by the plan")] | None


class SizingAnswer(Struct, frozen=True, kw_only=True):
    """How many machines were chosen, and among which numbers."""

    epoch_samples: Count
    at_most: Count
    candidates: tuple[CandidateAnswer, ...]


class SchedulingAnswer(Struct, frozen=True, kw_only=True):
    """How many iterations the engine's driver should schedule at once."""

    group_size: Count | None
    iteration_ns: Moment | None
    overhead: Annotated[float, Meta(description="share of an iteration")] | None
    speedup: Annotated[float, Meta(description="over groups of one")] | None
    reason: str | UnsetType = UNSET
    binding: tuple[str, ...] | UnsetType = UNSET


class IterationAnswer(Struct, frozen=True, kw_only=True):
    """The chosen plan, what else there is, the bounds and the timeline."""

    problem: Literal["iteration"] = "iteration"
    method: str
    status: Literal["optimal", "feasible", "infeasible", "time_limit"]
    objective_ns: Moment | None
    lower_bound_ns: Moment | None
    network_bound_ns: (
        Annotated[int, Meta(ge=0, description="ns that no synchronisation algorithm undercuts")]
        | UnsetType
    ) = UNSET
    runtime_s: float
    model: str
    cluster: str
    machines: Count
    workers: Count
    synchronisation: SynchronisationAnswer | UnsetType = UNSET
    op_order: Names | UnsetType = UNSET
    transfers: Annotated[tuple[TransferAnswer, ...], Meta(min_length=1)] | UnsetType = UNSET
    barrier: bool = False
    iteration_ns: Moment | UnsetType = UNSET
    backward_ns: Moment | UnsetType = UNSET
    computation_ns: Moment | UnsetType = UNSET
    communication_ns: Moment | UnsetType = UNSET
    startup_ns: Moment | UnsetType = UNSET
    stall_ns: Moment | UnsetType = UNSET
    schedule: Annotated[tuple[OpTimes, ...], Meta(min_length=1)] | UnsetType = UNSET
    memory: MemoryAnswer | UnsetType = UNSET
    why: Why | UnsetType = UNSET
    alternatives: tuple[AlternativeAnswer, ...] | UnsetType = UNSET
    left_out: dict[str, str] | UnsetType = UNSET
    sizing: SizingAnswer | UnsetType = UNSET
    scheduling: SchedulingAnswer | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    binding: tuple[str, ...] | UnsetType = UNSET


def answer(
    problem: Problem,
    result: Result[Plan],
    alternatives: Sequence[Alternative] = (),
    *,
    model: str = "",
    samples: int | None = None,
    sizing: Sizing | None = None,
    groups: Groups | None = None,
) -> IterationAnswer:
    """Return the JSON form of a result.

    Parameters
    ----------
    problem : Problem
        What was asked.
    result : Result
        The plan.
    alternatives : sequence of Alternative
        What it was chosen from, if it was.
    model : str
        Name of the model.
    samples, sizing : int, Sizing, optional
        Samples of an epoch, and how the number of machines was chosen.
    groups : Groups, optional
        How the engine's driver schedules iterations.
    """
    cluster = problem.cluster
    known: dict[str, Any] = {
        "method": result.method,
        "status": result.status.value,
        "objective_ns": result.objective_ns,
        "lower_bound_ns": result.lower_bound_ns,
        "runtime_s": result.runtime_s,
        "model": model,
        "cluster": cluster.name,
        "machines": cluster.machines,
        "workers": cluster.workers,
        "alternatives": tuple(map(_alternative, alternatives)) if alternatives else UNSET,
        "left_out": dict(problem.left_out) if problem.left_out else UNSET,
        "sizing": _sizing(samples, sizing) if samples and sizing else UNSET,
        "scheduling": _scheduling(groups) if groups else UNSET,
    }
    plan = result.plan
    if plan is None:
        assert result.infeasibility is not None
        why_not = result.infeasibility
        return IterationAnswer(**known, reason=why_not.reason, binding=why_not.binding)
    evaluation = evaluate(problem, plan)
    schedule = _schedule(problem, plan, evaluation)
    return IterationAnswer(
        **known,
        network_bound_ns=network_bound(problem, plan),
        synchronisation=_synchronisation(problem, plan),
        op_order=tuple(row.op for row in schedule),
        transfers=tuple(
            _transfer(problem, plan, one, *times)
            for one, times in zip(plan.transfers, evaluation.times, strict=True)
        ),
        barrier=plan.barrier,
        iteration_ns=evaluation.iteration_ns,
        backward_ns=evaluation.iteration.backward[-1][1],
        computation_ns=evaluation.computation_ns,
        communication_ns=evaluation.communication_ns,
        startup_ns=evaluation.startup_ns,
        stall_ns=evaluation.stall_ns,
        schedule=schedule,
        memory=_memory(problem, plan),
        why=_why(explain(problem, plan, alternatives)) if alternatives else UNSET,
    )


def _sizing(samples: int, sizing: Sizing) -> SizingAnswer:
    return SizingAnswer(
        epoch_samples=samples,
        at_most=max(one.machines for one in sizing.candidates),
        candidates=tuple(
            CandidateAnswer(
                machines=one.machines,
                workers=one.cluster.workers,
                iterations=one.iterations,
                yan_epoch_ns=one.estimate_ns,
                bound_epoch_ns=one.bound_ns,
                epoch_ns=one.epoch_ns,
            )
            for one in sizing.candidates
        ),
    )


def _scheduling(groups: Groups) -> SchedulingAnswer:
    result, evaluation = groups.result, groups.evaluation
    why_not = result.infeasibility
    return SchedulingAnswer(
        group_size=None if result.plan is None else result.plan.group_size,
        iteration_ns=None if evaluation is None else evaluation.iteration_ns,
        overhead=None if evaluation is None else float(evaluation.overhead),
        speedup=None if evaluation is None else float(evaluation.speedup),
        reason=UNSET if why_not is None else why_not.reason,
        binding=UNSET if why_not is None else why_not.binding,
    )


def _alternative(one: Alternative) -> AlternativeAnswer:
    return AlternativeAnswer(
        algorithm=one.synchronisation.algorithm,
        mode=one.mode,
        objective_ns=one.objective_ns,
        lower_bound_ns=one.lower_bound_ns,
        transfers=None if one.plan is None else len(one.plan.transfers),
        reason=UNSET if one.infeasibility is None else one.infeasibility.reason,
    )


def _why(explanation: Explanation) -> Why:
    other = explanation.runner_up
    return Why(
        computation_ns=explanation.computation_ns,
        exposed_bytes_ns=explanation.exposed_bytes_ns,
        exposed_startup_ns=explanation.exposed_startup_ns,
        runner_up=None
        if other is None or other.objective_ns is None
        else RunnerUp(
            algorithm=other.synchronisation.algorithm,
            mode=other.mode,
            objective_ns=other.objective_ns,
            wins_if=tuple(
                ChangeAnswer(what=one.what, factor=one.factor) for one in explanation.changes
            ),
        ),
    )


def _synchronisation(problem: Problem, plan: Plan) -> SynchronisationAnswer:
    one = problem.synchronisation(plan.algorithm)
    half = _cost(one.half)
    return SynchronisationAnswer(
        algorithm=one.algorithm,
        mode=plan.mode,
        steps=one.steps,
        all_reduce=_cost(one.all_reduce),
        push=half,
        pull=half,
    )


def _cost(cost: AffineCost) -> CostAnswer:
    return CostAnswer(startup_ns=cost.startup_ns, ns_per_byte=float(cost.ns_per_byte))


def _memory(problem: Problem, plan: Plan) -> MemoryAnswer | UnsetType:
    if problem.footprint is None:
        return UNSET
    resident = problem.footprint.resident_bytes(plan.mode, problem.cluster.workers)
    largest = max(one.size_bytes for one in plan.transfers)
    return MemoryAnswer(
        needed_bytes=resident + largest, available_bytes=problem.cluster.worker_memory_bytes
    )


def _schedule(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[OpTimes, ...]:
    ops, iteration = problem.graph.ops, evaluation.iteration
    indices = (*plan.backward_orders[0], *plan.forward_order)
    spans = (*iteration.backward, *iteration.forward)
    return tuple(
        OpTimes(op=ops[index].name, phase=ops[index].phase, start_ns=start, end_ns=end)
        for index, (start, end) in zip(indices, spans, strict=True)
    )


def _transfer(
    problem: Problem, plan: Plan, one: Transfer, ready: int, start: int, end: int, due: int
) -> TransferAnswer:
    parameters = problem.graph.parameters
    sizes = problem.pulled if one.kind == "pull" else problem.pushed
    cut: dict[str, tuple[int, int]] = {}
    for index, first, stop in one.parts:
        if stop - first < sizes[index]:
            name = parameters[index].name
            low, high = cut.get(name, (first, stop))
            cut[name] = (min(low, first), max(high, stop))
    startup = cost_of(problem, plan.algorithm, one.kind).startup_ns
    return TransferAnswer(
        kind=one.kind,
        parameters=tuple(dict.fromkeys(parameters[part.parameter].name for part in one.parts)),
        bytes=one.size_bytes,
        ready_ns=ready,
        start_ns=start,
        startup_end_ns=min(start + startup, end),
        end_ns=end,
        due_ns=due,
        part=cut or UNSET,
    )
