"""The JSON form of scenarios, of what counts of them, and of what a plan made for them costs."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.errors import InvalidInputError
from planner.jsonio.types import Moment, PositiveRate, Rate, fields_of, or_none
from planner.scenarios import OBJECTIVES, Outlook, Part, Prospect, Scenario, measured
from planner.targets import Target
from planner.validation import inside

__all__ = [
    "OUTLOOKS",
    "OutlookField",
    "PercentileField",
    "ProspectAnswer",
    "ProspectField",
    "ScenariosField",
    "asked",
    "prospect_answer",
]


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
"""What may count."""

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
"""How they stand in requests."""

ProspectField = ProspectAnswer | UnsetType
"""How it stands in an answer."""


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
    """Return which scenarios a request asks to plan for; None: for none but the numbers.

    Parameters
    ----------
    outlook, scenarios, percentile
        Fields of the request.
    spreads : str
        What would give the spreads; empty if they are known.
    method : str
        The method asked for.
    chooses : str
        What `auto` is: the method that may be asked for with scenarios.
    target : Target, optional
        Whose rules plans keep to: they know no scenarios.

    Raises
    ------
    InvalidInputError
        If the fields contradict each other, with the path of one.
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


def _outlook_of(documents: Sequence[ScenarioDocument], percentile: Fraction | None) -> Outlook:
    """Return the typed scenarios.

    Raises
    ------
    InvalidInputError
        With the path of what cannot be.
    """
    scenarios = []
    for place, document in enumerate(documents):
        with inside(f"scenarios[{place}]"):
            numbers = fields_of(document)
            weight = numbers.pop("weight", Fraction(1))
            scenarios.append((Scenario(**numbers), weight))
    return Outlook(tuple(scenarios), percentile)


def prospect_answer(prospect: Prospect | None, objective_ns: int) -> ProspectField:
    """Return the JSON form of what a plan costs in the scenarios it was made for, if for any."""
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
