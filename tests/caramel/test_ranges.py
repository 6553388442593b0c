"""Times near the largest that are allowed: no sum wraps, every answer is exact or refused."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, Status, TableCost
from planner.families.caramel import Problem, solve
from planner.families.caramel.exact_whole import best_whole
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import DepthCost, TransferCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.solving.deadline import Deadline
from tests.caramel.exact_oracles import best_by_enumeration
from tests.strategies import huge

MAX = 2**63 - 2


@st.composite
def huge_affine(draw: st.DrawFn) -> AffineCost:
    rate = Fraction(draw(huge), draw(st.sampled_from([1, 1, 3, 2**20, 2**61 - 1, 2**62])))
    return AffineCost(draw(huge), rate)


@st.composite
def huge_tables(draw: st.DrawFn) -> TableCost:
    """Tables that may be dearest in the middle, where no total of the problem looks."""
    sizes = sorted(draw(st.sets(st.integers(0, 12) | huge, min_size=2, max_size=4)))
    heights = [draw(huge) for _ in sizes]
    heights[-1] = max(heights[-2:])
    return TableCost(tuple(zip(sizes, heights, strict=True)))


@st.composite
def huge_depths(draw: st.DrawFn) -> DepthCost:
    depths = [1, *sorted(draw(st.sets(st.sampled_from([2, 4, 8]), min_size=1, max_size=2)))]
    one = huge_affine() | huge_tables()
    return DepthCost(tuple((depth, draw(one)) for depth in depths))


huge_costs = st.one_of(huge_affine(), huge_tables(), huge_depths(), huge_depths())


@st.composite
def huge_problems(draw: st.DrawFn) -> Problem:
    """Up to four parameters, each with an op of its own in both passes."""
    count = draw(st.integers(1, 4))
    ops = [Op(f"f{j}", draw(huge), "forward") for j in range(count)]
    ops += [Op(f"b{j}", draw(huge), "backward", (f"f{j}",)) for j in range(count)]
    sizes = st.integers(1, 6) | huge.map(lambda size: max(size, 1))
    parameters = [Parameter(f"w{j}", draw(sizes), (f"b{j}",), (f"f{j}",)) for j in range(count)]
    try:
        graph = Graph(tuple(ops), tuple(parameters))
        return Problem(graph, draw(huge_costs), workers=2, element_bytes=max(draw(huge), 1))
    except InvalidInputError:
        reject()


def dear_in_the_middle() -> Problem:
    """Return gradients that are cheap alone and together; two of them together are dear."""
    durations = {"f0": 2**61, "b1": 2**61}
    ops = [Op(f"f{j}", durations.get(f"f{j}", 0), "forward") for j in range(3)]
    ops += [Op(f"b{j}", durations.get(f"b{j}", 0), "backward", (f"f{j}",)) for j in range(3)]
    parameters = [
        Parameter(f"w{j}", size, (f"b{j}",), (f"f{j}",)) for j, size in enumerate((1, 6, 20))
    ]
    cost = TableCost(((1, 1), (6, 2), (7, 2**62), (8, 2), (27, 3), (28, 3)))
    return Problem(Graph(tuple(ops), tuple(parameters)), cost)


@settings(max_examples=150)
@given(huge_problems(), st.sampled_from(["exact", "exact", "exact", "auto", "caramel"]))
@example(dear_in_the_middle(), "exact")
def test_answers_are_exact_or_refused(problem: Problem, method: str) -> None:
    known, cost = problem.windows, problem.cost
    best = best_by_enumeration(known, cost)
    try:
        result = solve(problem, method=method)
    except InvalidInputError as error:
        assert (error.path, method) == ("network", "caramel")  # noqa: PT017 - not worth it there
        return
    except NotApplicableError:
        return
    assert result.objective_ns is not None
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= result.objective_ns <= MAX
    if method == "exact":
        assert result.objective_ns == best
        assert result.status is Status.OPTIMAL
    if method == "auto":
        assert result.lower_bound_ns <= best
        assert result.objective_ns <= best


@settings(max_examples=150)
@given(st.data(), huge_costs)
def test_the_dynamic_program_never_wraps(data: st.DataObject, cost: TransferCost) -> None:
    """Windows by themselves, up to the largest times a problem lets through."""
    count = data.draw(st.integers(1, 4))

    def drawn(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(values, min_size=count, max_size=count)))

    sizes = drawn(st.integers(1, 6) | huge.map(lambda size: max(size, 1)))
    heads, tails = drawn(huge), drawn(huge)
    known = Windows(sizes, heads, tails, max(heads), max(tails))
    best = best_by_enumeration(known, cost)
    if best >= MAX or cost.cost_ns(sum(sizes)) > MAX or sum(sizes) > MAX:
        reject()
    loads, timed_out = best_whole(known, cost, best + 1, known.compute_ns, Deadline(None))
    assert not timed_out
    if loads is None:
        assert best == known.compute_ns
        return
    assert LoadPricer(known, cost).iteration_ns(loads) == best


@settings(max_examples=300)
@given(huge_costs, st.lists(huge, min_size=1, max_size=5))
def test_arrays_are_exact_or_refused(cost: TransferCost, sizes: list[int]) -> None:
    expected = [cost.cost_ns(size) for size in sizes]
    array = np.array(sizes, dtype=np.int64)
    if max(expected) > MAX:
        with pytest.raises(InvalidInputError, match="63 bits") as error:
            cost.costs_ns(array)
        assert error.value.path == "network"
    else:
        assert cost.costs_ns(array).tolist() == expected
