"""What all families do alike when they are asked: find the method, time it, distrust its plan."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from planner.deadline import Deadline
from planner.errors import InvalidInputError, InvalidPlanError
from planner.validation import did_you_mean, shown

__all__ = ["Attempt", "attempt", "deadline_in", "known_method", "plan_of_method"]

ProblemT = TypeVar("ProblemT")
OutcomeT = TypeVar("OutcomeT")


class Attempt(NamedTuple, Generic[OutcomeT]):
    """What a method answered, in how many seconds, and until when there is time for more."""

    outcome: OutcomeT
    runtime_s: float
    deadline: Deadline


def attempt(
    methods: Mapping[str, Callable[[ProblemT, Deadline], OutcomeT]],
    method: str,
    problem: ProblemT,
    time_limit: float | None,
) -> Attempt[OutcomeT]:
    """Run one of `methods` on a problem.

    Raises
    ------
    InvalidInputError
        If the method is unknown, the time limit is none, or the method refuses the problem.
    """
    known_method(method, methods)
    deadline = deadline_in(time_limit)
    begin = time.perf_counter()
    outcome = methods[method](problem, deadline)
    return Attempt(outcome, time.perf_counter() - begin, deadline)


@contextmanager
def plan_of_method(method: str) -> Iterator[None]:
    """Turn a refusal of a method's own plan into what it is: a fault of the method.

    Raises
    ------
    RuntimeError
        In place of an `InvalidPlanError`.
    """
    try:
        yield
    except InvalidPlanError as error:
        raise RuntimeError(f"method {method} made no plan: {error}") from error


def known_method(method: Any, known: Iterable[str]) -> str:
    """Return `method` if it is one of the `known` names.

    Raises
    ------
    InvalidInputError
        If it is not; the message lists them and names the closest one.
    """
    names = list(known)
    if isinstance(method, str) and method in names:
        return method
    hint = did_you_mean(method, names)
    raise InvalidInputError(
        "method",
        f"expected one of {', '.join(names)}, got {shown(method)}{hint and f' ({hint})'}",
    )


def deadline_in(time_limit: Any) -> Deadline:
    """Return the deadline a time limit in seconds sets; None sets none.

    Raises
    ------
    InvalidInputError
        If it is no number above 0.
    """
    number = isinstance(time_limit, int | float) and not isinstance(time_limit, bool)
    if time_limit is not None and not (number and time_limit > 0):
        raise InvalidInputError("time_limit_s", f"expected a number > 0, got {shown(time_limit)}")
    return Deadline(time_limit)
