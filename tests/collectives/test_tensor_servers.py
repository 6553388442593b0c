"""Whole tensors on parameter servers: where they go, and what that costs."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.collectives import collective, compare
from planner.families.collectives.tensor_servers import least_loaded, round_robin
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube

tensor_lists = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any)


@pytest.mark.parametrize(
    ("tensors", "path", "message"),
    [
        ([], "tensors", "expected at least one element, got an empty array"),
        ([0, 0], "tensors", "expected at least one byte, got 0"),
        ([1, -1], "tensors[1]", "expected an integer >= 0, got -1"),
        ([1, 2.0], "tensors[1]", "expected an integer >= 0, got 2.0"),
        ([2**62] * 2, "tensors", "the sum of the tensors' bytes must fit in 63 bits"),
        (7, "tensors", "expected an array, got 7"),
    ],
)
def test_bad_tensors(tensors: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        compare(BCube(3, 2), tensors=tensors)
    assert error.value.path == path
    assert error.value.message.startswith(message)


@given(tensor_lists, st.integers(2, 5))
def test_loads_add_up_and_lists_stay_within_their_guarantee(
    tensors: list[int], servers: int
) -> None:
    for loads in (round_robin(tensors, servers), least_loaded(tensors, servers)):
        assert sum(loads) == sum(tensors)
        assert len(loads) == min(servers, len(tensors))
    most = max(least_loaded(tensors, servers))
    assert servers * most <= sum(tensors) + (servers - 1) * max(tensors)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(2, 3))
def test_least_loaded_is_less_than_twice_the_best(tensors: list[int], servers: int) -> None:
    best = min(
        max(
            sum(size for size, own in zip(tensors, placed, strict=True) if own == server)
            for server in range(servers)
        )
        for placed in _placements(len(tensors), servers)
    )
    assert max(least_loaded(tensors, servers)) < 2 * best


def _placements(tensors: int, servers: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for _ in range(tensors):
        found = [(*one, server) for one in found for server in range(servers)]
    return found


def test_whole_tensors_are_slower_than_pieces_unless_they_are_alike() -> None:
    bcube = BCube(3, 2)
    pieces = collective("ps_fattree", bcube)
    for name in ("ps_tensors_fattree", "ps_tensors_greedy_fattree"):
        assert collective(name, bcube, tensors=[5] * 18).volume == pieces.volume
        assert collective(name, bcube, tensors=[5] * 17 + [6]).volume > pieces.volume
    # In turn, the large ones meet on one server; by load, they do not.
    unlucky = [90, *[10] * 8] * 2
    dealt = collective("ps_tensors_fattree", bcube, tensors=unlucky)
    loaded = collective("ps_tensors_greedy_fattree", bcube, tensors=unlucky)
    assert dealt.volume == 16 * Fraction(180, 340)
    assert loaded.volume < dealt.volume
