"""The JSON form of scenarios, of a plan's regret, and of the advice to keep DDP."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.advice import Advice
from planner.jsonio.types import Moment, PositiveRate, Rate, fields_of, filled
from planner.regret import Regret
from planner.scenarios import Outlook, Part, Prospect, Scenario
from planner.validation import inside

__all__ = [
    "AdviceAnswer",
    "AdviceField",
    "Percentile",
    "ProspectAnswer",
    "RegretAnswer",
    "RegretField",
    "RegretRequest",
    "ScenarioDocument",
    "advice_answer",
    "outlook_of",
    "prospect_answer",
    "regret_answers",
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

    keep_ddp: Annotated[bool, Meta(description="whether the plan gains less than 1 %")]
    bucket_cap_mb: (
        Annotated[int, Meta(ge=1, description="MiB of DDP's best buckets; null: its default")]
        | None
    )
    ddp_ns: Annotated[int, Meta(ge=0, description="ns with these buckets")]
    gain: Annotated[float, Meta(ge=0, description="ddp_ns over objective_ns")]
    at_most: Annotated[float, Meta(ge=0, description="of any plan: over the bound")] | None


Percentile = Annotated[
    Fraction,
    Meta(
        description="the time not exceeded in so many percent of the scenarios, by weight",
        extra_json_schema={"exclusiveMinimum": 0, "maximum": 100},
    ),
]
RegretRequest = Annotated[
    bool,
    Meta(description="also say how far the plan is from the best one if the numbers are others"),
]
AdviceField = AdviceAnswer | UnsetType
RegretField = tuple[RegretAnswer, ...] | UnsetType
"""How they stand in an answer."""


def regret_answers(rows: Sequence[Regret] | None) -> RegretField:
    """Return the JSON form of a regret table; unset if nobody asked for it."""
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


def advice_answer(found: Advice | None) -> AdviceField:
    """Return the JSON form of an advice; unset if there is none."""
    if found is None:
        return UNSET
    return AdviceAnswer(
        keep_ddp=found.keep_ddp,
        bucket_cap_mb=found.bucket_mb,
        ddp_ns=found.ddp_ns,
        gain=float(found.gain),
        at_most=_number(found.at_most),
    )


def outlook_of(
    documents: Sequence[ScenarioDocument], percentile: Fraction | None = None
) -> Outlook:
    """Return the typed scenarios.

    Raises
    ------
    InvalidInputError
        With the path of what cannot be.
    """
    scenarios = []
    for place, one in enumerate(documents):
        with inside(f"scenarios[{place}]"):
            numbers = fields_of(one)
            weight = numbers.pop("weight", Fraction(1))
            scenarios.append((Scenario(**numbers), weight))
    return Outlook(tuple(scenarios), percentile)


def prospect_answer(prospect: Prospect, objective_ns: int) -> ProspectAnswer:
    """Return the JSON form of what a plan costs in the scenarios it was made for."""
    value, usual = prospect.value, prospect.usual_value
    return ProspectAnswer(
        value_ns=float(value),
        lower_bound_ns=float(prospect.bound),
        usual_value_ns=float(usual),
        usual_ns=prospect.usual_ns,
        gain=float(usual / value) if value else 1.0,
        loss=objective_ns / prospect.usual_ns if prospect.usual_ns else 1.0,
    )


def _number(ratio: Fraction | None) -> float | None:
    return None if ratio is None else float(ratio)
