"""Jackson's preemptive schedule against the sets that bound it, and the bound against plans."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost, least_rate
from planner.solving.jackson import preemptive
from planner.testing import costs
from tests.caramel.exact_oracles import preemptive_value, price, unrounded
from tests.strategies import times

jobs = st.lists(st.tuples(times, times, times), min_size=1, max_size=7)


@given(jobs, st.integers(1, 5))
def test_the_worst_set_of_jobs_decides(rows: list[tuple[int, int, int]], parts: int) -> None:
    heads, durations, tails = zip(*rows, strict=True)
    assert preemptive(rows) == preemptive_value(heads, durations, tails)
    rational = [Fraction(duration, parts) for duration in durations]
    jobs = zip(heads, rational, tails, strict=True)
    assert preemptive(jobs) == preemptive_value(heads, rational, tails)


def test_by_hand() -> None:
    # At 2 the short one with the long tail interrupts.
    assert preemptive([(0, 5, 0), (2, 1, 9)]) == 12
    assert preemptive([]) == 0


@given(costs(), st.integers(1, 150))
def test_the_least_rate_is_that_of_some_size_or_less(cost: TransferCost, most: int) -> None:
    rates = (unrounded(cost, size) / size for size in range(1, most + 1))
    assert least_rate(cost, most) == min(rates)


def test_all_in_one_transfer_without_other_work_meets_the_bound() -> None:
    one = Windows(sizes=(3, 4), heads=(5, 5), tails=(2, 2), backward_ns=5, forward_ns=2)
    cost = AffineCost(10, Fraction(1, 2))
    assert preemptive_bound(one, cost) == price(one, cost, [[(0, 3), (1, 4)]]) == 21
