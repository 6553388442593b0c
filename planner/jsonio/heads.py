"""What every answer says of its own quality: made of a result, and checked when it is read again.

`optimal` is derived, never believed: an answer says so exactly if its plan costs what its bound
proves.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from planner.errors import InvalidInputError
from planner.jsonio.types import Moment
from planner.profiles import Profile
from planner.results import Result
from planner.validation import shown

__all__ = [
    "WITH_PLAN",
    "Head",
    "KeptPlan",
    "PlanOrReason",
    "check_head",
    "head",
    "made_by",
    "of_profile",
    "warned",
]

_REASONS = ("reason", "binding", "layers")
"""Fields of an answer without a plan: those of `planner.results.Infeasibility`."""


_HOUR_NS = 3600 * 10**9

H = TypeVar("H", bound="Head")


class KeptPlan(Struct, frozen=True, kw_only=True):
    """The plan itself, as `start_plan` of another request takes it."""

    kind: str
    plan: dict[str, Any]


WITH_PLAN: Any = UNSET
"""The default of a field that every answer with a plan has."""


class Head(Struct, frozen=True, kw_only=True):
    """What every answer has: which problem, who made the plan, what it costs, and the proof."""

    longest_ns: ClassVar[int] = _HOUR_NS
    """What takes longer than this makes a slip of units likely: iterations take seconds."""

    problem: str
    method: str
    status: Literal["optimal", "feasible", "infeasible", "time_limit"]
    objective_ns: Moment | None
    lower_bound_ns: Moment | None
    runtime_s: float
    plan: KeptPlan | UnsetType = UNSET
    warnings: (
        Annotated[
            tuple[str, ...],
            Meta(
                description="why times may be off, which numbers are likely in other units, and "
                "why a start plan was ignored"
            ),
        ]
        | UnsetType
    ) = UNSET
    profile_threads: (
        Annotated[int, Meta(ge=0, le=2**31, description="with which the profile was measured")]
        | UnsetType
    ) = UNSET


class PlanOrReason(Head, frozen=True, kw_only=True):
    """The same, of problems that may have no plan: then the answer says why."""

    reason: str | UnsetType = UNSET
    binding: tuple[str, ...] | UnsetType = UNSET


def head(kind: type[Head], result: Result[Any, Any]) -> dict[str, Any]:
    """Return the fields of a kind of answer that every result fills.

    Parameters
    ----------
    kind : type
        The answer.
    result : Result
        A plan, or the reason why there is none, with the proof.
    """
    fields: dict[str, Any] = {
        "method": result.method,
        "status": result.status.value,
        "objective_ns": result.objective_ns,
        "lower_bound_ns": result.lower_bound_ns,
        "runtime_s": result.runtime_s,
        "warnings": (*result.warnings, *_too_long(result.objective_ns, kind.longest_ns)) or UNSET,
    }
    if result.infeasibility is not None:
        for name in _REASONS:
            if name in kind.__struct_fields__:
                fields[name] = getattr(result.infeasibility, name)
    return fields


def _too_long(objective_ns: int | None, longest_ns: int) -> tuple[str, ...]:
    """Return that a number is likely in another unit, if a plan takes that long."""
    if objective_ns is None or objective_ns <= longest_ns:
        return ()
    hours = objective_ns / _HOUR_NS
    lasts = f"{hours / 24:,.1f} days" if hours >= 24 else f"{hours:.1f} hours"
    text = (
        f"the plan takes {lasts}, so a number is likely in another unit: times are in nanoseconds, "
        "sizes in bytes, and rates in bytes per second (10 Gb/s is 1.25e9)"
    )
    return (text,)


def made_by(answer: Head) -> str:
    """Return who made a plan, and how good it is, in a few words."""
    cost, bound = answer.objective_ns, answer.lower_bound_ns
    if answer.status == "optimal":
        known = "proven optimal"
    elif cost is None or not bound:
        known = answer.status.replace("_", " ")
    else:
        above = cost / bound - 1
        known = f"at most {f'{above:.2%}' if above >= 5e-5 else '0.01%'} above the optimum"
    made = dict.fromkeys((answer.problem, answer.method))
    return f"{', '.join(made)}: {known}"


def warned(answer: H, warnings: Sequence[str]) -> H:
    """Return an answer that also says why the numbers it was made of may be off, if they may."""
    before = () if answer.warnings is UNSET else answer.warnings
    return replace(answer, warnings=(*before, *warnings)) if warnings else answer


def of_profile(answer: H, profile: Profile, doubts: Sequence[str] = ()) -> H:
    """Return an answer that says how the profile it was made of was measured.

    Parameters
    ----------
    answer : Head
        The answer.
    profile : Profile
        What was planned with: its threads are said, and why its times may be off.
    doubts : sequence of str
        Why other numbers may be off.
    """
    threads = profile.provenance.threads
    if threads is not None:
        answer = replace(answer, profile_threads=threads)
    return warned(answer, (*profile.doubts, *doubts))


def check_head(answer: Head, plan: str, *others: str, costs: str = "") -> None:
    """Refuse an answer that holds no plan, or whose status its objective and bound contradict.

    Parameters
    ----------
    answer : Head
        An answer read again.
    plan, *others : str
        Fields that come with every plan, the one that stands for it first.
    costs : str
        The one of them that says the same as the objective, if one does.

    Raises
    ------
    InvalidInputError
        With the first field that is missing, or that contradicts the others.
    """
    status, objective, bound = answer.status, answer.objective_ns, answer.lower_bound_ns
    if getattr(answer, plan) is UNSET:
        why = getattr(answer, "reason", UNSET)
        because = "" if why is UNSET else f": {why}"
        raise InvalidInputError(plan, f"the answer ({status}) holds no plan{because}")
    for name in (*others, "objective_ns"):
        if getattr(answer, name) in (UNSET, None):
            raise InvalidInputError(name, "missing: it comes with a plan")
    assert objective is not None
    if costs and objective != getattr(answer, costs):
        raise InvalidInputError(
            "objective_ns", f"expected {costs} ({getattr(answer, costs)}), got {objective}"
        )
    if bound is not None and bound > objective:
        raise InvalidInputError("lower_bound_ns", f"more than objective_ns ({objective})")
    if status == "infeasible":
        raise InvalidInputError("status", "infeasible, but there is a plan")
    for name in _REASONS:
        if name in answer.__struct_fields__ and getattr(answer, name) is not UNSET:
            raise InvalidInputError(name, "says why there is no plan, but there is one")
    if (status == "optimal") != (bound == objective):
        raise InvalidInputError("status", f"{status}, but lower_bound_ns is {shown(bound)}")
