"""The overlap family: its methods by name, and how plans are checked, priced and bounded.

`auto` is `exact` for small graphs, and `search` beyond.

In a scenario the durations of nodes, and what packing and unpacking take, are computation. The time
of the smallest transfer of a kind is its start-up; the time beyond it depends on the bandwidth.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from planner.families.overlap.bounds import lower_bound_ns
from planner.families.overlap.evaluation import (
    Evaluation,
    Plan,
    check_memory,
    check_structure,
    evaluate,
    makespan_ns,
)
from planner.families.overlap.problem import Problem
from planner.families.overlap.robust import (
    MAX_LOSS,
    SCENARIOS,
    TRIES,
    USUAL,
    candidates,
    neighbours,
    perturbed,
)
from planner.families.overlap.search import greedy, own, search
from planner.model.units import counted, format_bytes, format_ns
from planner.solving.compare import Column
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, lazy_method, named
from planner.solving.scenarios import Scenario

Method: TypeAlias = AnyMethod[Problem, Plan]

_SMALL = 14
"""Most nodes for which `auto` is `exact`."""

_exact = lazy_method("planner.families.overlap.exact", "solve_exact", "OR-Tools")


def small(problem: Problem) -> bool:
    """Return whether `exact` can solve the problem."""
    from planner.families.overlap.exact import applicable

    return applicable(problem)


def _is_small(problem: Problem) -> bool:
    """Return whether `auto` is `exact`."""
    return len(problem.nodes) <= _SMALL and small(problem)


def _auto(problem: Problem, deadline: Deadline, *, start: Plan | None = None) -> Outcome[Plan]:
    if _is_small(problem):
        return named("exact", _exact)(problem, deadline)
    return named("search", partial(search, start=start))(problem, deadline)


class _Overlap(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "overlap", Plan, ("greedy", "own_order")
    scenarios, max_loss = SCENARIOS, MAX_LOSS
    own_methods = {
        "auto": _auto,
        "search": search,
        "greedy": greedy,
        "own_order": own,
        "exact": _exact,
    }

    asks = "in which order a compiled graph issues its nodes"
    example = "planner compare data/overlap/two-layers.json"
    columns = (
        Column.of("time", "makespan_ns"),
        Column.of("not hidden", "exposed_ns"),
        Column("transfers", lambda _, __, cost: len(cost.transfers), ","),
        Column.of("memory", "peak_bytes", "bytes"),
    )

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check_structure(problem, plan)
        check_memory(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.makespan_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        if deadline.passed:
            return problem.computation_ns, True
        return lower_bound_ns(problem, deadline)

    def summary(self, problem: Problem) -> str:
        limit = problem.memory_limit_bytes
        return (
            f"{counted(len(problem.nodes), 'node')}, "
            f"{format_ns(problem.computation_ns)} of computation, "
            f"{counted(len(problem.collectives), 'collective')} on "
            f"{counted(len(problem.channels), 'channel')}, memory "
            f"{'without limit' if limit is None else format_bytes(limit)}"
        )

    def resume(self, problem: Problem, plan: Plan) -> Mapping[str, Method]:
        begun = {"auto": partial(_auto, start=plan), "search": partial(search, start=plan)}
        return {**self.methods, **begun}

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        return perturbed(problem, scenario)

    def quick(self, problem: Problem) -> str:
        return "auto" if _is_small(problem) else "greedy"

    def lasting(self, problem: Problem, plan: Plan) -> int:
        return makespan_ns(problem, plan)

    def candidates(
        self, problem: Problem, plans: Sequence[Plan], deadline: Deadline
    ) -> Iterator[Plan]:
        return candidates(problem, plans, deadline)

    def neighbours(
        self, problem: Problem, variants: Sequence[Problem], plan: Plan
    ) -> Iterator[Plan]:
        return neighbours(problem, variants, plan)

    def budget(self, problem: Problem, plan: Plan) -> int:
        return TRIES * len(USUAL.scenarios)


OVERLAP = _Overlap()
METHODS = OVERLAP.methods
solve = OVERLAP.solve
