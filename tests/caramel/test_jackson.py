"""Jackson's preemptive schedule against the sets that bound it, and the bound against plans."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.windows import Windows
from planner.model.costs import DepthCost, TransferCost, least_rate
from planner.solving.jackson import preemptive
from tests.caramel.exact_oracles import best_split, preemptive_value, price
from tests.caramel.window_strategies import windows_strategy
from tests.strategies import affine_costs, table_costs, times

jobs = st.lists(st.tuples(times, times, times), min_size=1, max_size=7)
costs = affine_costs() | table_costs()


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


@given(costs, st.integers(1, 150))
def test_the_least_rate_is_that_of_some_size_or_less(cost: TransferCost, most: int) -> None:
    def unrounded(size: int) -> Fraction:
        return min(
            piece.time(size)
            for piece in cost.pieces()
            if piece.start <= size and (piece.stop is None or size <= piece.stop)
        )

    assert least_rate(cost, most) == min(unrounded(size) / size for size in range(1, most + 1))


@settings(max_examples=60)
@given(windows_strategy(3, max_bytes=3), costs)
def test_no_split_plan_beats_the_bound(one: Windows, cost: TransferCost) -> None:
    assert preemptive_bound(one, cost) <= best_split(one, cost)


@given(windows_strategy(8), st.tuples(affine_costs(), affine_costs()), st.data())
def test_no_plan_beats_the_bound(
    one: Windows, by_depth: tuple[AffineCost, AffineCost], data: st.DataObject
) -> None:
    cost = DepthCost(tuple(zip((1, 2), by_depth, strict=True)))
    groups: dict[int, list[tuple[int, int]]] = {}
    for j, size in enumerate(one.sizes):
        slots = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=min(size, 2)))
        cuts = [0, size // 2, size] if len(slots) == 2 else [0, size]
        for place, slot in enumerate(slots):
            groups.setdefault(slot, []).append((j, cuts[place + 1] - cuts[place]))
    assert preemptive_bound(one, cost) <= price(
        one, cost, [groups[slot] for slot in sorted(groups)]
    )


def test_all_in_one_transfer_without_other_work_meets_the_bound() -> None:
    one = Windows(sizes=(3, 4), heads=(5, 5), tails=(2, 2), backward_ns=5, forward_ns=2)
    cost = AffineCost(10, Fraction(1, 2))
    assert preemptive_bound(one, cost) == price(one, cost, [[(0, 3), (1, 4)]]) == 21
