"""Caramel's stages: network model and threshold, batcher, packing, depth."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError
from planner.families.caramel.paper import (
    MAX_DEPTH,
    Item,
    adaptive_depth,
    batching_threshold,
    pack,
    small_batches,
)
from planner.model.costs import DepthCost, TransferCost
from planner.model.fitting import two_point_model
from planner.testing import costs
from tests.caramel.exact_oracles import unrounded


@settings(max_examples=300)
@given(costs())
def test_the_threshold_is_the_least_size_that_passes(cost: TransferCost) -> None:
    threshold = batching_threshold(cost)

    def passes(size: int) -> bool:
        return unrounded(cost, 2 * size) > Fraction(8, 5) * unrounded(cost, size)

    for size in range(1, 400):
        if passes(size):
            assert threshold == size
            return
    assert threshold is None or threshold >= 400


def test_the_threshold_of_an_affine_cost_has_a_closed_form() -> None:
    # x > 1.5·α/β: at 1.5·50,000/0.8 = 93,750 bytes the ratio is 0.8 exactly.
    assert batching_threshold(AffineCost(50_000, Fraction(4, 5))) == 93_751
    assert batching_threshold(AffineCost(50_000, Fraction(0))) is None
    assert batching_threshold(AffineCost(0, Fraction(1))) == 1
    deep = DepthCost(((1, AffineCost(50_000, Fraction(4, 5))), (8, AffineCost(10**6, Fraction(1)))))
    assert batching_threshold(deep) == 93_751
    with pytest.raises(InvalidInputError, match="doubling"):
        batching_threshold(AffineCost(1, Fraction(1)), Fraction(1))


@given(st.integers(0, 10**6), st.integers(0, 10**4))
def test_two_benchmarks_give_the_line_back(startup: int, rate: int) -> None:
    truth = AffineCost(startup, Fraction(rate))
    model = two_point_model([truth.cost_ns(64)] * 3, [truth.cost_ns(4 * 10**6)] * 2)
    assert model == truth


def test_a_falling_line_is_no_network() -> None:
    with pytest.raises(InvalidInputError, match="grow"):
        two_point_model([100, 120], [90])
    with pytest.raises(InvalidInputError, match="in proportion"):
        two_point_model([1], [10**9])


batch_cases = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 40)), min_size=1, max_size=8
).map(sorted)


@given(batch_cases, st.integers(0, 20), st.none() | st.integers(1, 60))
def test_batches(case: list[tuple[int, int]], startup: int, threshold: int | None) -> None:
    heads, sizes = [head for head, _ in case], [size for _, size in case]
    batches = small_batches(range(len(case)), sizes, heads, lambda s: startup + s, threshold)
    assert sorted(j for batch in batches for j in batch) == list(range(len(case)))
    for batch in batches:
        assert batch == sorted(batch)
        if threshold is not None and len(batch) > 1:
            assert all(sizes[j] <= threshold for j in batch)
            assert sum(sizes[j] for j in batch[:-1]) <= threshold


def test_a_batch_waits_while_the_network_is_busy() -> None:
    # The first transfer occupies the network from 10 to 30: 20 and 25 join; before 40 it is idle.
    assert small_batches([0, 1, 2, 3], [15, 1, 1, 1], [10, 20, 25, 40], lambda s: 5 + s, 10) == [
        [0],
        [1, 2],
        [3],
    ]
    # What is ready at the same moment is one update.
    assert small_batches([0, 1], [1, 1], [10, 10], lambda s: s, 10) == [[0, 1]]
    # Above the threshold a batch leaves at once.
    assert small_batches([0, 1, 2], [9, 9, 9], [0, 0, 0], lambda s: s, 10) == [[0, 1], [2]]


def test_packing_by_hand() -> None:
    # Backward pass 0 … 100. The largest fits behind its head, the next one only in the forward
    # pass, the last one in the gap before the first.
    items = [Item(60, 50, 30, 3), Item(70, 40, 35, 5), Item(0, 50, 55, 4)]
    assert pack(items, 100)[0] == [2, 0, 1]
    # Nothing fits. The first would take 40 behind the backward pass, 15 before the forward pass;
    # the second takes 5 behind.
    assert pack([Item(50, 35, 50, 9), Item(20, 5, 45, 8)], 60)[0] == [1, 0]
    # Equally long: behind the backward pass, and then the second one behind the first.
    assert pack([Item(50, 10, 50, 9), Item(55, 0, 10, 8)], 60)[0] == [0, 1]
    assert pack([Item(50, 10, 50, 9), Item(0, 100, 30, 8)], 60)[0] == [1, 0]


@given(
    st.lists(
        st.builds(Item, st.integers(0, 50), st.integers(0, 50), st.integers(0, 40), st.just(1)),
        max_size=7,
    )
)
def test_packing_keeps_every_group(items: list[Item]) -> None:
    assert sorted(pack(items, 50)[0]) == list(range(len(items)))


DEPTHS = range(1, MAX_DEPTH + 1)


@given(st.integers(1, 10**6), st.none() | st.integers(0, 10**5))
def test_depth(size: int, threshold: int | None) -> None:
    depth = adaptive_depth(size, threshold, DEPTHS)
    assert 1 <= depth <= MAX_DEPTH
    if threshold is None or size <= threshold:
        assert depth == 1
    assert adaptive_depth(size + 1, threshold, DEPTHS) >= depth
    assert adaptive_depth(size, threshold, ()) == 1  # no cost says that chunks pay
    assume(threshold)
    assert adaptive_depth(size, threshold, [1, 2, 8]) in (1, 2, 8)
    assert adaptive_depth(8 * (threshold or 1) + 1, threshold, DEPTHS) == MAX_DEPTH
