"""Batches of shards in several messages, two of which are on their way at once."""

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")

from planner.runtime.collectives.halves import LEAST_BYTES, MOST_MESSAGES, in_turn, most_bytes
from planner.runtime.world.world import AT_ONCE


@pytest.mark.parametrize(
    ("size", "messages"),
    [
        (1, 1),
        (LEAST_BYTES, 1),
        (LEAST_BYTES + 1, 2),
        (MOST_MESSAGES * LEAST_BYTES, MOST_MESSAGES),
        (100 * MOST_MESSAGES * LEAST_BYTES, MOST_MESSAGES),
    ],
)
def test_batches_are_cut_evenly(size: int, messages: int) -> None:
    most = most_bytes(size)
    assert -(-size // most) == messages
    assert most - size // messages <= 1


def begun(log: list[str], count: int, failing: int | None = None) -> Iterator[Callable[[], None]]:
    """Begin things, write down what happens, and let one of them fail."""
    for number in range(count):
        log.append(f"begin {number}")

        def end(number: int = number) -> None:
            log.append(f"end {number}")
            if number == failing:
                raise RuntimeError("the cable is gone")

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


def test_nothing_is_on_its_way_after_a_failure() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError, match="the cable is gone"):
        in_turn(begun(log, 4, failing=0))
    assert log == ["begin 0", "begin 1", "end 0", "end 1"]
    in_turn(iter(()))
