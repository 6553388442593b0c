"""The JSON requests of whole iterations, and how they are answered."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, Unpack

from msgspec import UNSET, Meta, UnsetType, field, structs

from planner.families import iteration
from planner.families.caramel.for_target import BUCKETS
from planner.families.iteration import Alternative, Evaluation, Plan, Problem
from planner.families.iteration.for_target import exported
from planner.families.iteration.measured import assumed_startups, notes_of
from planner.families.iteration.sizing import Sizing, choose_size, group_size
from planner.jsonio.answer_base import of_profile
from planner.jsonio.clusters import ClusterDocument, cluster_of
from planner.jsonio.control import TargetRequest, method_names, report_result, targets_answer
from planner.jsonio.interfaces import Interface
from planner.jsonio.iteration_answer import IterationAnswer, timeline
from planner.jsonio.iteration_making import answer, scheduling_answer, sizing_answer
from planner.jsonio.profiles import ProfileDocument, profile_of
from planner.jsonio.types import (
    PositiveRate,
    PositiveSize,
    PositiveTime,
    Rate,
    Size,
    fields_of,
    says,
    unset_to_none,
)
from planner.jsonio.what_if import (
    OutlookField,
    WhatIfRequest,
    advice_answer,
    prospect_answer,
    regret_answers,
    requested_scenarios,
    unless_tied,
)
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError
from planner.model.profiles import Profile
from planner.model.validation import MAX_VALUE, inside, one_of
from planner.solving.advice import advise
from planner.solving.deadline import NEVER, Control, Deadline
from planner.solving.methods import REPLAN
from planner.solving.result import Result
from planner.solving.targets import PLANNER, TARGETS, Target, target_of
from planner.solving.what_if import regrets, robust_plan

MethodName = Annotated[
    str,
    Meta(extra_json_schema={"enum": method_names([*iteration.METHODS, BUCKETS, *TARGETS])}),
]
Algorithm = Annotated[str, Meta(extra_json_schema={"enum": list(iteration.KNOWN)})]


class IterationRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks how one training iteration of a model should communicate on a cluster."""

    problem: Literal["iteration"]
    profile: ProfileDocument
    cluster: ClusterDocument
    method: MethodName = "auto"
    computation: Annotated[
        PositiveRate | UnsetType, says("what all times of computation are multiplied by")
    ] = field(name="computation_scale", default=UNSET)
    optimiser: Annotated[
        Rate | UnsetType, says("bytes of optimiser state for each of parameters")
    ] = field(name="optimiser_ratio", default=UNSET)
    activation_bytes: (
        Annotated[Size, says("memory for activations, in place of the profile's")] | UnsetType
    ) = UNSET
    ignore_memory: Annotated[bool, says("plan as if memory did not bind")] = False
    max_transfer_bytes: PositiveSize | UnsetType = UNSET
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] | UnsetType = UNSET
    modes: (
        Annotated[tuple[Literal["replicated", "sharded"], ...], Meta(min_length=1)] | UnsetType
    ) = UNSET
    op_order: tuple[str, ...] | UnsetType = UNSET
    element_bytes: PositiveSize = 1
    seed: Annotated[int, Meta(ge=0, le=MAX_VALUE)] = 0
    epoch_samples: (
        Annotated[
            int,
            Meta(ge=1, le=MAX_VALUE, description="choose the machines for the shortest epoch"),
        ]
        | UnsetType
    ) = UNSET
    max_overhead: (
        Annotated[float, Meta(gt=0, lt=1, description="largest share of scheduling")] | UnsetType
    ) = UNSET
    max_group_ns: PositiveTime | UnsetType = UNSET
    outlook: OutlookField = UNSET
    target: TargetRequest = PLANNER

    def to_problem(self) -> Problem:
        """Return the typed problem, on all machines of the cluster."""
        cluster = cluster_of(self.cluster, "cluster")
        return Problem.from_profile(self.to_profile(), cluster, **self.options())

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `Problem.from_profile`."""
        names = (
            *("computation", "optimiser", "activation_bytes", "ignore_memory"),
            *("max_transfer_bytes", "algorithms", "modes", "op_order", "element_bytes", "seed"),
        )
        return {**fields_of(self, names), "target": target_of(self.target)}

    def to_profile(self) -> Profile:
        """Return the typed profile; errors carry a path into ``profile``."""
        with inside("profile"):
            profile = profile_of(self.profile)
            profile.dataflow()  # raises an error for a model without gradients
        return profile


def run(request: IterationRequest, **control: Unpack[Control[Any]]) -> IterationAnswer:
    """Answer one request; `control` is that of the family's `solve`."""
    return planned(
        request.to_profile(),
        cluster_of(request.cluster, "cluster"),
        request.options(),
        method=request.method,
        time_limit=unset_to_none(request.time_limit_s),
        epoch_samples=unset_to_none(request.epoch_samples),
        limits=fields_of(request, ("max_overhead", "max_group_ns")),
        regret=request.regret,
        likely=fields_of(request, ("outlook", "scenarios", "percentile")),
        **control,
    ).answer


class Planned(NamedTuple):
    """A problem, its plan, the alternatives that the plan was chosen from, and the answer."""

    problem: Problem
    result: Result[Plan, Evaluation]
    alternatives: tuple[Alternative, ...]
    answer: IterationAnswer


def planned(
    profile: Profile,
    cluster: Cluster,
    options: Mapping[str, Any],
    *,
    method: str = "auto",
    time_limit: float | None = None,
    epoch_samples: int | None = None,
    limits: Mapping[str, Any] | None = None,
    regret: bool = False,
    unhurried: bool = False,
    likely: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
    **control: Unpack[Control[Plan]],
) -> Planned:
    """Return the plan and the answer for a profile on a cluster.

    `options` are keyword arguments of `Problem.from_profile`; `time_limit` is in seconds. With
    `epoch_samples` the number of machines is chosen as well, for epochs of this many samples.
    `limits` holds `max_overhead` and `max_group_ns` of `planner.families.iteration.sizing`;
    `likely` holds `outlook`, `scenarios` and `percentile` of a request. With `regret`, half of the
    time limit is kept for other scenarios; with `unhurried` they have a limit of their own, and
    explanations have no limit. `progress` is called with a text before each stage.
    """
    cancel = control.get("cancel")
    target: Target | None = options.get("target")
    if target is None:
        one_of(method, (*iteration.METHODS, REPLAN), "method")
    elif epoch_samples is not None:
        raise InvalidInputError("epoch_samples", f"not with target {target.name}")
    if limits and cluster.scheduling is None:
        raise InvalidInputError(next(iter(limits)), "needs cluster.scheduling too")
    end = Deadline.of(time_limit, cancel)
    if time_limit is not None and regret and not unhurried:
        time_limit /= 2
    deadline = Deadline.of(time_limit, cancel)
    sizing: Sizing | None = None
    if epoch_samples is not None:
        if method not in ("auto", iteration.JOINT):
            raise InvalidInputError(
                "epoch_samples",
                f"not with method {method}, only with auto, which is {iteration.JOINT}",
            )
        sizing = choose_size(
            profile,
            cluster,
            epoch_samples,
            time_limit=None if time_limit is None else time_limit / 2,
            cancel=cancel,
            progress=progress,
            **options,
        )
        cluster = sizing.chosen.cluster if sizing.chosen else cluster
    problem, prospect = Problem.from_profile(profile, cluster, **options), None
    known = any(op.spread_ns for op in problem.graph.ops)
    scenario_set = requested_scenarios(
        likely or {},
        lacks="" if known else "layers of profile with spreads, or scenarios",
        method=method,
        chooses=iteration.JOINT,
        target=target,
    )
    scenario_set = unless_tied(scenario_set, control.get("tie_break"), likely or {})
    limit = deadline.share(1)
    if target is None and method in ("auto", iteration.JOINT):
        sized = sizing.chosen if sizing and control.get("start") is None else None
        if sized and sized.result and (deadline.passed or not sized.result.timed_out):
            result, alternatives = sized.result, sized.alternatives  # searched to the end
            report_result(result, control)
        else:
            result, alternatives = iteration.solve_all(
                problem, time_limit=limit, progress=progress, **control
            )
        if scenario_set is not None:
            if progress:
                progress("for scenarios")
            warnings = result.warnings
            others = [option.plan for option in alternatives if option.plan is not None]
            family, rest = iteration.ITERATION, deadline.share(1)
            result, prospect = robust_plan(family, problem, scenario_set, rest, result, others)
            result = replace(result, warnings=warnings)
            report_result(result, control)
    else:
        alternatives = ()
        result = iteration.solve(problem, method=method, time_limit=limit, **control)
    if unhurried:
        end, deadline = Deadline.of(time_limit, cancel), NEVER
    more: dict[str, Any] = {"prospect": prospect_answer(prospect, result.objective_ns or 0)}
    if cluster.scheduling is not None and result.objective_ns:
        groups = group_size(cluster, result.objective_ns, **(limits or {}))
        more["scheduling"] = scheduling_answer(groups)
    if epoch_samples is not None and sizing is not None:
        more["sizing"] = sizing_answer(epoch_samples, sizing)
    if alternatives:
        more["advice"] = advice_answer(advise(iteration.ITERATION, problem, result, end))
    if result.plan and regret:
        table = regrets(iteration.ITERATION, problem, result.plan, end, progress)
        more["regret"] = regret_answers(table)
    if result.plan:
        more["targets"] = targets_answer(exported(problem, result.plan, end))
    answered = answer(problem, result, alternatives, model=profile.name, deadline=deadline)
    answered = structs.replace(answered, **more)
    unsure = (*cluster.memory_caveats, *caveats(problem, result.plan))
    return Planned(problem, result, alternatives, of_profile(answered, profile, unsure))


def caveats(problem: Problem, plan: iteration.Plan | None) -> tuple[str, ...]:
    """Return warnings about assumed costs."""
    if plan is None:
        return ()
    notes = notes_of(problem.cluster, plan)
    if not assumed_startups(problem.cluster) or problem.cluster.workers == 1:
        return notes
    return ("start-ups are assumed, not measured", *notes)


INTERFACE = Interface(
    family=iteration.ITERATION,
    request=IterationRequest,
    answer=IterationAnswer,
    to_answer=lambda case, result, _: answer(case.problem, result, model=case.title),
    view=timeline,
    run=run,
)
