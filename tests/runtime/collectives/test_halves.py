"""Batches of shards in several messages, two of which are on their way at once."""

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")

from planner.runtime.collectives.halves import LEAST_BYTES, MOST_MESSAGES, in_turn, most_columns
from planner.runtime.world.world import AT_ONCE


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
