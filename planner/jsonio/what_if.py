"""The fields of a request that ask what a plan costs if the numbers are others, and their answers.

Each family whose problems can be perturbed takes them in the same form: its request is a
`WhatIfRequest`, and its `run` step is `planned`.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NamedTuple, Unpack

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from planner.jsonio.control import Controlled, TargetField, TargetsField, tell, without_start
from planner.jsonio.heads import PlanOrReason, warned
from planner.jsonio.interfaces import Interface
from planner.jsonio.types import Moment, PositiveRate, Rate, fields_of, filled, or_none
from planner.model.errors import InvalidInputError
from planner.model.validation import inside
from planner.solving.compare import Case
from planner.solving.deadline import Control, Deadline
from planner.solving.family import Family
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result
from planner.solving.scenarios import OBJECTIVES, Outlook, Part, Prospect, Scenario, measured
from planner.solving.targets import Target
from planner.solving.what_if import Advice, Regret, regrets, robust_plan

# ---
# The JSON form of scenarios, of the stochastic objective, and of a plan's expected cost.


class ScenarioDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be otherwise, and how likely that is."""

    computation: (
        Annotated[PositiveRate, Meta(description="times of computation are multiplied by; or 1")]
        | UnsetType
    ) = UNSET
    startup: (
        Annotated[Rate, Meta(description="start-up costs are multiplied by; or 1")] | UnsetType
    ) = UNSET
    bandwidth: (
        Annotated[PositiveRate, Meta(description="what the network carries, relatively; or 1")]
        | UnsetType
    ) = UNSET
    late: (
        Annotated[
            Rate,
            Meta(description="share of the backward pass by which the last rank falls behind"),
        ]
        | UnsetType
    ) = UNSET
    spread: (
        Annotated[
            Rate, Meta(description="of their measured spreads, how many ops of part are late; or 0")
        ]
        | UnsetType
    ) = UNSET
    part: (
        Annotated[Part, Meta(description="what is late: all, a pass, a third of the backward pass")]
        | UnsetType
    ) = UNSET
    weight: (
        Annotated[PositiveRate, Meta(description="how likely, beside the others; or 1")] | UnsetType
    ) = UNSET


class ProspectAnswer(Struct, frozen=True, kw_only=True):
    """What a plan for several scenarios costs in them, beside the usual plan."""

    value_ns: Annotated[float, Meta(ge=0, description="mean or percentile of an iteration")]
    lower_bound_ns: Annotated[float, Meta(ge=0, description="no plan in this op order has less")]
    usual_value_ns: Annotated[float, Meta(ge=0, description="the same of the usual plan")]
    usual_ns: Moment
    gain: Annotated[float, Meta(ge=0, description="usual_value_ns over value_ns")]
    loss: Annotated[float, Meta(ge=0, description="objective_ns over usual_ns")]


OUTLOOKS = ("nominal", *OBJECTIVES)
"""Objectives that a request can name."""

_Percentile = Annotated[
    Fraction,
    Meta(
        description="percentile of the times in the scenarios, by weight",
        extra_json_schema={"exclusiveMinimum": 0, "maximum": 100},
    ),
]
PercentileField = _Percentile | UnsetType
ScenariosField = Annotated[tuple[ScenarioDocument, ...], Meta(min_length=1)] | UnsetType
OutlookField = (
    Annotated[
        Literal["nominal", "mean", "p90"],
        Meta(
            description="what counts: times as they are, or what measured spreads make of them; "
            "by default the mean where method auto knows spreads"
        ),
    ]
    | UnsetType
)

ProspectField = ProspectAnswer | UnsetType


def asked(
    *,
    outlook: OutlookField = UNSET,
    scenarios: ScenariosField = UNSET,
    percentile: PercentileField = UNSET,
    spreads: str = "",
    method: str,
    chooses: str = "auto",
    target: Target | None = None,
) -> Outlook | None:
    """Return the scenarios that a request asks to plan for, or None for the nominal times.

    `spreads` names what the request lacks to have measured spreads (empty if it has them);
    `chooses` is the method behind `auto`, the only one that takes scenarios. Raises
    InvalidInputError, with a path, if the fields contradict each other.
    """
    if outlook == "nominal":
        for name, value in (("scenarios", scenarios), ("percentile", percentile)):
            if value is not UNSET:
                raise InvalidInputError(name, "not with outlook nominal")
        return None
    name = "outlook" if scenarios is UNSET else "scenarios"
    if outlook is UNSET and scenarios is UNSET:
        if percentile is not UNSET:
            raise InvalidInputError("percentile", "missing beside it: scenarios")
        return None if spreads or method != "auto" or target is not None else measured()
    if target is not None:
        raise InvalidInputError(name, f"not with target {target.name}")
    if method not in ("auto", chooses):
        also = "" if chooses == "auto" else f", which is {chooses}"
        reason = f"not with method {method}, only with auto{also}"
        raise InvalidInputError(name, reason)
    if outlook is not UNSET and percentile is not UNSET:
        raise InvalidInputError("percentile", f"not with outlook {outlook}")
    counts = or_none(percentile) if outlook is UNSET else OBJECTIVES[outlook]
    if scenarios is not UNSET:
        return _outlook_of(scenarios, counts)
    if spreads:
        raise InvalidInputError("outlook", f"missing beside it: {spreads}")
    return measured(counts)


def unless_tied(
    outlook: Outlook | None, tie_break: object, given: Mapping[str, object]
) -> Outlook | None:
    """Return the scenarios, or None if a choice among plans of equal cost is asked for.

    That choice is made at the nominal times: beside fields that ask for scenarios it is refused.
    """
    if tie_break is None:
        return outlook
    for name in ("scenarios", "percentile", "outlook"):
        if given.get(name, UNSET) not in (UNSET, "nominal"):
            reason = "they choose among plans for the nominal times"
            raise InvalidInputError(name, f"not with tie_break or simplest_within: {reason}")
    return None


def _outlook_of(documents: Sequence[ScenarioDocument], percentile: Fraction | None) -> Outlook:
    """Return the typed scenarios; errors carry a path."""
    scenarios = []
    for place, document in enumerate(documents):
        with inside(f"scenarios[{place}]"):
            numbers = fields_of(document)
            weight = numbers.pop("weight", Fraction(1))
            scenarios.append((Scenario(**numbers), weight))
    return Outlook(tuple(scenarios), percentile)


def prospect_answer(prospect: Prospect | None, objective_ns: int) -> ProspectField:
    """Return the JSON form of the expected cost; UNSET without scenarios."""
    if prospect is None:
        return UNSET
    value, usual = prospect.value, prospect.usual_value
    return ProspectAnswer(
        value_ns=float(value),
        lower_bound_ns=float(prospect.bound),
        usual_value_ns=float(usual),
        usual_ns=prospect.usual_ns,
        gain=float(usual / value) if value else 1.0,
        loss=objective_ns / prospect.usual_ns if prospect.usual_ns else 1.0,
    )


# ---
# The JSON form of a plan's regret, and of the advice whether to keep DDP.


class RegretAnswer(Struct, frozen=True, kw_only=True):
    """What the plan, as it is, costs in one scenario beside the best plan for it."""

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


class AdviceAnswer(Struct, frozen=True, kw_only=True):
    """What the plan gains over DDP with its best bucket size, and whether that is worth it."""

    keep_ddp: Annotated[bool, Meta(description="whether the plan gains less than 3 %")]
    bucket_cap_mb: (
        Annotated[int, Meta(ge=1, description="MiB of DDP's best buckets; null: its default")]
        | None
    )
    ddp_ns: Annotated[int, Meta(ge=0, description="ns with these buckets")]
    gain: Annotated[float, Meta(ge=0, description="ddp_ns over objective_ns")]
    at_most: Annotated[float, Meta(ge=0, description="of any plan: over the bound")] | None


RegretRequest = Annotated[
    bool,
    Meta(description="also say how far the plan is from the best one if the numbers are others"),
]
AdviceField = AdviceAnswer | UnsetType
RegretField = tuple[RegretAnswer, ...] | UnsetType


def regret_answers(rows: Sequence[Regret] | None) -> RegretField:
    """Return the JSON form of a regret table; UNSET if not requested."""
    if rows is None:
        return UNSET
    return tuple(
        filled(
            RegretAnswer,
            row,
            computation=float(row.scenario.computation),
            startup=float(row.scenario.startup),
            bandwidth=float(row.scenario.bandwidth),
            late=float(row.scenario.late),
            lower_bound_ns=row.bound_ns,
            at_least=float(row.at_least),
            at_most=_number(row.at_most),
        )
        for row in rows
    )


def advice_answer(advice: Advice | None) -> AdviceField:
    """Return the JSON form of advice; UNSET if there is none."""
    if advice is None:
        return UNSET
    return AdviceAnswer(
        keep_ddp=advice.keep_ddp,
        bucket_cap_mb=advice.bucket_mb,
        ddp_ns=advice.ddp_ns,
        gain=float(advice.gain),
        at_most=_number(advice.at_most),
    )


def _number(ratio: Fraction | None) -> float | None:
    return None if ratio is None else float(ratio)


class WhatIfRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that may ask for regret, or for one plan for several scenarios."""

    regret: RegretRequest = False
    scenarios: ScenariosField = UNSET
    percentile: PercentileField = UNSET
    method: str = "auto"

    def to_outlook(self, _: Any) -> Outlook | None:
        """Return the scenarios to plan a problem for, or None: here, those listed."""
        return asked(
            scenarios=self.scenarios,
            percentile=self.percentile,
            spreads="scenarios",
            method=self.method,
        )


class WhatIfAnswer(PlanOrReason, frozen=True, kw_only=True):
    """The fields of `PlanOrReason`, and what the plan costs if the numbers are others."""

    regret: RegretField = UNSET
    prospect: ProspectField = UNSET


class TargetedAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The fields of `WhatIfAnswer`, and the rules that the plan keeps to, or would be sent by."""

    target: TargetField = UNSET
    targets: TargetsField = UNSET


class Foreseen(NamedTuple, Generic[ProblemT, PlanT, EvaluationT]):
    """A result, and what is needed to say what it costs if the numbers are others."""

    family: Family[ProblemT, PlanT, EvaluationT]
    problem: ProblemT
    result: Result[PlanT, EvaluationT]
    prospect: Prospect | None
    wanted: bool
    deadline: Deadline

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the answer. The regret is worked out here."""
        plan, rows = self.result.plan, None
        if self.wanted and plan is not None:
            rows = regrets(self.family, self.problem, plan, self.deadline)
        return {
            "regret": regret_answers(rows),
            "prospect": prospect_answer(self.prospect, self.result.objective_ns or 0),
        }


def planned(
    family: Family[ProblemT, PlanT, EvaluationT],
    request: Any,
    problem: ProblemT,
    control: Control[PlanT],
) -> Foreseen[ProblemT, PlanT, EvaluationT]:
    """Return the plan that a request asks for: for its scenarios if there are any.

    A plan whose regret is asked for too has half of the time. Raises InvalidInputError if the
    request is none, such as a scenario that changes what the family does not have.
    """
    limit, cancel = or_none(request.time_limit_s), control.get("cancel")
    deadline, prospect = Deadline.of(limit, cancel), None
    if limit is not None and request.regret:
        limit /= 2
    outlook = request.to_outlook(problem)
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    outlook = unless_tied(outlook, control.get("tie_break"), given)
    if outlook is None:
        result = family.solve(problem, method=request.method, time_limit=limit, **control)
    else:
        end = Deadline.of(limit, cancel)
        result, prospect = robust_plan(family, problem, outlook, end)
        result = without_start(result, control)
        tell(result, control)
    return Foreseen(family, problem, result, prospect, request.regret, deadline)


def answer_request(interface: Interface, request: Any, **control: Unpack[Control[Any]]) -> Any:
    """Answer a request: what the family tells of the result, what-if, and caveats."""
    if interface.run is not None:
        return interface.run(request, **control)
    family = interface.family
    case: Case[Any] = Case(request.to_problem(), request=request)
    if isinstance(request, WhatIfRequest):
        foreseen = planned(family, request, case.problem, control)
        result, deadline = foreseen.result, foreseen.deadline
    else:
        limit = or_none(request.time_limit_s)
        deadline = Deadline.of(limit, control.get("cancel"))
        result = family.solve(case.problem, method=request.method, time_limit=limit, **control)
    made = interface.told(case, result, deadline)
    if isinstance(request, WhatIfRequest):
        made = replace(made, **foreseen.fields)
    return warned(made, caveats(family, case, result))


def caveats(
    family: Family[Any, Any, Any], case: Case[Any], result: Result[Any, Any]
) -> tuple[str, ...]:
    """Return the caveats about costs of a request's transfers that were not measured."""
    if result.plan is None:
        return ()
    told: tuple[str, ...] = case.request.caveats(family.sent_bytes(case.problem, result.plan))
    return told
