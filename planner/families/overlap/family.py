"""The overlap family: its methods by name, and how plans are checked, priced and bounded.

`auto` is `exact` for small graphs, and `search` beyond.

In a scenario the durations of nodes, and what packing and unpacking take, are computation. The time
of the smallest transfer of a kind is its start-up; the time beyond it depends on the bandwidth.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from planner.families.overlap.bounds import lower_bound_ns
from planner.families.overlap.evaluation import (
    Evaluation,
    Plan,
    check_memory,
    check_structure,
    evaluate,
)
from planner.families.overlap.problem import Collective, Kind, Problem
from planner.families.overlap.search import greedy, own, search
from planner.model.units import counted, format_bytes, format_ns
from planner.solving.compare import Column
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, lazy_method, named
from planner.solving.scenarios import Scenario, refuse_changes

Method: TypeAlias = AnyMethod[Problem, Plan]

_SMALL = 14
"""Most nodes for which `auto` is `exact`."""

_exact = lazy_method("planner.families.overlap.exact", "solve_exact", "OR-Tools")


def small(problem: Problem) -> bool:
    """Return whether `exact` can solve the problem."""
    from planner.families.overlap.exact import applicable

    return applicable(problem)


def _auto(problem: Problem, deadline: Deadline, *, start: Plan | None = None) -> Outcome[Plan]:
    if len(problem.nodes) <= _SMALL and small(problem):
        return named("exact", _exact)(problem, deadline)
    return named("search", partial(search, start=start))(problem, deadline)


class _Overlap(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "overlap", Plan, ("greedy", "own_order")
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

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        """Return the evaluation; raise `BrokenConstraintError` beyond the memory limit."""
        evaluation = evaluate(problem, plan)
        check_memory(problem, evaluation)
        return evaluation

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.makespan_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
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
        reason = "a graph of overlap has no passes and no spreads"
        refuse_changes(scenario, ("late", "spread", "part"), reason)
        nodes = (
            replace(node, duration_ns=round(node.duration_ns * scenario.computation))
            for node in problem.nodes
        )
        return replace(
            problem,
            nodes=tuple(nodes),
            kinds=tuple(_scaled(kind, scenario) for kind in problem.kinds),
            collectives=tuple(_packed(it, scenario.computation) for it in problem.collectives),
        )


def _scaled(kind: Kind, scenario: Scenario) -> Kind:
    """Return a kind with the times of a scenario."""
    first = kind.times[0][1]
    times = (
        (size, round(first * scenario.startup + (time - first) / scenario.bandwidth))
        for size, time in kind.times
    )
    return replace(kind, times=tuple(times))


def _packed(collective: Collective, factor: Fraction) -> Collective:
    """Return a collective whose packing and unpacking take other times."""
    pack, unpack = round(collective.pack_ns * factor), round(collective.unpack_ns * factor)
    return replace(collective, pack_ns=pack, unpack_ns=unpack)


OVERLAP = _Overlap()
METHODS = OVERLAP.methods
solve = OVERLAP.solve
