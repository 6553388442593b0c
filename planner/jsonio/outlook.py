"""The JSON form of scenarios, of the stochastic objective, and of a plan's expected cost."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.types import Moment, PositiveRate, Rate, fields_of, or_none
from planner.model.errors import InvalidInputError
from planner.model.validation import inside
from planner.solving.scenarios import OBJECTIVES, Outlook, Part, Prospect, Scenario, measured
from planner.solving.targets import Target


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
        description="the time not exceeded in so many percent of the scenarios, by weight",
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
