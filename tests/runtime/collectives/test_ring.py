"""Gloo's ring as a queue: how messages are cut, when pieces leave, how they are awaited."""

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from planner.runtime.collectives.ring import (
    MOST_PIECES,
    PIECE_BYTES,
    WHOLE_BYTES,
    Ring,
    pieces_of,
)
from planner.runtime.world.world import AT_ONCE


def test_pieces_end_in_pairs() -> None:
    """Those in flight at once are of one message, so none shares the network with the next one."""
    for size in (4, WHOLE_BYTES - 4, WHOLE_BYTES, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 4, 2**27):
        pieces = pieces_of(torch.empty(size // 4))
        if size < WHOLE_BYTES:
            assert pieces == 1
            continue
        assert pieces % AT_ONCE == 0
        assert pieces <= MOST_PIECES
        assert size <= pieces * PIECE_BYTES or pieces == MOST_PIECES


def test_a_piece_leaves_when_it_is_full() -> None:
    elements = WHOLE_BYTES // 4
    flat, left = torch.zeros(elements), list[tuple[int, float]]()

    def leave(pieces: list[Tensor]) -> Mock:
        (piece,) = pieces
        left.append((piece.numel(), float(piece.sum())))
        return Mock()

    def filling() -> Iterator[int]:
        for start, stop in ((0, elements // 4), (elements // 4, elements // 2 + 1)):
            assert not left
            flat[start:stop] = 1
            yield stop
        assert left == [(elements // 2, elements // 2)]
        flat[elements // 2 :] = 1
        yield elements

    Ring(Mock(allreduce=leave)).begin(flat, filling())
    assert left == 2 * [(elements // 2, elements // 2)]
    Ring(Mock(allreduce=leave)).begin(flat)
    assert len(left) == 4


@pytest.mark.parametrize(("polls", "asked"), [(True, 3), (False, 0)])
def test_a_ring_that_polls_waits_awake(polls: bool, asked: int) -> None:
    """It sleeps in gloo only after the sum has ended, when that raises its error or returns."""
    ends = iter([False, False, True])
    work = Mock(is_completed=Mock(side_effect=lambda: next(ends)))
    work.wait.side_effect = lambda: work.is_completed.call_count == asked or pytest.fail("slept")
    flat = torch.zeros(5)
    Ring(Mock(allreduce=lambda _: work), polls=polls).begin(flat)()
    assert work.is_completed.call_count == asked
    work.wait.assert_called_once_with()
