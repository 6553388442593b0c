"""The simulator against the formula of the one-machine problem with heads and tails."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from planner.simulator import TimedTransfer, simulate

times = st.integers(0, 20)


@st.composite
def iterations(draw: st.DrawFn) -> tuple[list[int], list[int], list[TimedTransfer]]:
    backward = draw(st.lists(times, max_size=5))
    forward = draw(st.lists(times, min_size=1, max_size=5))
    transfer = st.builds(TimedTransfer, times, times, st.integers(0, len(forward) - 1))
    return backward, forward, draw(st.lists(transfer, max_size=6))


@given(iterations(), st.booleans())
def test_the_largest_end_plus_tail_decides(
    case: tuple[list[int], list[int], list[TimedTransfer]], barrier: bool
) -> None:
    backward, forward, transfers = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    left = [*accumulate(reversed(forward))][::-1]
    free, end = 0, sum(backward) + sum(forward)
    for one in transfers:
        free = max(free, one.ready_ns) + one.duration_ns
        end = max(end, free + left[0 if barrier else one.needed_by])
    assert result.end_ns == end


@given(iterations())
def test_lanes_are_serial_and_keep_durations(
    case: tuple[list[int], list[int], list[TimedTransfer]],
) -> None:
    backward, forward, transfers = case
    result = simulate(backward, forward, transfers)
    for spans, durations in (
        ((*result.backward, *result.forward), backward + forward),
        (result.transfers, [one.duration_ns for one in transfers]),
    ):
        assert [end - start for start, end in spans] == durations
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
    for one, (start, end) in zip(transfers, result.transfers, strict=True):
        assert one.ready_ns <= start
        assert end <= result.forward[one.needed_by][0] or end <= result.end_ns
        assert result.forward[one.needed_by][0] >= end


def test_a_stall() -> None:
    result = simulate([10], [5, 5], [TimedTransfer(10, 8, 1)])
    assert result.forward == ((10, 15), (18, 23))
    assert simulate([10], [5, 5], [TimedTransfer(10, 8, 1)], barrier=True).forward[0] == (18, 23)
