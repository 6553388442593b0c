"""Of plans that last equally long, one that bears strains better is sought."""

from fractions import Fraction

from hypothesis import example, given, settings

from planner.families.caramel.descent import less_sensitive
from planner.families.caramel.exact_whole import best_whole
from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, TransferCost
from planner.solving.deadline import NEVER, Deadline
from planner.solving.tie_break import DELAYS
from planner.testing import costs
from tests.caramel.exact_oracles import is_complete, price
from tests.caramel.window_strategies import windows_strategy


def apart(known: Windows) -> list[Load]:
    """Each parameter by itself, as they are listed."""
    return [((j, size),) for j, size in enumerate(known.sizes)]


def best_of_whole(known: Windows, cost: TransferCost) -> list[Load]:
    value = LoadPricer(known, cost).iteration_ns(apart(known))
    loads, _ = best_whole(known, cost, value + 1, known.compute_ns, NEVER)
    assert loads is not None
    return loads


def under(known: Windows, cost: TransferCost, loads: list[Load]) -> tuple[int, ...]:
    return tuple(price(known, cost, loads, *delay) for delay in DELAYS)


@settings(max_examples=300)
@given(windows_strategy(6), costs())
@example(
    Windows((1, 1, 1, 1, 100, 1), (0, 0, 0, 1, 2, 1000), (0,) * 6, 1000, 0),
    AffineCost(1, Fraction(10)),
)
def test_what_is_steadied_is_never_worse(known: Windows, cost: TransferCost) -> None:
    pricer = LoadPricer(known, cost)
    for start in (apart(known), best_of_whole(known, cost)):
        better = less_sensitive(pricer, start, 200, NEVER)
        assert is_complete(known, better)
        assert price(known, cost, better) <= price(known, cost, start)
        if price(known, cost, better) == price(known, cost, start):
            assert under(known, cost, better) <= under(known, cost, start)


def test_without_time_the_plan_stays_what_it_is() -> None:
    known = Windows((1, 2), (0, 1), (1, 0), 1, 1)
    cost = AffineCost(1, Fraction(1))
    assert less_sensitive(LoadPricer(known, cost), apart(known), 100, Deadline(0)) == apart(known)
