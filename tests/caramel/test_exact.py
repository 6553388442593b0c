"""The exact methods against enumeration and dynamic programs, and at the edge of the range."""

from fractions import Fraction
from random import Random
from time import process_time

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, Status, TableCost
from planner.families.caramel import Problem, solve
from planner.families.caramel.exact_split import (
    Grouping,
    best_grouping,
    is_subadditive,
    model_lines,
)
from planner.families.caramel.exact_whole import best_whole
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import DepthCost, TransferCost
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER, Deadline
from planner.testing.strategies import affine_costs, depth_costs, table_costs
from tests.caramel.exact_oracles import (
    best_by_enumeration,
    best_split,
    is_complete,
    price,
    unrounded,
)
from tests.caramel.making import apart
from tests.caramel.window_strategies import windows_strategy
from tests.formats.refused import refused
from tests.present import present
from tests.solved import Solved
from tests.strategies import huge

costs = st.one_of(affine_costs(), affine_costs(), table_costs(), depth_costs())


JUMP = TableCost(((1, 1), (2, 1), (3, 10), (4, 11)))
"""From 2 bytes to 3, so that two transfers take less than one."""

CROSSING = DepthCost(
    ((1, TableCost(((1, 8), (5, 8), (10, 58)))), (2, TableCost(((1, 23), (10, 14), (11, 14)))))
)
"""At 6 bytes, where the depths cost the same, transfers of 1 and 5 bytes take less than one."""


def at_once(one: Windows, cost: TransferCost) -> int:
    """Return the value of the plan that sends everything in one transfer."""
    return price(one, cost, [list(enumerate(one.sizes))])


def grouped(one: Windows, cost: TransferCost, quantum: int = 1, seconds: float = 60) -> Grouping:
    """Solve for any plan as good as all in one transfer."""
    deadline = Deadline(seconds)
    return best_grouping(one, cost, at_once(one, cost) + 1, deadline=deadline, quantum=quantum)


def solved(one: Windows, cost: TransferCost, quantum: int = 1) -> int:
    """Solve to the end, check the plan and return its value."""
    found = grouped(one, cost, quantum)
    assert found.value is not None
    assert not found.timed_out
    assert found.lower_bound == found.value == price(one, cost, found.groups)
    assert is_complete(one, found.groups)
    left = list(one.sizes)
    for group in found.groups:
        for j, amount in group:
            assert amount == left[j] or amount % quantum == 0
            left[j] -= amount
    return found.value


@settings(max_examples=80)
@given(windows_strategy(3, max_bytes=4), costs, st.sampled_from([1, 1, 2, 3]))
@example(Windows((1, 2), (0, 0), (0, 0), 0, 0), JUMP, 1)
def test_as_good_as_every_split_plan(one: Windows, cost: TransferCost, quantum: int) -> None:
    if not is_subadditive(cost, sum(one.sizes)):
        with pytest.raises(NotApplicableError, match="never take less"):
            grouped(one, cost)
        return
    assert solved(one, cost, quantum) == best_split(one, cost, quantum)


@settings(max_examples=60)
@given(windows_strategy(3, max_bytes=4), affine_costs(), st.integers(0, 3), st.integers(0, 3))
def test_only_better_than_known(one: Windows, cost: AffineCost, above: int, below: int) -> None:
    best = best_split(one, cost)
    found = best_grouping(one, cost, best + above, deadline=NEVER, lower=best - below)
    assert not found.timed_out
    if not above:
        assert (found.groups, found.value, found.lower_bound) == ((), None, best)
        return
    assert best <= present(found.value) == price(one, cost, found.groups) < best + above
    assert found.lower_bound <= best


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_out_of_time_there_is_a_bound(seconds: float) -> None:
    random, cost = Random(3), AffineCost(10**6, Fraction(2, 3))
    heads, tails = (tuple(random.randint(0, 10**7) for _ in range(14)) for _ in range(2))
    sizes = tuple(4 * random.randint(1, 10**6) for _ in range(14))
    one = Windows(sizes, heads, tails, max(heads), max(tails))
    known = at_once(one, cost)
    found = grouped(one, cost, 4, seconds)
    if found.value is not None:
        assert found.value == price(one, cost, found.groups) <= known
        assert is_complete(one, found.groups)
    assert preemptive_bound(one, cost) <= found.lower_bound <= (found.value or known)
    assert found.timed_out or found.lower_bound == found.value
    unknown = best_grouping(one, cost, known, deadline=Deadline(0), quantum=4)
    assert (unknown.value, unknown.timed_out) == (None, True)
    assert unknown.lower_bound < known
    assert best_whole(one, cost, known, 0, Deadline(0)) == (None, True)


def test_times_of_many_digits_are_stopped_in_time() -> None:
    """CP-SAT's probing did not look at the clock: 0.6 s or more were over before it did."""
    one = Windows((1611416, 2, 3), (13, 13, 0), (0, 0, 0), 13, 0)
    rate, known = Fraction(6250000000000000000, 1111111111111111), 9064243127
    begin = process_time()
    found = best_grouping(one, AffineCost(0, rate), known, deadline=Deadline(0.05), lower=1)
    assert process_time() - begin < 0.3
    assert found.lower_bound <= known


def test_large_times_are_exact_or_refused_and_a_quantum_is_positive() -> None:
    def shifted(by: int) -> Windows:
        return Windows((3, 5, 2), (by, by + 4, by + 9), (by + 7, by + 3, by), by + 9, by + 7)

    cost = AffineCost(4, Fraction(1, 3))
    best = solved(shifted(0), cost)
    assert best < 30
    assert solved(shifted(2**60), cost) == best + 2**61, "only differences matter"
    far = Windows((3, 5), (0, 2**60), (2**60, 0), 2**60, 2**60)
    with refused("method", "60 bits", NotApplicableError):
        grouped(far, AffineCost(2**60, Fraction(1)))
    with pytest.raises(InvalidInputError, match="quantum"):
        grouped(far, cost, quantum=0)


@given(costs, st.integers(1, 9), st.integers(1, 40))
@example(AffineCost(3, Fraction(repr(0.1234567891234567))), 4, 40)
def test_lines_are_the_cost(cost: TransferCost, unit: int, count: int) -> None:
    lines = model_lines(cost, unit, unit * count, 10**9)
    for size in range(1, count + 1):
        times = [
            -(-(line.num * size + line.constant) // line.den)
            for line in lines
            if line.first <= size <= line.last
        ]
        assert min(times) == cost.cost_ns(unit * size)


@given(costs, st.integers(2, 60))
@example(JUMP, 3)
@example(CROSSING, 10)
def test_subadditive_costs_are_found(cost: TransferCost, total: int) -> None:
    halves = [Fraction(number, 2) for number in range(2, 2 * total + 1)]
    times = {size: unrounded(cost, size) for size in halves}
    worse = any(
        times[a] + times[b] < times[a + b]
        for number, a in enumerate(halves)
        for b in halves[: number + 1]
        if a + b <= total
    )
    found = is_subadditive(cost, total)
    assert not (found and worse)
    assert found or worse or not isinstance(cost, TableCost), "its corners are at whole sizes"


# The dynamic program over sets of whole parameters.


def whole(known: Windows, cost: TransferCost, below: int) -> int | None:
    """Return the value of the best plan below a value, if there is one."""
    loads, timed_out = best_whole(known, cost, below, known.compute_ns, NEVER)
    assert not timed_out
    return None if loads is None else LoadPricer(known, cost).iteration_ns(loads)


@settings(max_examples=200)
@given(windows_strategy(5) | windows_strategy(6, min_parameters=6), costs, st.integers(1, 10**6))
def test_the_best_of_all_plans_of_whole_parameters(
    known: Windows, cost: TransferCost, above: int
) -> None:
    best = best_by_enumeration(known, cost)
    assert whole(known, cost, best + above) == best
    assert whole(known, cost, best) is None


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
huge_sizes = st.integers(1, 6) | huge.map(lambda size: max(size, 1))


@st.composite
def huge_problems(draw: st.DrawFn) -> Problem:
    """Up to four parameters, each with an op of its own in both passes."""
    layers = draw(st.lists(st.tuples(huge, huge, huge_sizes), min_size=1, max_size=4))
    try:
        element = max(draw(huge), 1)
        return Problem(apart(*layers), draw(huge_costs), workers=2, element_bytes=element)
    except InvalidInputError:
        reject()


def dear_in_the_middle() -> Problem:
    """Return gradients that are cheap alone and together; two of them together are dear."""
    cost = TableCost(((1, 1), (6, 2), (7, 2**62), (8, 2), (27, 3), (28, 3)))
    return Problem(apart((2**61, 0, 1), (0, 2**61, 6), (0, 0, 20)), cost)


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
    _, iteration_ns, bound_ns = Solved.of(result)
    assert bound_ns <= iteration_ns <= MAX
    if method == "exact":
        assert iteration_ns == best
        assert result.status is Status.OPTIMAL
    if method == "auto":
        assert max(bound_ns, iteration_ns) <= best


@settings(max_examples=300)
@given(huge_costs, st.lists(huge, min_size=1, max_size=5))
def test_arrays_are_exact_or_refused(cost: TransferCost, sizes: list[int]) -> None:
    expected = [cost.cost_ns(size) for size in sizes]
    array = np.array(sizes, dtype=np.int64)
    if max(expected) > MAX:
        with refused("network", "63 bits"):
            cost.costs_ns(array)
    else:
        assert cost.costs_ns(array).tolist() == expected
