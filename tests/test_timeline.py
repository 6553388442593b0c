"""Timelines: measures of time against counting nanosecond by nanosecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.solving.timeline import Interval, Memory, Timeline, busy_ns
from tests.timelines import check_serial

spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


def covered(lane: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in lane for moment in range(start, end)}


@given(spans)
def test_a_union_is_measured_exactly(lane: list[tuple[int, int]]) -> None:
    assert busy_ns(lane) == len(covered(lane))


def interval(start: int, end: int, resource: str = "r") -> Interval:
    return Interval(resource, start, end, "forward", 0, f"{start}-{end}")


def test_serial_resources_do_one_thing_at_a_time() -> None:
    check_serial(Timeline(("r",), (interval(0, 2), interval(2, 3))))
    check_serial(Timeline(("r", "s"), (interval(0, 2), interval(1, 3, "s"))))
    with pytest.raises(AssertionError, match="overlap"):
        check_serial(Timeline(("r",), (interval(1, 3), interval(0, 2))))


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(InvalidInputError):
        interval(3, 2)
    with pytest.raises(InvalidInputError):
        interval(-1, 2)


def test_a_peak_is_when_the_most_is_first_in_use() -> None:
    assert Memory(((0, 3), (10, 7), (20, 5), (30, 7), (40, 0))).peak == (10, 7)
