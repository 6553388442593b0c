"""The search over sizes: never worse, complete, the same every time; and better where it counts."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.one_machine import list_schedule
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.transfer_sizes import _Simulation, resize
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, TransferCost
from planner.solving.deadline import Deadline
from planner.testing import costs
from tests.caramel.exact_oracles import is_complete, price
from tests.caramel.window_strategies import windows_strategy


def alone(known: Windows) -> list[tuple[tuple[int, int], ...]]:
    """Return every parameter in a transfer of its own, by readiness."""
    order = sorted(range(len(known.sizes)), key=known.heads.__getitem__)
    return [((j, known.sizes[j]),) for j in order]


@settings(max_examples=60)
@given(windows_strategy(6), costs(), st.sampled_from([1, 1, 3, 4]))
def test_never_worse_and_everything_is_sent(
    known: Windows, cost: TransferCost, element: int
) -> None:
    pricer, start = LoadPricer(known, cost), alone(known)
    found = resize(pricer, start, 0, 300, element, Deadline(None))
    assert is_complete(known, found)
    assert price(known, cost, found) <= price(known, cost, start)
    for load in found:
        for j, size in load:
            assert size % element == 0 or (known.sizes[j] - size) % element == 0
    assert found == resize(pricer, start, 0, 300, element, Deadline(None))
    hurried = resize(pricer, start, 0, 300, element, Deadline(0))
    assert price(known, cost, hurried) <= price(known, cost, start)


@settings(max_examples=200)
@given(windows_strategy(6), costs(), st.data())
def test_the_simulation_is_the_price_of_the_most_urgent(
    known: Windows, cost: TransferCost, data: st.DataObject
) -> None:
    pricer = LoadPricer(known, cost)
    moments = st.sampled_from([0, *known.heads])
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 40), moments), max_size=5))
    run = _Simulation(pricer).run(sizes)
    assert run is not None
    loads = list_schedule(pricer, run.sizes)
    waits = [start for _, start in run.sizes]
    assert len(loads) == len(waits)
    free, value = 0, known.compute_ns
    for load, wait in zip(loads, waits, strict=True):
        free = max(free, wait, *(known.heads[j] for j, _ in load))
        free += cost.cost_ns(sum(size for _, size in load))
        value = max(value, *(free + known.tails[j] for j, _ in load))
    assert run.value == value


def test_a_better_cut_is_found() -> None:
    # The second gradient is urgent: what is sent before it must end when it is ready.
    known = Windows((100, 10, 50), (0, 40, 45), (0, 60, 20), 50, 60)
    cost = AffineCost(1, Fraction(1))
    start = alone(known)
    found = resize(LoadPricer(known, cost), start, 0, 2000, 1, Deadline(None))
    assert price(known, cost, found) < price(known, cost, start)
