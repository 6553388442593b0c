"""Many problems at once have the results that each has by itself."""

import os
import pickle
import signal
import threading
from typing import Any

import pytest

import planner
from planner import ibatch
from planner.batches.many import answers
from planner.errors import (
    BrokenConstraintError,
    DisagreementError,
    InvalidInputError,
    MissingExtraError,
    NotApplicableError,
    PlannerError,
)
from planner.results import Result
from tests.jsonio.test_plan_files import METHODS as REQUESTS
from tests.test_methods import FAMILIES, problem_of


def told(result: Any) -> Any:
    """Return a result without what is another each time."""
    if isinstance(result, Result):
        return result.plan, result.objective_ns, result.lower_bound_ns, result.status
    return {name: value for name, value in result.items() if name != "runtime_s"}


@pytest.mark.parametrize("processes", [1, 2])
def test_results_of_all_families_in_order(processes: int) -> None:
    problems = [problem_of(family) for family in FAMILIES]
    requests = [REQUESTS[family][0] for family in REQUESTS]
    seen: dict[int, Any] = {}
    results = planner.solve_many(
        [*problems, *requests], processes=processes, on_result=seen.__setitem__
    )
    alone = [FAMILIES[family].solver.solve(problem_of(family)) for family in FAMILIES]
    alone += [planner.solve(request) for request in requests]
    assert [told(result) for result in results] == [told(result) for result in alone]
    assert [seen[place] for place in range(len(results))] == results


def test_what_is_refused_is_raised_and_a_bad_request_answered() -> None:
    problem = problem_of("ibatch")
    with pytest.raises(NotApplicableError):
        planner.solve_many([problem, problem], method="ddp", processes=2)
    with pytest.raises(InvalidInputError, match=r"problems\[1\]: expected a problem"):
        planner.solve_many([problem, 7])
    with pytest.raises(InvalidInputError, match="processes"):
        planner.solve_many([problem], processes=0)
    (answer,) = planner.solve_many([{"problem": "ibatch"}])
    assert answer["error"]["path"] == "compute_ns"
    assert planner.solve_many([]) == []


def test_cancelled_searches_have_plans() -> None:
    cancel = threading.Event()
    cancel.set()
    results = planner.solve_many([problem_of("fsdp")] * 3, processes=2, cancel=cancel)
    assert all(result.plan is not None for result in results)


class Deadly(ibatch.Problem):
    """Ends the process that solves it."""

    @property
    def layers(self) -> int:
        if os.getpid() != PARENT:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().layers


PARENT = os.getpid()


def test_a_process_that_dies_is_an_error_not_a_hang() -> None:
    deadly = Deadly(compute_ns=[1, 2], startup_ns=1, transfer_ns=[1, 1])
    with pytest.raises(PlannerError, match="died"):
        planner.solve_many([deadly, problem_of("ibatch")], processes=2)


def test_answers_come_with_their_places() -> None:
    good = b'{"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3], "compute_ns": [2]}'
    made = dict(answers([good, b"{", good], 2))
    assert b"optimal" in made[0]
    assert b"invalid_request" in made[1]
    assert sorted(made) == [0, 1, 2]


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError("a", "b"),
        BrokenConstraintError("a", "b", "c"),
        MissingExtraError("a", "b"),
        DisagreementError("a", (1,)),
    ],
)
def test_errors_of_other_processes_say_the_same(error: PlannerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
