"""Encode plans of whole iterations as JSON answers."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType, structs

from planner.families import drizzle
from planner.families.caramel.evaluation import TransferTimes
from planner.families.iteration import (
    Alternative,
    Evaluation,
    Explanation,
    Plan,
    Problem,
    Transfer,
    explain,
    network_bound,
)
from planner.families.iteration.evaluation import cost_of
from planner.families.iteration.sizing import Sizing
from planner.families.iteration.synchronisation import recipe_on
from planner.jsonio.answer_base import base_fields
from planner.jsonio.control import target_answer
from planner.jsonio.iteration_answer import (
    AlgorithmAnswer,
    AlternativeAnswer,
    CandidateAnswer,
    ChangeAnswer,
    IterationAnswer,
    MemoryAnswer,
    RunnerUp,
    SchedulingAnswer,
    SizingAnswer,
    SynchronisationAnswer,
    TransferAnswer,
    WhyAnswer,
)
from planner.jsonio.programs import program_answer
from planner.jsonio.transfers import OpTimes, op_times, sent
from planner.jsonio.types import as_document
from planner.model.validation import MAX_TOTAL
from planner.solving.deadline import NEVER, Deadline
from planner.solving.result import Result


def answer(
    problem: Problem,
    result: Result[Plan, Evaluation],
    alternatives: Sequence[Alternative] = (),
    *,
    model: str = "",
    deadline: Deadline = NEVER,
) -> IterationAnswer:
    """Return the JSON form of a result.

    `alternatives` are the candidates from which the plan was chosen; `deadline` ends the search for
    explanations.
    """
    cluster = problem.cluster
    known: dict[str, Any] = {
        **base_fields(IterationAnswer, result),
        "model": model,
        "cluster": cluster.name,
        "machines": cluster.machines,
        "workers": cluster.workers,
        "alternatives": tuple(map(_alternative, alternatives)) if alternatives else UNSET,
        "left_out": dict(problem.left_out) if problem.left_out else UNSET,
        "target": target_answer(problem.target),
    }
    plan = result.plan
    if plan is None:
        return IterationAnswer(**known)
    evaluation = result.evaluation
    assert evaluation is not None
    schedule = _schedule(problem, plan, evaluation)
    names = [parameter.name for parameter in problem.graph.parameters]
    computed, alone = evaluation.computation_ns, problem.base.windows.compute_ns
    return as_document(
        IterationAnswer,
        evaluation,
        **known,
        network_bound_ns=network_bound(problem, plan),
        synchronisation=_synchronisation(problem, plan),
        op_order=tuple(row.op for row in schedule),
        transfers=tuple(
            _transfer(problem, plan, names, transfer, times)
            for transfer, times in zip(plan.transfers, evaluation.times, strict=True)
        ),
        barrier=plan.barrier,
        slowed_ns=UNSET if problem.interference.is_none else computed - alone,
        backward_ns=evaluation.iteration.backward[-1][1],
        schedule=schedule,
        parameter_bytes=_sizes(problem, problem.pushed),
        pull_bytes=UNSET if problem.pulled == problem.pushed else _sizes(problem, problem.pulled),
        memory=_memory(problem, plan),
        why=_why(explain(problem, plan, alternatives, deadline, evaluation))
        if alternatives
        else UNSET,
    )


def sizing_answer(samples: int, sizing: Sizing) -> SizingAnswer:
    """Return the JSON form of the number of machines chosen for epochs of `samples` samples."""
    return SizingAnswer(
        epoch_samples=samples,
        at_most=max(candidate.machines for candidate in sizing.candidates),
        proven=not sizing.timed_out,
        candidates=tuple(
            as_document(
                CandidateAnswer,
                candidate,
                workers=candidate.cluster.workers,
                bound_epoch_ns=candidate.bound_ns,
            )
            for candidate in sizing.candidates
        ),
    )


def scheduling_answer(result: Result[drizzle.Plan, drizzle.Evaluation]) -> SchedulingAnswer:
    """Return the JSON form of a driver's group scheduling."""
    plan, evaluation = result.plan, result.evaluation
    if plan is None or evaluation is None:
        none = dict.fromkeys(("group_size", "iteration_ns", "overhead", "speedup"))
        return as_document(SchedulingAnswer, result.infeasibility, **none)
    return as_document(SchedulingAnswer, evaluation, plan)


def _alternative(alternative: Alternative) -> AlternativeAnswer:
    return as_document(
        AlternativeAnswer,
        alternative,
        alternative.synchronisation,
        alternative.infeasibility,
        objective_ns=_counted(alternative.objective_ns),
        lower_bound_ns=_counted(alternative.lower_bound_ns),
        transfers=None if alternative.plan is None else len(alternative.plan.transfers),
    )


def _counted(time_ns: int | None) -> int | None:
    """Return a time, or None if it exceeds 63 bits."""
    return time_ns if time_ns is not None and time_ns <= MAX_TOTAL else None


def _why(explanation: Explanation) -> WhyAnswer:
    second, answered = explanation.runner_up, None
    if second is not None and _counted(second.objective_ns) is not None:
        changes = tuple(as_document(ChangeAnswer, change) for change in explanation.changes)
        late = explanation.timed_out or UNSET
        answered = as_document(
            RunnerUp, second, second.synchronisation, wins_if=changes, timed_out=late
        )
    return as_document(WhyAnswer, explanation, runner_up=answered)


def _synchronisation(problem: Problem, plan: Plan) -> SynchronisationAnswer:
    names = dict.fromkeys(name for name, _ in plan.used)
    own, *others = (
        AlgorithmAnswer(algorithm=name, program=program_answer(recipe_on(problem.cluster, name)))
        for name in names
    )
    return SynchronisationAnswer(
        **structs.asdict(own), mode=plan.mode, others=tuple(others) if others else UNSET
    )


def _memory(problem: Problem, plan: Plan) -> MemoryAnswer | UnsetType:
    if problem.footprint is None:
        return UNSET
    resident = problem.footprint.static_bytes(plan.mode, problem.cluster.workers)
    largest = max(transfer.size_bytes for transfer in plan.transfers)
    return MemoryAnswer(
        needed_bytes=resident + largest, available_bytes=problem.cluster.worker_memory_bytes
    )


def _sizes(problem: Problem, sizes: Sequence[int]) -> dict[str, int]:
    return {
        parameter.name: size
        for parameter, size in zip(problem.graph.parameters, sizes, strict=True)
    }


def _schedule(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[OpTimes, ...]:
    iteration = evaluation.iteration
    indices = (*plan.backward_orders[0], *plan.forward_order)
    return op_times(problem.graph, indices, (*iteration.backward, *iteration.forward))


def _transfer(
    problem: Problem, plan: Plan, names: Sequence[str], transfer: Transfer, times: TransferTimes
) -> TransferAnswer:
    sizes = problem.pulled if transfer.kind == "pull" else problem.pushed
    startup = cost_of(problem.costs, plan, transfer).startup_ns
    return as_document(
        TransferAnswer,
        times,
        **sent(transfer.parts, names, sizes),
        kind=transfer.kind,
        bytes=transfer.size_bytes,
        startup_end_ns=min(times.start_ns + startup, times.end_ns),
        algorithm=transfer.algorithm or UNSET,
        depth=transfer.depth if transfer.depth > 1 else UNSET,
    )
