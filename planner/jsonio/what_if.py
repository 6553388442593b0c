"""Regret and scenarios: fields of requests and answers about a plan's cost with other numbers.

Each family whose problems can be perturbed takes them in the same form: its request is a
`WhatIfRequest`, and its `run` step is `planned`.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Unpack

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from planner.jsonio.answer_base import AnswerBase, warned
from planner.jsonio.control import (
    Controlled,
    ExportedAnswer,
    TargetAnswer,
    report_result,
    without_start,
)
from planner.jsonio.interfaces import Interface
from planner.jsonio.types import (
    Moment,
    PositiveRate,
    Rate,
    as_dataclass,
    as_document,
    fields_of,
    says,
    unset_to_none,
)
from planner.model.errors import InvalidInputError
from planner.model.validation import inside
from planner.solving.advice import WORTH, Advice
from planner.solving.compare import Case
from planner.solving.deadline import Control, Deadline
from planner.solving.family import Family
from planner.solving.result import EvaluationT, PlanT, Result
from planner.solving.scenarios import (
    OBJECTIVES,
    ExpectedCost,
    Part,
    Scenario,
    ScenarioSet,
    measured,
)
from planner.solving.targets import Target
from planner.solving.what_if import Regret, regrets, robust_plan

# ---
# The JSON form of scenarios, of the stochastic objective, and of a plan's expected cost.


class ScenarioDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Perturbed numbers, and the weight of the scenario."""

    computation: Annotated[
        PositiveRate | UnsetType, says("times of computation are multiplied by; or 1")
    ] = UNSET
    startup: Annotated[Rate | UnsetType, says("start-up costs are multiplied by; or 1")] = UNSET
    bandwidth: Annotated[
        PositiveRate | UnsetType, says("what the network carries, relatively; or 1")
    ] = UNSET
    late: Annotated[
        Rate | UnsetType, says("share of the backward pass by which the last rank falls behind")
    ] = UNSET
    spread: Annotated[
        Rate | UnsetType, says("of their measured spreads, how many ops of part are late; or 0")
    ] = UNSET
    part: Annotated[
        Part | UnsetType, says("what is late: all, a pass, a third of the backward pass")
    ] = UNSET
    shared: Annotated[
        bool | UnsetType, says("whether all channels carry one transfer at a time; or false")
    ] = UNSET
    weight: Annotated[
        PositiveRate | UnsetType, says("how likely, relative to the others; or 1")
    ] = UNSET


class ProspectAnswer(Struct, frozen=True, kw_only=True):
    """Expected cost of a plan over several scenarios, compared with the usual plan."""

    value_ns: Annotated[float, Meta(ge=0, description="mean or percentile of an iteration")]
    lower_bound_ns: Annotated[float, Meta(ge=0, description="no plan in this op order has less")]
    usual_value_ns: Annotated[float, Meta(ge=0, description="the same of the usual plan")]
    usual_ns: Moment
    gain: Annotated[float, Meta(ge=0, description="usual_value_ns over value_ns")]
    loss: Annotated[float, Meta(ge=0, description="objective_ns over usual_ns")]


Percentile = Annotated[
    Fraction,
    Meta(
        description="percentile of the times in the scenarios, by weight",
        extra_json_schema={"exclusiveMinimum": 0, "maximum": 100},
    ),
]
OutlookField = (
    Annotated[
        Literal["nominal", "mean", "p90"],
        says(
            "what counts: times as they are, or what measured spreads make of them; "
            "by default the mean where method auto knows spreads"
        ),
    ]
    | UnsetType
)


def requested_scenarios(
    given: Mapping[str, Any],
    *,
    lacks: str,
    method: str,
    chooses: str,
    target: Target | None,
    usual: Callable[[Fraction | None], ScenarioSet] = measured,
) -> ScenarioSet | None:
    """Return the scenarios that a request asks to plan for, or None for the nominal times.

    `given` holds `outlook`, `scenarios` and `percentile`; `lacks` names what the request lacks to
    have scenarios of its own (empty if it has them), which `usual` returns for a percentile;
    `chooses` is the method behind `auto`, the only one that takes scenarios. Raises
    InvalidInputError, with a path, if the fields contradict each other.
    """
    outlook, scenarios, percentile = (
        given.get(name, UNSET) for name in ("outlook", "scenarios", "percentile")
    )
    if outlook == "nominal":
        for name, value in (("scenarios", scenarios), ("percentile", percentile)):
            if value is not UNSET:
                raise InvalidInputError(name, "not with outlook nominal")
        return None
    name = "outlook" if scenarios is UNSET else "scenarios"
    if outlook is UNSET and scenarios is UNSET:
        if percentile is not UNSET:
            raise InvalidInputError("percentile", "needs scenarios too")
        return None if lacks or method != "auto" or target is not None else usual(None)
    if target is not None:
        raise InvalidInputError(name, f"not with target {target.name}")
    if method not in ("auto", chooses):
        also = "" if chooses == "auto" else f", which is {chooses}"
        reason = f"not with method {method}, only with auto{also}"
        raise InvalidInputError(name, reason)
    if outlook is not UNSET and percentile is not UNSET:
        raise InvalidInputError("percentile", f"not with outlook {outlook}")
    counts = unset_to_none(percentile) if outlook is UNSET else OBJECTIVES[outlook]
    if scenarios is not UNSET:
        return _weighted(scenarios, counts)
    if lacks:
        raise InvalidInputError("outlook", f"needs {lacks} too")
    return usual(counts)


def unless_tied(
    scenario_set: ScenarioSet | None, tie_break: object, given: Mapping[str, object]
) -> ScenarioSet | None:
    """Return the scenarios, or None if a choice among plans of equal cost is asked for.

    That choice is made at the nominal times, so it is refused together with scenarios.
    """
    if tie_break is None:
        return scenario_set
    for name in ("scenarios", "percentile", "outlook"):
        if given.get(name, UNSET) not in (UNSET, "nominal"):
            reason = "they choose among plans for the nominal times"
            raise InvalidInputError(name, f"not with tie_break: {reason}")
    return None


def _weighted(documents: Sequence[ScenarioDocument], percentile: Fraction | None) -> ScenarioSet:
    """Return the typed scenarios; errors carry a path."""
    scenarios = []
    for place, document in enumerate(documents):
        with inside(f"scenarios[{place}]"):
            weight = Fraction(1) if document.weight is UNSET else document.weight
            scenarios.append((as_dataclass(Scenario, document), weight))
    return ScenarioSet(tuple(scenarios), percentile)


def prospect_answer(prospect: ExpectedCost | None, objective_ns: int) -> ProspectAnswer | UnsetType:
    """Return the JSON form of the expected cost; UNSET without scenarios."""
    if prospect is None:
        return UNSET
    value, usual = prospect.value, prospect.usual_value
    return as_document(
        ProspectAnswer,
        prospect,
        value_ns=float(value),
        lower_bound_ns=float(prospect.bound),
        usual_value_ns=float(usual),
        gain=float(usual / value) if value else 1.0,
        loss=objective_ns / prospect.usual_ns if prospect.usual_ns else 1.0,
    )


# ---
# The JSON form of a plan's regret, and of the advice whether to keep DDP.


class RegretAnswer(Struct, frozen=True, kw_only=True):
    """Cost of the unchanged plan in one scenario, and of the best plan for that scenario."""

    computation: Annotated[float, Meta(ge=0, description="times of computation are multiplied by")]
    startup: Annotated[float, Meta(ge=0, description="start-up costs are multiplied by")]
    bandwidth: Annotated[float, Meta(ge=0, description="what the network carries, relatively")]
    late: Annotated[
        float,
        Meta(ge=0, description="share of the backward pass by which the last rank falls behind"),
    ]
    plan_ns: Moment
    best_ns: Annotated[int, Meta(ge=0, description="ns of the best plan found for it")]
    lower_bound_ns: Moment | None
    ddp_ns: Annotated[int, Meta(ge=0, description="ns with DDP's default buckets")] | None
    layers_ns: Annotated[int, Meta(ge=0, description="ns layer by layer")] | None
    at_least: Annotated[float, Meta(ge=1, description="regret: plan_ns over best_ns")]
    at_most: Annotated[float, Meta(ge=1, description="plan_ns over lower_bound_ns")] | None
    shared: Annotated[bool, says("where all channels carry one transfer at a time")] | UnsetType = (
        UNSET
    )


class AdviceAnswer(Struct, frozen=True, kw_only=True):
    """The plan's gain over DDP with its best bucket size, and whether the gain is worth it."""

    keep_ddp: Annotated[bool, says("whether gain is less than least_gain")]
    bucket_cap_mb: (
        Annotated[int, Meta(ge=1, description="MiB of DDP's best buckets; null: its default")]
        | None
    )
    ddp_ns: Annotated[int, Meta(ge=0, description="ns with these buckets")]
    gain: Annotated[float, Meta(ge=0, description="ddp_ns over objective_ns")]
    at_most: Annotated[float, Meta(ge=0, description="of any plan: over the bound")] | None
    contention: Annotated[
        bool, says("whether the costs say what transfers take from computation")
    ] = False
    least_gain: Annotated[
        float, Meta(ge=1, description="at which a plan is worth running in DDP's place")
    ] = float(WORTH)


AdviceField = AdviceAnswer | UnsetType


def regret_answers(rows: Sequence[Regret[Any]] | None) -> tuple[RegretAnswer, ...] | UnsetType:
    """Return the JSON form of a regret table; UNSET if not requested."""
    if rows is None:
        return UNSET
    return tuple(
        as_document(
            RegretAnswer,
            row,
            row.scenario,
            lower_bound_ns=row.bound_ns,
            shared=row.scenario.shared or UNSET,
        )
        for row in rows
    )


def advice_answer(advice: Advice | None) -> AdviceField:
    """Return the JSON form of advice; UNSET if there is none."""
    if advice is None:
        return UNSET
    return as_document(AdviceAnswer, advice, bucket_cap_mb=advice.bucket_mb)


class WhatIfRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that may ask for regret, or for one plan for several scenarios."""

    chooses: ClassVar[str] = "auto"
    """The method behind `auto`, the only one that takes scenarios."""

    regret: Annotated[
        bool, says("also say how far the plan is from the best one if the numbers are others")
    ] = False
    scenarios: Annotated[tuple[ScenarioDocument, ...], Meta(min_length=1)] | UnsetType = UNSET
    percentile: Percentile | UnsetType = UNSET
    method: str = "auto"

    def lacks_spreads(self, _problem: Any, /) -> str:
        """Return what the request lacks to have measured spreads; empty if it has them."""
        return "scenarios"

    def usual_scenarios(self, percentile: Fraction | None, /) -> ScenarioSet:
        """Return the scenarios of a request that names none: those of the measured spreads."""
        return measured(percentile)

    def to_scenario_set(self, problem: Any) -> ScenarioSet | None:
        """Return the scenarios to plan a problem for, or None."""
        return requested_scenarios(
            fields_of(self),
            lacks=self.lacks_spreads(problem),
            method=self.method,
            chooses=self.chooses,
            target=getattr(problem, "target", None),
            usual=self.usual_scenarios,
        )


class WhatIfAnswer(AnswerBase, frozen=True, kw_only=True):
    """The fields of `AnswerBase`, and the cost of the plan with other numbers."""

    regret: tuple[RegretAnswer, ...] | UnsetType = UNSET
    prospect: ProspectAnswer | UnsetType = UNSET


class TargetedAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The fields of `WhatIfAnswer`, the target of the plan, and its time under each target."""

    target: TargetAnswer | UnsetType = UNSET
    targets: (
        Annotated[dict[str, ExportedAnswer], says("by target, under its rules")] | UnsetType
    ) = UNSET


def planned(
    family: Family[Any, PlanT, EvaluationT], request: Any, problem: Any, control: Control[PlanT]
) -> tuple[Result[PlanT, EvaluationT], Deadline, Callable[[], dict[str, Any]]]:
    """Return the result for a request: for its scenarios if there are any.

    Also returns the deadline, and the function that makes the answer's fields about other numbers.
    A plan whose regret is wanted has half of the time. Raises InvalidInputError if the request is
    invalid, such as a scenario that changes a number the family does not have.
    """
    limit, cancel = unset_to_none(request.time_limit_s), control.get("cancel")
    deadline, prospect = Deadline.of(limit, cancel), None
    regret, scenario_set = False, None
    if isinstance(request, WhatIfRequest):
        regret, scenario_set = request.regret, request.to_scenario_set(problem)
        scenario_set = unless_tied(scenario_set, control.get("tie_break"), fields_of(request))
    if limit is not None and regret:
        limit /= 2
    if scenario_set is None:
        result = family.solve(problem, method=request.method, time_limit=limit, **control)
    else:
        end = Deadline.of(limit, cancel)
        result, prospect = robust_plan(family, problem, scenario_set, end)
        result = without_start(result, control)
        report_result(result, control)

    def more() -> dict[str, Any]:
        if not isinstance(request, WhatIfRequest):
            return {}
        rows = None
        if regret and result.plan is not None:
            rows = regrets(family, problem, result.plan, deadline)
        return {
            "regret": regret_answers(rows),
            "prospect": prospect_answer(prospect, result.objective_ns or 0),
        }

    return result, deadline, more


def answer_request(interface: Interface, request: Any, **control: Unpack[Control[Any]]) -> Any:
    """Return the answer to a request: the family's fields, regret, scenarios and caveats."""
    if interface.run is not None:
        return interface.run(request, **control)
    family = interface.family
    case: Case[Any] = Case(request.to_problem(), request=request)
    result, deadline, more = planned(family, request, case.problem, control)
    made = replace(interface.to_answer(case, result, deadline), **more())
    return warned(made, caveats(family, case, result))


def caveats(
    family: Family[Any, Any, Any], case: Case[Any], result: Result[Any, Any]
) -> tuple[str, ...]:
    """Return the caveats about costs of a request's transfers that were not measured."""
    if result.plan is None:
        return ()
    told: tuple[str, ...] = case.request.caveats(family.sent_bytes(case.problem, result.plan))
    return told
