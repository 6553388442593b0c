"""Carlier's branch and bound against all orders."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.carlier import carlier, schrage
from planner.solving.deadline import Deadline
from planner.solving.jackson import preemptive
from planner.solving.tie_break import NOMINAL, Step, delayed_makespan
from tests.caramel.exact_oracles import best_sequence
from tests.strategies import huge, times

small = st.integers(0, 12)
jobs = st.lists(st.tuples(small, small, small) | st.tuples(times, times, times), min_size=1)


def lasting(order: Sequence[int], *times: Sequence[int]) -> int:
    return delayed_makespan(NOMINAL, [Step(*(own[job] for own in times)) for job in order], 0)


@settings(max_examples=150)
@given(jobs.map(lambda rows: rows[:7]))
def test_as_good_as_every_order(rows: list[tuple[int, int, int]]) -> None:
    heads, durations, tails = zip(*rows, strict=True)
    found = carlier(heads, durations, tails, Deadline(None))
    assert sorted(found.order) == list(range(len(rows)))
    assert found.value == lasting(found.order, heads, durations, tails)
    assert found.value == found.lower_bound == best_sequence(heads, durations, tails)
    assert not found.timed_out


@settings(max_examples=40)
@given(st.lists(st.tuples(huge, huge, huge), min_size=1, max_size=5))
def test_huge_times_are_exact(rows: list[tuple[int, int, int]]) -> None:
    heads, durations, tails = zip(*rows, strict=True)
    found = carlier(heads, durations, tails, Deadline(None))
    assert found.value == found.lower_bound == best_sequence(heads, durations, tails)


def hard_jobs(count: int, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Carlier's own test: heads and tails from a range of count · K, durations up to 50."""
    random = Random(seed)
    spread = count * random.randint(1, 25)
    return (
        [random.randint(0, spread) for _ in range(count)],
        [random.randint(1, 50) for _ in range(count)],
        [random.randint(0, spread) for _ in range(count)],
    )


@pytest.mark.parametrize("seed", range(5))
def test_hundreds_of_jobs_to_the_end(seed: int) -> None:
    heads, durations, tails = hard_jobs(200, seed)
    found = carlier(heads, durations, tails, Deadline(20))
    assert not found.timed_out
    assert found.lower_bound == found.value
    assert found.value >= preemptive(zip(heads, durations, tails, strict=True))
    assert found.value <= lasting(schrage(heads, durations, tails), heads, durations, tails)


def test_without_time_there_is_an_order_and_a_bound() -> None:
    # Schrage runs job 0 first, and job 1, which all wait for, comes one step later.
    heads, durations, tails = (0, 1, 2), (10, 5, 1), (0, 20, 3)
    found = carlier(heads, durations, tails, Deadline(0))
    assert found.timed_out
    assert sorted(found.order) == [0, 1, 2]
    assert found.lower_bound <= best_sequence(heads, durations, tails) < found.value
    assert carlier(heads, durations, tails, Deadline(None)).value == 26
