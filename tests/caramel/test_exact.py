"""The constraint program against enumeration and dynamic programs."""

from fractions import Fraction
from math import ceil
from random import Random
from time import process_time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, TableCost
from planner.families.caramel.exact_split import (
    Grouping,
    best_grouping,
    is_subadditive,
    model_lines,
    rounded_up,
)
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline
from planner.testing.strategies import affine_costs, depth_costs, table_costs
from tests.caramel.exact_oracles import best_split, is_complete, price, unrounded
from tests.caramel.window_strategies import windows_strategy

costs = st.one_of(affine_costs(), affine_costs(), table_costs(), depth_costs())


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
def test_as_good_as_every_split_plan(one: Windows, cost: TransferCost, quantum: int) -> None:
    if not is_subadditive(cost, sum(one.sizes)):
        with pytest.raises(NotApplicableError):
            grouped(one, cost)
        return
    assert solved(one, cost, quantum) == best_split(one, cost, quantum)


@settings(max_examples=60)
@given(windows_strategy(3, max_bytes=4), affine_costs(), st.integers(0, 3), st.integers(0, 3))
def test_only_better_than_known(one: Windows, cost: AffineCost, above: int, below: int) -> None:
    best = best_split(one, cost)
    assume(above + below > 0)
    found = best_grouping(one, cost, best + above, deadline=Deadline(None), lower=best - below)
    assert not found.timed_out
    if above:
        assert found.value is not None
        assert best <= found.value == price(one, cost, found.groups) < best + above
        assert found.lower_bound <= best
    else:
        assert found.value is None
        assert found.groups == ()
        assert found.lower_bound == best


def test_a_plan_that_meets_the_known_bound_ends_the_search() -> None:
    one, cost = random_windows(40, 1), AffineCost(10**5, Fraction(8, 5))
    known = at_once(one, cost)
    found = best_grouping(one, cost, known, deadline=Deadline(None), lower=known)
    assert found == Grouping((), None, known, timed_out=False)


def random_windows(count: int, seed: int) -> Windows:
    random = Random(seed)
    heads = tuple(random.randint(0, 10**7) for _ in range(count))
    tails = tuple(random.randint(0, 10**7) for _ in range(count))
    sizes = tuple(4 * random.randint(1, 10**6) for _ in range(count))
    return Windows(sizes, heads, tails, max(heads), max(tails))


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_out_of_time_there_is_a_bound(seconds: float) -> None:
    one, cost = random_windows(14, 3), AffineCost(10**6, Fraction(2, 3))
    known = at_once(one, cost)
    found = grouped(one, cost, 4, seconds)
    if found.value is not None:
        assert found.value == price(one, cost, found.groups) <= known
        assert is_complete(one, found.groups)
    assert preemptive_bound(one, cost) <= found.lower_bound <= (found.value or known)
    assert found.timed_out or found.lower_bound == found.value
    unknown = best_grouping(one, cost, known, deadline=Deadline(0), quantum=4)
    assert unknown.value is None
    assert unknown.timed_out
    assert unknown.lower_bound < known


def test_times_of_many_digits_are_stopped_in_time() -> None:
    """CP-SAT's probing did not look at the clock: 0.6 s or more were over before it did."""
    one = Windows((1611416, 2, 3), (13, 13, 0), (0, 0, 0), 13, 0)
    rate, known = Fraction(6250000000000000000, 1111111111111111), 9064243127
    begin = process_time()
    found = best_grouping(one, AffineCost(0, rate), known, deadline=Deadline(0.05), lower=1)
    assert process_time() - begin < 0.3
    assert found.lower_bound <= known


def test_large_times_are_exact_or_refused() -> None:
    def shifted(by: int) -> Windows:
        return Windows((3, 5, 2), (by, by + 4, by + 9), (by + 7, by + 3, by), by + 9, by + 7)

    cost = AffineCost(4, Fraction(1, 3))
    best = solved(shifted(0), cost)
    assert best < 30
    assert solved(shifted(2**60), cost) == best + 2**61, "only differences matter"
    far = Windows((3, 5), (0, 2**60), (2**60, 0), 2**60, 2**60)
    with pytest.raises(NotApplicableError, match="60 bits") as error:
        grouped(far, AffineCost(2**60, Fraction(1)))
    assert error.value.path == "method"


def test_a_quantum_is_positive() -> None:
    one = Windows((1,), (0,), (0,), 0, 0)
    with pytest.raises(InvalidInputError, match="quantum"):
        grouped(one, AffineCost(1, Fraction(1)), quantum=0)


fractions = st.fractions(min_value=-50, max_value=50, max_denominator=10**6)


@given(fractions, st.integers(1, 60))
def test_the_simplest_rate_that_rounds_alike(rate: Fraction, most: int) -> None:
    simple = rounded_up(rate, most)
    assert simple.denominator <= most
    assert all(ceil(simple * size) == ceil(rate * size) for size in range(most + 1))


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
    if found:
        assert not worse
    if isinstance(cost, TableCost) and not worse:
        assert found, "a table has its corners at whole sizes"


def test_a_jump_between_sizes_is_not_subadditive() -> None:
    cost = TableCost(((1, 1), (2, 1), (3, 10), (4, 11)))
    assert is_subadditive(cost, 2)
    assert not is_subadditive(cost, 3)
    one = Windows((1, 2), (0, 0), (0, 0), 0, 0)
    with pytest.raises(NotApplicableError, match="never take less"):
        grouped(one, cost)
