"""Whole tensors on parameter servers: where they go, and what that costs."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.collectives import collective, compare
from planner.families.collectives.exchange import round_robin
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
def test_loads_add_up(tensors: list[int], servers: int) -> None:
    loads = round_robin(tensors, servers)
    assert sum(loads) == sum(tensors)
    assert len(loads) == min(servers, len(tensors))


def test_whole_tensors_are_slower_than_pieces_unless_they_are_alike() -> None:
    bcube = BCube(3, 2)
    pieces, name = collective("ps_fattree", bcube), "ps_tensors_fattree"
    assert collective(name, bcube, tensors=[5] * 18).volume == pieces.volume
    assert collective(name, bcube, tensors=[5] * 17 + [6]).volume > pieces.volume
    unlucky = [90, *[10] * 8] * 2  # the large ones meet on one server
    assert collective(name, bcube, tensors=unlucky).volume == 16 * Fraction(180, 340)
