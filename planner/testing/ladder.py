"""The promises of every method, asserted on drawn problems.

Each rung of the ladder is a function that takes a trial and a problem and raises an AssertionError.
Nothing here knows a family. Strategies draw problems (`planner.testing.problems`). The oracles that
a method is checked against come from its family (checker, price, other methods) or from the caller
(brute force, problems that must have the same answer).
"""

import atexit
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.jsonio.interfaces import PROBLEMS
from planner.jsonio.results import decode_plan, encode_plan
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER, Deadline
from planner.solving.family import Family
from planner.solving.methods import REPLAN, Method
from planner.solving.result import Result, Status
from planner.testing.problems import problems

AnyFamily: TypeAlias = Family[Any, Any, Any]
AnyResult: TypeAlias = Result[Any, Any]

ELSEWHERE = 4
"""Number of drawn problems that are solved again in other processes."""

_GRACE_S = 10.0
"""Seconds that a method may take beyond its time limit on a machine that does other things, too."""

_ELSEWHERE = "PLANNER_ELSEWHERE"
"""The environment variable of the processes that solve problems again."""

_AGAIN = """
import pickle, sys, traceback
from planner.testing.ladder import trial_of
while True:
    try:
        kind, known, method, problems, limit = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        family = object.__new__(kind)
        vars(family).update(known)
        trial = trial_of(family, method)
        answer = [trial.solve(one, limit).plan for one in problems]
    except Exception:
        answer = traceback.format_exc()
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.flush()
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """A method to be tried, by its name among the methods of its family."""

    family: AnyFamily
    name: str
    own: Mapping[str, Method[Any, Any]]  # a function to be tried; else none
    met: list[Any] = field(default_factory=list)  # problems to solve again elsewhere

    def solve(self, problem: Any, limit: float | Deadline | None = None, **more: Any) -> AnyResult:
        """Return the method's result, checked, priced and bounded as every method's."""
        deadline = Deadline.of(limit)
        try:
            methods = {**self.family.methods_for(problem), **self.own}
            return self.family.run(problem, self.name, methods, deadline, **more)
        except RuntimeError as error:  # every result is checked: this one is no plan
            raise AssertionError(str(error)) from error

    def others(self, problem: Any) -> Iterator[tuple[str, AnyResult]]:
        """Yield the results of the family's other methods that apply."""
        for name in self.family.methods_for(problem):
            if name != self.name:
                try:
                    yield name, self.family.solve(problem, method=name)
                except NotApplicableError:
                    continue


def trial_of(family: AnyFamily, method: str | Method[Any, Any]) -> Trial:
    """Return the trial of a method of the family, or of a function to be tried as one."""
    if isinstance(method, str):
        return Trial(family, method, {})
    name = getattr(method, "__name__", "tried")
    return Trial(family, name, {name: method})


def check_method(
    family: AnyFamily,
    method: str | Method[Any, Any],
    drawn: "st.SearchStrategy[Any] | None" = None,
    *,
    least: Callable[[Any], int | None] | None = None,
    optimal: Callable[[Any], bool] | None = None,
    twins: Sequence[Callable[[Any], Any]] = (),
    large: Any = None,
    examples: int = 40,
) -> None:
    """Assert that a method keeps every promise, on drawn problems.

    Its plans pass the checker and cost what a replay says; its bound holds for the plans of all
    other methods and of brute force; it answers the same twice, in other processes, and for
    problems that only look different; it does not change its input; a start plan is never made
    worse; it ends at once if there is no time; its plans are stored and read again unchanged; no
    neighbouring plan of equal cost has fewer transfers.

    Parameters
    ----------
    family : Family
        The family of the method.
    method : str or callable
        The name of a method of the family, or a function to be tried as one.
    drawn : SearchStrategy, optional
        The problems; by default `planner.testing.problems` of the family.
    least : callable, optional
        Brute force: returns the cost (ns) of a cheapest plan of a problem, None if it has none;
        raises `NotApplicableError` for a problem that is too large for it.
    optimal : callable, optional
        Whether the method finds and proves the cheapest plan of a problem.
    twins : sequence of callable
        Each returns a problem for which the method must have the same cost and the same bound.
    large : Problem, optional
        A problem on which the method takes long: it must end soon after its time limit.
    examples : int
        Number of problems drawn.

    Raises
    ------
    AssertionError
        If the method breaks a promise; with the smallest problem found.
    """
    if _ELSEWHERE in os.environ:
        return  # another process that imports the module of a method is not to begin a third
    trial = trial_of(family, method)

    @settings(
        max_examples=examples,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(problems(family.name) if drawn is None else drawn)
    def ladder(problem: Any) -> None:
        before = deepcopy(problem)
        try:
            result = trial.solve(problem)
        except NotApplicableError:
            return
        assert problem == before, "the method changed its problem"
        assert _same(trial.solve(problem), result), "the same problem, another answer"
        if len(trial.met) < ELSEWHERE:
            trial.met.append(problem)
        check_plan(trial, problem, result)
        check_bound(trial, problem, result)
        proves = optimal is not None and optimal(problem)
        assert not proves or result.status in (Status.OPTIMAL, Status.INFEASIBLE), "no proof"
        if least is not None:
            check_least(problem, result, least, proves)
        check_twins(trial, problem, result, twins)
        check_start(trial, problem, result)
        check_no_time(trial, problem, result)

    ladder()
    if getattr(method, "__module__", "") == "__main__":
        what = (
            f"{trial.name} stands in a script: other processes, and its time limit, are not tried"
        )
        warnings.warn(what, stacklevel=2)
        return
    check_elsewhere(trial, method)
    if large is not None:
        check_limit(trial, method, large)


def check_family(family: AnyFamily, drawn: "st.SearchStrategy[Any] | None" = None) -> None:
    """Run `check_method` for every method of a family, on fewer problems each."""
    for name in family.methods:
        check_method(family, name, drawn, examples=10)


def check_plan(trial: Trial, problem: Any, result: AnyResult) -> None:
    """Assert that the plan is valid, costs what a replay says, and can be stored."""
    family, plan = trial.family, result.plan
    if plan is None:
        assert result.infeasibility is not None
        assert result.infeasibility.reason, "without a plan there is a reason"
        return
    family.check(problem, plan, NEVER)
    assert family.price(problem, plan) == result.objective_ns
    assert family.lasting(problem, plan) == result.objective_ns, "replayed, it costs otherwise"
    if family.name in PROBLEMS:
        assert decode_plan(encode_plan(plan)) == plan, "read again, it is another plan"
    if not family.follows_rule(problem, trial.name):
        assert result.objective_ns is not None
        simple = family.simplest(problem, plan, result.objective_ns, NEVER)
        assert family.transfers(simple) == family.transfers(plan), "fewer transfers cost the same"


def check_bound(trial: Trial, problem: Any, result: AnyResult) -> None:
    """Assert that the bound holds for the plans of all other methods."""
    bound, cost = result.lower_bound_ns, result.objective_ns
    for name, other in trial.others(problem):
        if other.plan is None or result.plan is None or other.objective_ns is None:
            continue
        assert cost is not None
        if bound is not None and trial.family.same_bound(result.plan, other.plan):
            assert bound <= other.objective_ns, f"a plan of {name} costs less than the lower bound"
        if trial.name == "auto" and name in trial.family.baselines:
            assert cost <= other.objective_ns, f"a plan of {name} costs less than that of auto"


def check_least(
    problem: Any, result: AnyResult, least: Callable[[Any], int | None], proves: bool
) -> None:
    """Assert that brute force agrees with the plan, its cost, its bound and its absence."""
    try:
        best = least(problem)
    except NotApplicableError:
        return
    bound, cost = result.lower_bound_ns, result.objective_ns
    assert cost is None or (best is not None and best <= cost), f"brute force: {best}"
    assert cost is not None or best is None or not proves, f"brute force has a plan: {best}"
    assert bound is None or best is None or bound <= best, f"brute force: {best}, bound: {bound}"


def check_twins(
    trial: Trial, problem: Any, result: AnyResult, twins: Sequence[Callable[[Any], Any]]
) -> None:
    """Assert that problems which only look different have the same answer."""
    for twin in twins:
        other = trial.solve(twin(problem))
        found = (other.objective_ns, other.lower_bound_ns)
        same = found == (result.objective_ns, result.lower_bound_ns)
        assert same, f"{twin.__name__}: another answer"


def check_start(trial: Trial, problem: Any, result: AnyResult) -> None:
    """Assert that a start plan of any method is never made worse."""
    starts = [("its own", result), *trial.others(problem)]
    for name, start in starts:
        if start.plan is None or trial.name == REPLAN or trial.family.follows_rule(problem, name):
            continue
        warm = trial.solve(problem, start=start.plan)
        assert warm.objective_ns is not None, f"no plan, started from {name}"
        assert start.objective_ns is not None
        assert warm.objective_ns <= start.objective_ns, f"worse than its start plan, of {name}"


def check_no_time(trial: Trial, problem: Any, whole: AnyResult) -> None:
    """Assert what holds without time, and if the solve is cancelled.

    There is a plan or a reason, and the bound holds for the plan that more time finds.
    """
    stopped = threading.Event()
    stopped.set()
    for limit in (1e-9, Deadline(None, stopped)):
        result = trial.solve(problem, limit)
        assert result.status is not Status.INFEASIBLE or result.infeasibility is not None
        bound, cost = result.lower_bound_ns, whole.objective_ns
        if bound is None or cost is None:
            continue
        if trial.family.same_bound(result.plan, whole.plan):
            assert bound <= cost, "more time finds a plan below the bound"


def check_elsewhere(trial: Trial, method: str | Method[Any, Any]) -> None:
    """Assert that other processes, which order sets otherwise, plan the same."""
    here = [trial.solve(problem).plan for problem in trial.met]
    for seed in ("1", "2"):
        there = _asked(trial, method, trial.met, None, seed)
        assert there == here, "another process plans otherwise"


def check_limit(trial: Trial, method: str | Method[Any, Any], large: Any) -> None:
    """Assert that a method ends soon after its time limit."""
    try:
        _asked(trial, method, [large], 0.2, "0")
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{trial.name} did not end at its time limit") from None


def _asked(
    trial: Trial,
    method: str | Method[Any, Any],
    asked: Sequence[Any],
    limit: float | None,
    seed: str,
) -> list[Any]:
    """Return the plans that another process makes."""
    kind = type(trial.family)
    known = {name: value for name, value in vars(trial.family).items() if name != "methods"}
    message = pickle.dumps((kind, known, method, list(asked), limit))
    if limit is None and isinstance(method, str) and kind.__module__.startswith("planner."):
        process = _process(seed)  # its modules are the same in all trials
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(message)
        process.stdin.flush()
        answer = pickle.load(process.stdout)  # noqa: S301 - of a process begun here
    else:
        done = subprocess.run(
            _COMMAND,
            input=message,
            env=_surroundings(seed),
            capture_output=True,
            check=False,
            timeout=None if limit is None else limit + _GRACE_S,
        )
        assert done.returncode == 0, done.stderr.decode()
        answer = pickle.loads(done.stdout)  # noqa: S301 - of a process begun here
    assert not isinstance(answer, str), answer
    plans: list[Any] = answer
    return plans


_COMMAND = (sys.executable, "-c", _AGAIN)


def _surroundings(seed: str) -> dict[str, str]:
    paths = os.pathsep.join(sys.path)
    return {**os.environ, _ELSEWHERE: "1", "PYTHONHASHSEED": seed, "PYTHONPATH": paths}


@cache
def _process(seed: str) -> "subprocess.Popen[bytes]":
    """Return a process that solves problems until this one ends, begun once: that takes long."""
    process = subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_surroundings(seed)
    )
    atexit.register(_end, process)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.communicate()  # closes its input


def _same(result: AnyResult, other: AnyResult) -> bool:
    return (result.plan, result.objective_ns, result.lower_bound_ns) == (
        other.plan,
        other.objective_ns,
        other.lower_bound_ns,
    )
