"""The JSON form of targets: the target whose rules a plan keeps to, and the costs under others."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.types import Moment
from planner.model.validation import MAX_TOTAL
from planner.solving.targets import FSDP2, PLANNER, TARGETS, Exported, Target

_ABOUT = f"whose rules the plan has to keep to; {PLANNER}: those of planner's runtime"

TargetRequest = Annotated[
    str, Meta(description=_ABOUT, extra_json_schema={"enum": [*TARGETS, PLANNER]})
]
"""A request's target that all-reduces gradients."""

ShardedTargetRequest = Annotated[
    str, Meta(description=_ABOUT, extra_json_schema={"enum": [FSDP2.name, PLANNER]})
]
"""A request's target that shards parameters."""


class TargetAnswer(Struct, frozen=True, kw_only=True):
    """The target that a plan was made for."""

    name: str
    version: Annotated[str, Meta(description="whose code the rules were read from")]
    settings: Annotated[tuple[str, ...], Meta(description="what to set beside the buckets")]


class ExportedAnswer(Struct, frozen=True, kw_only=True):
    """What a plan takes as a target would send it, beside the target's default."""

    plan_ns: Moment | None
    default_ns: Moment
    reason: Annotated[str, Meta(description="why it cannot")] | UnsetType = UNSET


TargetField = TargetAnswer | UnsetType
TargetsField = (
    Annotated[dict[str, ExportedAnswer], Meta(description="by target, under its rules")] | UnsetType
)


def target_answer(target: Target | None) -> TargetField:
    """Return the JSON form of the target planned for; UNSET if there is none."""
    if target is None:
        return UNSET
    return TargetAnswer(
        name=target.name,
        version=f"{target.title}, {target.version}",
        settings=target.settings,
    )


def targets_answer(prices: Mapping[str, Exported] | None) -> TargetsField:
    """Return the JSON form of a plan's cost under the rules of targets; UNSET if there is none.

    Targets under which the plan takes more than 63 bits of nanoseconds are left out.
    """
    answers = {
        name: ExportedAnswer(
            plan_ns=price.plan_ns, default_ns=price.default_ns, reason=price.reason or UNSET
        )
        for name, price in (prices or {}).items()
        if max(price.default_ns, price.plan_ns or 0) <= MAX_TOTAL
    }
    return answers or UNSET
