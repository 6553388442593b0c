"""What every request may say of how it is answered, beside what is asked."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.deadline import Cancel, Control, Deadline, Incumbent
from planner.errors import InvalidInputError
from planner.jsonio.results import PlanDocument, plan_of
from planner.jsonio.types import Seconds
from planner.results import Result
from planner.scenarios import Prospect
from planner.solving.family import Family
from planner.solving.methods import REPLAN
from planner.validation import inside, shown

__all__ = [
    "Controlled",
    "Extras",
    "ProgressLine",
    "Standing",
    "control_of",
    "method_names",
    "tell",
    "without_start",
]

R = TypeVar("R", bound=Result[Any, Any])


def method_names(methods: Iterable[str]) -> list[str]:
    """Return the names that a request's `method` may be, each once."""
    return list(dict.fromkeys([*methods, REPLAN]))


class Extras(NamedTuple):
    """What an answer holds beside what follows from the problem and the result.

    Attributes
    ----------
    end : Deadline
        When to stop what takes searches of its own, such as the regret.
    prospect : Prospect or None
        What the plan costs in the scenarios it was made for.
    """

    end: Deadline
    prospect: Prospect | None = None


class Controlled(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a search may last, what it starts from, and what else is told of it.

    The methods are what `planner.jsonio.answering` asks of every request.
    """

    family: ClassVar[Family[Any, Any, Any]]
    """Whose problem it is."""

    time_limit_s: Seconds | UnsetType = UNSET
    start_plan: (
        Annotated[PlanDocument, Meta(description="plan of an earlier answer, to be no worse than")]
        | UnsetType
    ) = UNSET
    with_plan: Annotated[
        bool, Meta(description="whether the answer holds the plan as start_plan takes it")
    ] = False
    progress: Annotated[
        bool, Meta(description="whether a stream also gets a line for each better plan or bound")
    ] = False

    def to_problem(self) -> Any:
        """Return the typed problem."""
        raise NotImplementedError

    def problem_of(self, answer: Any) -> Any:
        """Return the typed problem that an answer's plan is of."""
        return self.to_problem()

    def refuse(self, problem: Any) -> None:
        """Raise an error if the answer would be too long, or the method cannot give it."""

    def answer_of(self, problem: Any, result: Any) -> Any:
        """Return the answer, as far as it follows from the problem and the result."""
        raise NotImplementedError

    def full_answer(self, problem: Any, result: Any, extras: Extras) -> Any:
        """Return the answer with its extras."""
        return self.answer_of(problem, result)

    def doubts(self, result: Any) -> tuple[str, ...]:
        """Return why the numbers of the request may be off."""
        return ()


class Standing(Struct, frozen=True, kw_only=True):
    """How far the search for an answer is."""

    request: int
    objective_ns: int
    lower_bound_ns: int | None
    runtime_s: float


class ProgressLine(Struct, frozen=True, kw_only=True):
    """A line of a stream that is no answer, but comes before one."""

    progress: Standing


def tell(result: Result[Any, Any], control: Control[Any]) -> None:
    """Tell of a result whose plan was chosen after its search had told of others."""
    on_progress = control.get("on_progress")
    if on_progress is not None and result.plan is not None:
        assert result.objective_ns is not None
        on_progress(
            Incumbent(result.plan, result.objective_ns, result.lower_bound_ns, result.runtime_s)
        )


def without_start(result: R, control: Control[Any]) -> R:
    """Return a result of a search for scenarios, which takes no start plan, and says so."""
    if control.get("start") is None:
        return result
    ignored = "start_plan is ignored: the search for scenarios begins without one"
    return replace(result, warnings=(*result.warnings, ignored))


def control_of(
    request: Any,
    cancel: Cancel | None = None,
    on_progress: Callable[[Incumbent[Any]], None] | None = None,
) -> Control[Any]:
    """Return what a family's `solve` is told of a request.

    Parameters
    ----------
    request : Controlled
        The request, of any problem.
    cancel : Cancel, optional
        Ends the search.
    on_progress : callable, optional
        Called with each incumbent.

    Raises
    ------
    InvalidInputError
        If the plan to start from is none, or one of another problem.
    """
    control: Control[Any] = {"cancel": cancel, "on_progress": on_progress}
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
