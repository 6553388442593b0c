"""Messages of halves of sums and of gloo's ring: how they are cut, begun, awaited and blamed."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from planner.families.collectives import COLLECTIVES, program
from planner.model.topologies import BCube
from planner.runtime.collectives.halves import (
    LEAST_BYTES,
    MOST_MESSAGES,
    Halves,
    ProgramHalves,
    in_turn,
    most_columns,
)
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.collectives.ring import (
    MOST_PIECES,
    PIECE_BYTES,
    WHOLE_BYTES,
    Ring,
    pieces_of,
)
from planner.runtime.world.world import AT_ONCE, PeerError, World
from tests.runtime.jobs import in_each_rank


@pytest.mark.slow
@in_each_rank(4)
def test_rows_are_summed_up_and_handed_out_by_halves(world: World) -> None:
    for name in COLLECTIVES:
        if "tensors" in name or "k_nics" in name:
            continue
        summing = Interpreter(world, program(name, BCube(2, 2)))
        both = ProgramHalves(summing)
        for width in (1, 5, 70_001):  # the last one in many parts
            rows = torch.arange(4 * width, dtype=torch.int64).view(4, width)
            sent = rows * (world.rank + 1)
            total = both.scatter(sent, world.rank, torch.empty_like(rows))()
            assert torch.equal(total, rows[world.rank] * 10), (name, width)
            mine = torch.zeros_like(rows)
            mine[world.rank] = rows[world.rank]
            both.gather(mine, world.rank)()
            assert torch.equal(mine, rows), (name, width)
        summing.close()


def test_batches_are_cut_evenly() -> None:
    for (size, messages), column_bytes in product(
        (
            (1, 1),
            (LEAST_BYTES, 1),
            (LEAST_BYTES + 12, 2),
            (MOST_MESSAGES * LEAST_BYTES, MOST_MESSAGES),
            (100 * MOST_MESSAGES * LEAST_BYTES, MOST_MESSAGES),
        ),
        (8, 12),
    ):
        columns = max(size // column_bytes, 1)
        most = most_columns(columns, column_bytes)
        assert -(-columns // most) == messages
        assert most - columns / messages < 1
    assert most_columns(0, 8) == 1


def test_the_next_one_begins_before_the_last_one_has_ended() -> None:
    log: list[str] = []

    def begun(number: int) -> Callable[[], None]:
        log.append(f"begin {number}")
        return lambda: log.append(f"end {number}")

    in_turn(map(begun, range(4)))
    assert AT_ONCE == 2
    assert " ".join(log) == "begin 0 begin 1 end 0 begin 2 end 1 begin 3 end 2 end 3"
    in_turn(iter(()))


@pytest.mark.parametrize("ranks", [1, 3])
@in_each_rank("ranks")
def test_messages_that_follow_each_other_bring_what_is_theirs(world: World, ranks: int) -> None:
    """Of several messages each is late on one rank."""
    halves, rank = Halves(world.group), world.rank
    rows = [torch.arange(5 * ranks).view(ranks, 5) + 100 * n for n in range(4)]
    sums: list[Tensor] = []

    def summed_up(number: int) -> Callable[[], object]:
        if rank == number % ranks:
            time.sleep(0.02)
        sent = rows[number] * (rank + 1)
        total = halves.scatter(sent, rank, torch.full_like(sent, -1))
        return lambda: sums.append(total())

    in_turn(map(summed_up, range(4)))
    factor = ranks * (ranks + 1) // 2
    assert torch.equal(torch.stack(sums), factor * torch.stack([each[rank] for each in rows]))
    parts = [torch.zeros_like(each) for each in rows]
    for part, each in zip(parts, rows, strict=True):
        part[rank] = each[rank]
    in_turn(halves.gather(part, rank) for part in parts)
    assert torch.equal(torch.stack(parts), torch.stack(rows))


class Group:
    """Sends at once, and receives nothing from one rank."""

    def __init__(self, broken: int) -> None:
        self.broken, self.asked = broken, list[tuple[str, int]]()

    def recv(self, _: list[Tensor], peer: int, __: int) -> "Group":
        self.asked.append(("receive", peer))
        return self if peer == self.broken else Group(-1)

    def send(self, _: list[Tensor], peer: int, __: int) -> "Group":
        self.asked.append(("send", peer))
        return Group(-1)

    def wait(self) -> None:
        if self.broken >= 0:
            raise RuntimeError("the cable is cut")


def test_all_is_asked_for_before_anything_is_sent() -> None:
    group = Group(broken=1)
    waits = Halves(group).gather(torch.zeros(3, 4), 2)
    assert group.asked == [("receive", 0), ("receive", 1), ("send", 0), ("send", 1)]
    with pytest.raises(PeerError, match="the cable is cut") as failed:
        waits()
    assert failed.value.peers == (1,)


# ---
# Gloo's ring as a queue.


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
