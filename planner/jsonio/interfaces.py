"""The parts of the JSON interface of a problem, and the interfaces of all problems.

An interface is loaded when it is first used: most processes answer one kind of request.
"""

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias, get_args

from planner.model.errors import InvalidInputError
from planner.solving.compare import Case
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.result import Result

ToAnswer: TypeAlias = "Callable[[Case[Any], Result[Any, Any], Deadline | None], Any]"
"""Encodes the result of a case, with the parts that take long if there is a deadline for them."""


def of_result(answer: Callable[[Any, Result[Any, Any]], Any]) -> ToAnswer:
    """Return `Interface.to_answer` of a family whose answers follow from problem and result."""
    return lambda case, result, _: answer(case.problem, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The JSON interface of one problem."""

    family: Family[Any, Any, Any]
    request: type[Any]  # a `Controlled`
    answer: type[Any]  # a `AnswerBase`
    to_answer: ToAnswer
    view: Callable[[Any], Any]  # checks a stored answer; returns the data of its picture
    run: Callable[..., Any] | None = None  # answers a request, with `Control`; None: as usual

    @property
    def plans(self) -> tuple[type[Any], ...]:
        """The classes of plans; usually one."""
        kind = types_of(self.family)[1]
        return get_args(kind) or (kind,)


def types_of(family: Family[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Return the classes of a family's problems, plans and evaluations."""
    for base in getattr(type(family), "__orig_bases__", ()):
        types = get_args(base)
        if len(types) == 3:
            return types
    raise InvalidInputError("family", "expected a subclass of Family[Problem, Plan, Evaluation]")


class Interfaces(UserDict[str, Interface]):
    """Interfaces by problem: the `INTERFACE` of the module here that has the problem's name."""

    def __getitem__(self, name: str) -> Interface:
        if self.data[name] is UNLOADED:
            self.data[name] = import_module(f"planner.jsonio.{name}").INTERFACE
        return self.data[name]


UNLOADED: Any = None

PROBLEMS = Interfaces(
    dict.fromkeys(
        ("ibatch", "caramel", "yan", "bml", "drizzle", "bigdl", "fsdp", "iteration", "overlap"),
        UNLOADED,
    )
)
"""Every problem, by the name that requests use."""


def families() -> dict[str, Family[Any, Any, Any]]:
    """Return the families of all problems, registered ones included."""
    return {name: interface.family for name, interface in PROBLEMS.items()}
