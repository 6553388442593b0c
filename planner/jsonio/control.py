"""Fields common to all requests: time limit, start plan, progress, export target."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.links import warnings_of
from planner.jsonio.network import Described
from planner.jsonio.results import PlanDocument, plan_of
from planner.jsonio.types import Id, Moment, Seconds, as_document, says
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_TOTAL, inside, shown
from planner.solving.deadline import Cancel, Control, Incumbent
from planner.solving.methods import REPLAN
from planner.solving.result import Result
from planner.solving.targets import FSDP2, PLANNER, TARGETS, Exported, Target
from planner.solving.tie_break import Prefer

R = TypeVar("R", bound=Result[Any, Any])


def method_names(methods: Iterable[str]) -> list[str]:
    """Return the values allowed for a request's `method`, without duplicates."""
    return list(dict.fromkeys([*methods, REPLAN]))


class Controlled(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that control a solve: id, time limit, start plan, tie-break, progress."""

    id: Id | UnsetType = UNSET
    time_limit_s: Seconds | UnsetType = UNSET
    start_plan: Annotated[
        PlanDocument | UnsetType, says("plan of an earlier answer, to be no worse than")
    ] = UNSET
    with_plan: Annotated[bool, says("whether the answer holds the plan as start_plan takes it")] = (
        False
    )
    tie_break: Annotated[
        Prefer | UnsetType, says("which of the plans of equal cost; by default simple")
    ] = UNSET
    progress: Annotated[
        bool, says("whether a stream also gets a line for each better plan or bound")
    ] = False

    def resolved_network(self) -> Described | None:
        """Return the network, its tables resolved to the cost of what is sent; None without."""
        return None

    def caveats(self, sizes: Sequence[int], /) -> tuple[str, ...]:
        """Return warnings about transfers of these sizes whose costs were not measured."""
        network = self.resolved_network()
        return () if network is None else warnings_of(network, sizes)


def report_result(result: Result[Any, Any], control: Control[Any]) -> None:
    """Report a result that was chosen after its search had reported other incumbents."""
    on_progress = control.get("on_progress")
    if on_progress is not None and result.plan is not None:
        assert result.objective_ns is not None
        on_progress(
            Incumbent(result.plan, result.objective_ns, result.lower_bound_ns, result.runtime_s)
        )


def without_start(result: R, control: Control[Any]) -> R:
    """Return the result with a warning if a start plan was ignored.

    The search for scenarios takes no start plan.
    """
    if control.get("start") is None:
        return result
    ignored = "start_plan is ignored: the search for scenarios begins without one"
    return replace(result, warnings=(*result.warnings, ignored))


def control_of(
    request: Any,
    cancel: Cancel | None = None,
    on_progress: Callable[[Incumbent[Any]], None] | None = None,
) -> Control[Any]:
    """Return the `planner.Control` of a request.

    Raises InvalidInputError if the start plan is malformed or of another family.
    """
    control: Control[Any] = {"cancel": cancel, "on_progress": on_progress}
    if request.tie_break is not UNSET:
        control["tie_break"] = request.tie_break
    if request.start_plan is not UNSET:
        family, _, _ = request.start_plan.kind.partition(".")
        with inside("start_plan"):
            control["start"] = plan_of(request.start_plan)
            if family != request.problem:
                raise InvalidInputError(
                    "kind",
                    f"expected a plan of {request.problem}, got {shown(request.start_plan.kind)}",
                )
    return control


# ---
# The JSON form of targets: the target whose rules a plan keeps to, and the costs under others.

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
    version: Annotated[str, says("whose code the rules were read from")]
    settings: Annotated[tuple[str, ...], says("further settings in addition to the buckets")]


class ExportedAnswer(Struct, frozen=True, kw_only=True):
    """The time of a plan sent under a target's rules, and of the target's default."""

    plan_ns: Moment | None
    default_ns: Moment
    reason: Annotated[str, says("why it cannot")] | UnsetType = UNSET


def target_answer(target: Target | None) -> TargetAnswer | UnsetType:
    """Return the JSON form of the target planned for; UNSET if there is none."""
    if target is None:
        return UNSET
    return as_document(TargetAnswer, target, version=f"{target.title}, {target.version}")


def targets_answer(prices: Mapping[str, Exported] | None) -> dict[str, ExportedAnswer] | UnsetType:
    """Return the JSON form of a plan's cost under the rules of targets; UNSET if there is none.

    Targets under which the plan takes more than 63 bits of nanoseconds are left out.
    """
    answers = {
        name: as_document(ExportedAnswer, price, reason=price.reason or UNSET)
        for name, price in (prices or {}).items()
        if max(price.default_ns, price.plan_ns or 0) <= MAX_TOTAL
    }
    return answers or UNSET
