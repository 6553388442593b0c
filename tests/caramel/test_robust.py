"""Of plans that last equally long, `exact` takes the one that bears strains best."""

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.families.caramel.descent import steadied
from planner.families.caramel.exact_whole import best_whole, robust_whole
from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, TransferCost
from planner.solving.deadline import NEVER, Deadline
from planner.solving.tie_break import STRAINS
from tests.caramel.exact_oracles import price, whole_plans
from tests.caramel.window_strategies import windows_strategy
from tests.strategies import affine_costs, table_costs

costs = st.one_of(affine_costs(), table_costs())


def apart(known: Windows) -> list[Load]:
    """Each parameter by itself, as they are listed."""
    return [((j, size),) for j, size in enumerate(known.sizes)]


def best_of_whole(known: Windows, cost: TransferCost) -> list[Load]:
    value = LoadPricer(known, cost).iteration_ns(apart(known))
    loads, _ = best_whole(known, cost, value + 1, known.compute_ns, NEVER)
    assert loads is not None
    return loads


def under(known: Windows, cost: TransferCost, loads: list[Load]) -> tuple[int, ...]:
    return tuple(price(known, cost, loads, *strain) for strain in STRAINS)


FRONTS = Windows(
    sizes=(28, 4, 2, 20, 20),
    heads=(24, 1, 12, 22, 18),
    tails=(10, 17, 28, 29, 8),
    backward_ns=30,
    forward_ns=30,
)
"""Windows where one end of a set of sent parameters is not enough: what ends sooner as planned
ends later under a strain."""


@pytest.mark.slow
@settings(max_examples=500)
@given(windows_strategy(5), costs)
@example(FRONTS, AffineCost(5, Fraction(2)))
def test_no_plan_of_whole_parameters_as_long_is_more_robust(
    known: Windows, cost: TransferCost
) -> None:
    loads, timed_out = robust_whole(known, cost, best_of_whole(known, cost), NEVER)
    assert not timed_out
    plans = [(price(known, cost, plan), plan) for plan in whole_plans(known)]
    least = min(value for value, _ in plans)
    assert price(known, cost, loads) == least
    best = min(
        tuple(price(known, cost, plan, *strain) for strain in STRAINS)
        for value, plan in plans
        if value == least
    )
    assert under(known, cost, loads) == best
    assert LoadPricer(known, cost).strained(loads) == best


@settings(max_examples=100)
@given(windows_strategy(4), affine_costs(), st.integers(2, 2**56))
def test_scaling_and_naming_change_nothing(known: Windows, cost: AffineCost, factor: int) -> None:
    """Also with times as large as 64 bits hold, where sums are larger."""
    factor = min(factor, 2**61 // (1 + price(known, cost, apart(known))))
    other = Windows(
        known.sizes[::-1],
        tuple(head * factor for head in known.heads[::-1]),
        tuple(tail * factor for tail in known.tails[::-1]),
        known.backward_ns * factor,
        known.forward_ns * factor,
    )
    whole = AffineCost(cost.startup_ns, Fraction(int(cost.ns_per_byte)))
    dearer = AffineCost(whole.startup_ns * factor, whole.ns_per_byte * factor)
    one, _ = robust_whole(known, whole, best_of_whole(known, whole), NEVER)
    two, _ = robust_whole(other, dearer, best_of_whole(other, dearer), NEVER)
    assert under(other, dearer, two) == tuple(factor * time for time in under(known, whole, one))


@settings(max_examples=300)
@given(windows_strategy(6), costs)
@example(
    Windows((1, 1, 1, 1, 100, 1), (0, 0, 0, 1, 2, 1000), (0,) * 6, 1000, 0),
    AffineCost(1, Fraction(10)),
)
def test_what_is_steadied_is_never_worse(known: Windows, cost: TransferCost) -> None:
    pricer = LoadPricer(known, cost)
    for start in (apart(known), best_of_whole(known, cost)):
        better = steadied(pricer, start, 200, NEVER)
        sent = [0] * len(known.sizes)
        for load in better:
            for j, size in load:
                sent[j] += size
        assert tuple(sent) == known.sizes
        assert price(known, cost, better) <= price(known, cost, start)
        if price(known, cost, better) == price(known, cost, start):
            assert under(known, cost, better) <= under(known, cost, start)


def test_without_time_the_plan_stays_what_it_is() -> None:
    known = Windows((1, 2), (0, 1), (1, 0), 1, 1)
    cost = AffineCost(1, Fraction(1))
    assert robust_whole(known, cost, apart(known), Deadline(0)) == (apart(known), True)
    assert steadied(LoadPricer(known, cost), apart(known), 100, Deadline(0)) == apart(known)
