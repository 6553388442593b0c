"""Fields common to all answers (method, status, objective, bound), and their validation.

The status is derived: an answer is `optimal` exactly if its objective equals its lower bound.
"""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields, replace

from planner.jsonio.results import PlanDocument
from planner.jsonio.types import Id, Moment, says
from planner.model.errors import InvalidInputError
from planner.model.profiles import Profile
from planner.model.units import format_ns
from planner.model.validation import check_same, shown
from planner.solving.result import Result

_REASONS = ("reason", "binding", "layers")
"""Fields of an answer without a plan: those of `planner.solving.result.Infeasibility`."""


_HOUR_NS = 3600 * 10**9

H = TypeVar("H", bound="AnswerBase")


WITH_PLAN: Any = UNSET
"""Default of a field that every answer with a plan has: its type does not allow `UnsetType`."""


class AnswerBase(Struct, frozen=True, kw_only=True):
    """Fields of every answer: problem, method, objective, bound, status; why there is no plan."""

    longest_ns: ClassVar[int] = _HOUR_NS
    """A longer plan is likely due to a wrong unit: iterations take seconds."""

    id: Id | UnsetType = UNSET
    problem: str
    method: str
    status: Literal["optimal", "feasible", "infeasible", "time_limit"]
    objective_ns: Moment | None
    lower_bound_ns: Moment | None
    runtime_s: float
    plan: PlanDocument | UnsetType = UNSET
    warnings: Annotated[
        tuple[str, ...] | UnsetType,
        says(
            "why times may be off, which numbers are likely in other units, and "
            "why a start plan was ignored"
        ),
    ] = UNSET
    profile_threads: (
        Annotated[int, Meta(ge=0, le=2**31, description="with which the profile was measured")]
        | UnsetType
    ) = UNSET
    reason: str | UnsetType = UNSET
    binding: tuple[str, ...] | UnsetType = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        return f"A plan of {format_ns(self.objective_ns or 0)}"

    def headline(self) -> str:
        """Return one line: the plan, if there is one, its problem, method and quality."""
        what = "There is no plan" if self.objective_ns is None else self.sentence()
        return f"{what} ({_made_by(self)})"


def base_fields(kind: type[AnswerBase], result: Result[Any, Any]) -> dict[str, Any]:
    """Return the fields of `AnswerBase`, and `layers` if `kind` has them, from a result."""
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
    """Return the warning about a wrong unit if the plan takes too long, or nothing."""
    if objective_ns is None or objective_ns <= longest_ns:
        return ()
    hours = objective_ns / _HOUR_NS
    lasts = f"{hours / 24:,.1f} days" if hours >= 24 else f"{hours:.1f} hours"
    text = (
        f"the plan takes {lasts}, so a number is likely in another unit: times are in nanoseconds, "
        "sizes in bytes, and rates in bytes per second (10 Gb/s is 1.25e9)"
    )
    return (text,)


def _made_by(answer: AnswerBase) -> str:
    """Return a short text: problem, method, and proven quality of the plan."""
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
    """Return the answer with more warnings."""
    before = () if answer.warnings is UNSET else answer.warnings
    return replace(answer, warnings=(*before, *warnings)) if warnings else answer


def of_profile(answer: H, profile: Profile, caveats: Sequence[str] = ()) -> H:
    """Return the answer with its profile's thread count and warnings, and with `caveats`."""
    threads = profile.provenance.threads
    if threads is not None:
        answer = replace(answer, profile_threads=threads)
    return warned(answer, (*profile.caveats, *caveats))


@cache
def _with_plan(kind: type[AnswerBase]) -> list[str]:
    """Return the fields that every answer with a plan has."""
    hints = get_type_hints(kind)
    return [
        field.name
        for field in fields(kind)
        if field.default is WITH_PLAN and UnsetType not in get_args(hints[field.name])
    ]


def check_base(answer: AnswerBase, plan: str, *, costs: str = "") -> None:
    """Check that an answer holds a plan, and that status, objective and bound agree.

    `plan` is a field that only answers with a plan have; the one named `costs` equals the
    objective. Raises InvalidInputError with the path of the first field that is missing or
    contradicts the others.
    """
    status, objective, bound = answer.status, answer.objective_ns, answer.lower_bound_ns
    if getattr(answer, plan) is UNSET:
        because = "" if answer.reason is UNSET else f": {answer.reason}"
        raise InvalidInputError(plan, f"the answer ({status}) holds no plan{because}")
    for name in (*_with_plan(type(answer)), "objective_ns"):
        if getattr(answer, name) is UNSET or (name == "objective_ns" and objective is None):
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


def check_priced(answer: H, priced: H) -> None:
    """Check, row by row, that an answer agrees with the family's evaluation of its plan."""
    for name in answer.__struct_fields__:
        stated, right = getattr(answer, name), getattr(priced, name)
        if isinstance(right, tuple) and isinstance(stated, tuple) and len(right) == len(stated):
            for place, pair in enumerate(zip(stated, right, strict=True)):
                check_same(*pair, f"{name}[{place}]")
        else:
            check_same(stated, right, name)
