"""Batches of shards in several messages, two of which are on their way at once."""

import time
from collections.abc import Callable, Iterator

import pytest
import torch

from planner.runtime.collectives.halves import (
    LEAST_BYTES,
    MOST_MESSAGES,
    Halves,
    in_turn,
    most_columns,
)
from planner.runtime.world.joining import join
from planner.runtime.world.world import AT_ONCE, PeerError
from tests.runtime.launching import launch, values


@pytest.mark.parametrize("column_bytes", [8, 12])
@pytest.mark.parametrize(
    ("size", "messages"),
    [
        (1, 1),
        (LEAST_BYTES, 1),
        (LEAST_BYTES + 12, 2),
        (MOST_MESSAGES * LEAST_BYTES, MOST_MESSAGES),
        (100 * MOST_MESSAGES * LEAST_BYTES, MOST_MESSAGES),
    ],
)
def test_batches_are_cut_evenly(size: int, messages: int, column_bytes: int) -> None:
    columns = max(size // column_bytes, 1)
    most = most_columns(columns, column_bytes)
    assert -(-columns // most) == messages
    assert most - columns / messages < 1
    assert most_columns(0, column_bytes) == 1


def begun(log: list[str], count: int) -> Iterator[Callable[[], None]]:
    """Begin things, and write down what happens."""
    for number in range(count):
        log.append(f"begin {number}")

        def end(number: int = number) -> None:
            log.append(f"end {number}")

        yield end


def test_the_next_one_begins_before_the_last_one_has_ended() -> None:
    log: list[str] = []
    in_turn(begun(log, 4))
    assert [entry for entry in log if entry.startswith("end")] == [f"end {n}" for n in range(4)]
    assert AT_ONCE == 2
    assert log[:4] == ["begin 0", "begin 1", "end 0", "begin 2"]
    going = 0
    for entry in log:
        going += 1 if entry.startswith("begin") else -1
        assert 0 <= going <= AT_ONCE
    in_turn(iter(()))


def exchanged(count: int) -> list[str]:
    """Sum up and hand out several messages, while one rank is late; return what is wrong."""
    wrong = []
    with join() as world:
        halves, ranks, rank = Halves(world.group), world.size, world.rank
        rows = [torch.arange(5 * ranks).view(ranks, 5) + 100 * n for n in range(count)]
        sums: list[torch.Tensor] = []

        def summed_up(number: int) -> Callable[[], object]:
            if rank == number % ranks:
                time.sleep(0.02)
            sent = rows[number] * (rank + 1)
            total = halves.scatter(sent, rank, torch.full_like(sent, -1))
            return lambda: sums.append(total())

        in_turn(map(summed_up, range(count)))
        factor = ranks * (ranks + 1) // 2
        if not torch.equal(torch.stack(sums), factor * torch.stack([each[rank] for each in rows])):
            wrong.append("sums")
        parts = [torch.zeros_like(each) for each in rows]
        for part, each in zip(parts, rows, strict=True):
            part[rank] = each[rank]
        in_turn(halves.gather(part, rank) for part in parts)
        if not torch.equal(torch.stack(parts), torch.stack(rows)):
            wrong.append("parts")
    return wrong


@pytest.mark.parametrize("ranks", [1, 3])
def test_messages_that_follow_each_other_bring_what_is_theirs(ranks: int) -> None:
    assert values(launch(exchanged, ranks, 4)) == [[]] * ranks


class Group:
    """Sends at once, and receives nothing from one rank."""

    def __init__(self, broken: int) -> None:
        self.broken, self.asked = broken, list[tuple[str, int]]()

    def recv(self, _: list[torch.Tensor], peer: int, __: int) -> "Group":
        self.asked.append(("receive", peer))
        return self if peer == self.broken else Group(-1)

    def send(self, _: list[torch.Tensor], peer: int, __: int) -> "Group":
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
