"""The JSON form of a plan's regret, and of the advice whether to keep DDP."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.types import Moment, filled
from planner.solving.what_if import Advice, Regret


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
