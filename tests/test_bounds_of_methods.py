"""Every method's bound against every other method's plan, for all families.

A bound is a statement about plans that others make, so they are its witnesses; a method's own plan
is not. Where a bound is proven for some plans only, it is held against those: for one op order,
which all methods of `caramel` and `iteration` are given here, and for the classes that a family's
`solve` names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.families.fsdp.min_memory import least_memory
from planner.families.iteration.plan import Mode
from planner.model.errors import NotApplicableError
from planner.solving.result import Result
from tests import strategies
from tests.bigdl.replays import problems as bigdl_problems
from tests.bml.test_solver import damaged
from tests.caramel.test_methods import costs
from tests.drizzle.drizzle_strategies import problems as drizzle_problems
from tests.fsdp.making import problems as fsdp_problems
from tests.iteration.iteration_strategies import problems as iteration_problems
from tests.overlap.strategies import problems as overlap_problems
from tests.yan.small_problems import small_problems

Answers = Mapping[str, Result[Any, Any]]

CANONICAL = {"exact", "brute_force", "data_parallel", "model_parallel", "median", "worst"}
"""Methods of `yan` whose layers are mapped canonically, for which exact bounds hold."""


@pytest.fixture(autouse=True, scope="module")
def _hardly_any_cutting() -> Iterator[None]:
    """The search for cuts is tested with its family; here it would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.families.caramel.methods.SPLIT_WORK", 0.002)
        yield


def answers(
    solve: Callable[..., Result[Any, Any]], methods: Iterable[str], problem: Any
) -> Answers:
    """Ask every method; those that are not for this problem, or find no plan, say nothing."""
    found = {}
    for method in methods:
        try:
            result = solve(problem, method=method)
        except NotApplicableError:
            continue
        if result.plan is not None:
            found[method] = result
    return found


def no_bound_is_above_a_plan(
    found: Answers, holds: Callable[[str, str], bool] = lambda *_: True
) -> None:
    """Compare all pairs of a bound and a plan it holds for."""
    for bounded, one in found.items():
        for made, other in found.items():
            if one.lower_bound_ns is not None and holds(bounded, made):
                assert other.objective_ns is not None
                assert one.lower_bound_ns <= other.objective_ns, (bounded, made)


@pytest.mark.slow
@settings(max_examples=30)
@given(strategies.problems(max_layers=6))
def test_ibatch(problem: ibatch.Problem) -> None:
    no_bound_is_above_a_plan(answers(ibatch.solve, ibatch.METHODS, problem))


@pytest.mark.slow
@settings(max_examples=30)
@given(iteration_problems(max_parameters=3, one_order=True), costs)
def test_caramel(problem: iteration.Problem, cost: Any) -> None:
    one = replace(problem.base, cost=cost)
    found = answers(caramel.solve, caramel.METHODS, one)
    sizes = one.windows.sizes

    def whole(method: str) -> bool:
        plan = found[method].plan
        assert plan is not None
        groups = plan.groups
        return all(
            part.stop - part.start == sizes[part.parameter]
            for group in groups
            for part in group.parts
        )

    no_bound_is_above_a_plan(found, lambda bounded, made: bounded != "exact" or whole(made))


@pytest.mark.slow
@pytest.mark.parametrize("speeds", [False, True])
@settings(max_examples=8)
@given(data=st.data())
def test_yan(speeds: bool, data: st.DataObject) -> None:
    problem = data.draw(small_problems(memory=data.draw(st.booleans()), speeds=speeds))
    found = answers(yan.solve, yan.METHODS, problem)

    def holds(bounded: str, made: str) -> bool:
        if bounded == "auto":
            bounded = "exact" if problem.uniform else "ordered"
        if made == "auto":
            made = "exact" if problem.uniform else "ordered"
        return bounded not in ("exact", "brute_force") or made in CANONICAL

    no_bound_is_above_a_plan(found, holds)


@pytest.mark.slow
@settings(max_examples=12)
@given(damaged())
def test_bml(problem: bml.Problem) -> None:
    no_bound_is_above_a_plan(answers(bml.solve, bml.METHODS, problem))


@settings(max_examples=40)
@given(bigdl_problems())
def test_bigdl(problem: bigdl.Problem) -> None:
    no_bound_is_above_a_plan(answers(bigdl.solve, bigdl.METHODS, problem))


@given(fsdp_problems(max_layers=4), st.integers(0, 60))
def test_fsdp(problem: fsdp.Problem, more: int) -> None:
    least = least_memory(problem, 0).memory_bytes
    no_bound_is_above_a_plan(answers(fsdp.solve, fsdp.METHODS, problem.within(least + more)))


@settings(max_examples=40)
@given(drizzle_problems())
def test_drizzle(problem: drizzle.Problem) -> None:
    no_bound_is_above_a_plan(answers(drizzle.solve, drizzle.METHODS, problem))


@settings(max_examples=20)
@given(overlap_problems())
def test_overlap(problem: overlap.Problem) -> None:
    no_bound_is_above_a_plan(answers(overlap.solve, overlap.METHODS, problem))


@pytest.mark.slow
@settings(max_examples=30)
@given(
    iteration_problems(one_order=True),
    st.sampled_from([("replicated", "sharded"), ("replicated",), ("sharded",)]),
)
def test_iteration(problem: iteration.Problem, modes: tuple[Mode, ...]) -> None:
    asked = replace(problem, modes=modes)
    no_bound_is_above_a_plan(answers(iteration.solve, iteration.METHODS, asked))
