"""Units of FSDP2 against all choices of consecutive modules, priced step by step."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.clusters import Cluster, Nic
from planner.deadline import NEVER
from planner.errors import NotApplicableError
from planner.graphs import Graph, Op, Parameter
from planner.iteration import Problem, evaluate, solve
from planner.iteration.for_fsdp2 import default, modules_of
from planner.iteration.for_target import exported
from planner.targets import FSDP2
from planner.topologies import Switch
from tests.caramel.test_targets import compositions
from tests.iteration.iteration_strategies import clusters
from tests.iteration.iteration_strategies import problems as any_problems
from tests.iteration.test_for_target import ring


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Problems whose parameters belong to a few modules."""
    sound = clusters().filter(lambda cluster: not cluster.failed)
    problem = draw(any_problems(cluster=sound, max_parameters=6, capped=False))
    parameters = tuple(
        replace(parameter, name=f"m{draw(st.integers(0, 4))}.{parameter.name}")
        for parameter in problem.graph.parameters
    )
    graph = Graph(problem.graph.ops, parameters)
    return replace(problem, graph=graph, target=FSDP2, algorithms=("ring",), op_order=None)


def lasts(problem: Problem, counts: Sequence[int]) -> tuple[int, int]:
    """Return what an iteration takes with units, scattered as ready, and in the order of use."""
    known, half = problem.base.windows, ring(problem).half
    modules = modules_of(problem)
    spans = list(pairwise(accumulate(counts, initial=0)))
    units = [[j for module in modules[a:b] for j in module] for a, b in spans]
    found = []
    for by_readiness in (True, False):
        pushes = [
            (max(known.heads[j] for j in unit), sum(problem.pushed[j] for j in unit))
            for unit in reversed(units)
        ]
        if by_readiness:
            pushes.sort(key=lambda push: push[0])
        free = 0
        for ready, size in pushes:
            free = max(free, ready) + half.cost_ns(size)
        now, end = max(free, known.backward_ns), known.compute_ns
        for unit in units:
            now += half.cost_ns(sum(problem.pulled[j] for j in unit))
            end = max(end, now + max(known.tails[j] for j in unit))
        found.append(end)
    return found[0], found[1]


@given(problems())
def test_units_are_the_best_of_all_consecutive_modules(problem: Problem) -> None:
    result, usual = solve(problem), solve(problem, method="fsdp2")
    assert result.plan is not None
    assert result.objective_ns is not None
    assert result.lower_bound_ns is not None
    assert usual.objective_ns is not None
    known = problem.base.windows
    heads = [max(known.heads[j] for j in module) for module in modules_of(problem)]
    times = [lasts(problem, counts) for counts in compositions(len(heads))]
    if heads == sorted(heads, reverse=True):
        assert result.objective_ns == result.lower_bound_ns == min(min(times))
    else:
        assert result.lower_bound_ns <= min(one for one, _ in times)
        assert result.objective_ns <= min(other for _, other in times)
    ones, everything = lasts(problem, [1] * len(heads)), lasts(problem, [len(heads)])
    assert usual.objective_ns == min(ones[0], everything[0]) >= result.objective_ns
    priced = exported(problem, result.plan, NEVER)
    assert (priced["fsdp2"].plan_ns, priced["fsdp2"].default_ns) == (
        result.objective_ns,
        usual.objective_ns,
    )
    assert priced["ddp"].plan_ns is None or problem.cluster.workers == 1


@given(problems())
def test_units_are_whole_modules_gathered_as_they_are_scattered(problem: Problem) -> None:
    plan = solve(problem).plan
    assert plan is not None
    units = {
        kind: {
            frozenset(part.parameter for part in transfer.parts)
            for transfer in plan.transfers
            if transfer.kind == kind
        }
        for kind in ("push", "pull")
    }
    assert units["push"] == units["pull"]
    for module in modules_of(problem):
        assert sum(unit >= set(module) for unit in units["pull"]) == 1
    assert set(plan.algorithms) <= {"ring", "none"}
    made = default(problem, ring(problem)).plan
    assert made is not None
    assert evaluate(problem, plan).iteration_ns <= evaluate(problem, made).iteration_ns


@given(problems(), st.integers(1, 120))
def test_units_of_several_modules_fit(problem: Problem, cap: int) -> None:
    mine = replace(problem, max_transfer_bytes=cap, element_bytes=1)
    largest = max(
        max(sum(mine.pushed[j] for j in module), sum(mine.pulled[j] for j in module))
        for module in modules_of(mine)
    )
    result = solve(mine)
    assert (result.plan is None) == (largest > cap)
    if result.plan is not None:
        assert all(transfer.size_bytes <= cap for transfer in result.plan.transfers)


@given(problems())
def test_replicated_plans_are_none_of_its(problem: Problem) -> None:
    with pytest.raises(NotApplicableError, match="are sharded"):
        solve(replace(problem, modes=("replicated",)))


def test_nothing_is_proven_of_modules_that_are_ready_in_the_order_of_use() -> None:
    ops = (
        Op("f0", 5, "forward"),
        Op("f1", 5, "forward", ("f0",)),
        Op("b0", 10, "backward", ("f1",)),
        Op("b1", 10, "backward", ("b0",)),
    )
    first, second = Parameter("a.w", 10, ("b0",), ("f0",)), Parameter("b.w", 10, ("b1",), ("f1",))
    # A byte of a half takes a nanosecond.
    cluster = Cluster("two", "a test", 2, Switch(2), Nic(Fraction(500_000_000), 0))
    result = solve(Problem(Graph(ops, (first, second)), cluster, target=FSDP2))
    assert result.plan is not None
    # a is scattered from 10 to 20, b from 20 to 30; gathered until 40, and 50, before 5 more.
    assert result.objective_ns == 55
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= 55
