"""The dynamic program over subsets against enumeration, and against itself in plain Python."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.exact_whole import best_whole
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, TransferCost
from planner.solving.deadline import Deadline
from planner.testing import costs
from tests.caramel.exact_oracles import best_by_enumeration, best_by_subsets
from tests.caramel.window_strategies import windows_strategy


@settings(max_examples=400)
@given(windows_strategy(5) | windows_strategy(6, min_parameters=6), costs(), st.integers(1, 10**6))
def test_the_best_of_all_plans_of_whole_parameters(
    known: Windows, cost: TransferCost, above: int
) -> None:
    best = best_by_enumeration(known, cost)
    loads, timed_out = best_whole(known, cost, best + above, known.compute_ns, Deadline(None))
    assert loads is not None
    assert not timed_out
    assert LoadPricer(known, cost).iteration_ns(loads) == best
    assert best_whole(known, cost, best, known.compute_ns, Deadline(None)) == (None, False)


def test_without_time_nothing_is_proven() -> None:
    known = Windows((1, 2), (0, 1), (1, 0), 1, 1)
    loads, timed_out = best_whole(known, AffineCost(1, Fraction(1)), 10**9, 0, Deadline(0))
    assert loads is None
    assert timed_out


@pytest.mark.slow
@settings(max_examples=60)
@given(windows_strategy(7, min_parameters=6), costs())
def test_as_good_as_the_program_in_plain_python(known: Windows, cost: TransferCost) -> None:
    best = best_by_subsets(known, cost)
    loads, _ = best_whole(known, cost, best + 1, known.compute_ns, Deadline(None))
    assert loads is not None
    assert LoadPricer(known, cost).iteration_ns(loads) == best
