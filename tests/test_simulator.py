"""The simulator against the formula of the one-machine problem with heads and tails; timelines."""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from planner.model.contention import Interference, progress
from planner.solving.simulator import TimedTransfer, simulate
from planner.solving.timeline import Memory, busy_ns

times = st.integers(0, 20) | st.integers(0, 10**8)


Case = tuple[list[int], list[int], list[TimedTransfer], bool]


@st.composite
def iterations(draw: st.DrawFn) -> Case:
    backward = draw(st.lists(times, max_size=5))
    forward = draw(st.lists(times, min_size=1, max_size=5))
    work = st.integers(0, sum(backward))
    needed = st.integers(0, len(forward) - 1)
    transfer = st.builds(TimedTransfer, work, times, needed, times, st.just(0), st.just(0))
    return backward, forward, draw(st.lists(transfer, max_size=6)), draw(st.booleans())


@given(iterations())
def test_the_largest_end_plus_tail_decides(case: Case) -> None:
    backward, forward, transfers, barrier = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    left = [*accumulate(reversed(forward))][::-1]
    free, end = 0, sum(backward) + sum(forward)
    for transfer in transfers:
        free = max(free, transfer.ready_ns, transfer.not_before_ns) + transfer.duration_ns
        end = max(end, free + left[0 if barrier else transfer.needed_by])
    assert result.end_ns == end


@st.composite
def disturbed(draw: st.DrawFn) -> Case:
    backward, forward, transfers, barrier = draw(iterations())
    slowdown = Fraction(draw(st.integers(4, 12)), 4) + Fraction(draw(st.integers(0, 99)), 1000)
    beside = Interference(slowdown=slowdown, delay_ns=draw(st.integers(0, 9)))
    transfers = [
        transfer._replace(
            processor_ns=draw(st.integers(0, transfer.duration_ns)),
            slower_ns=beside.overlapped_ns(transfer.duration_ns) - transfer.duration_ns,
        )
        for transfer in transfers
    ]
    return backward, forward, transfers, barrier


@given(disturbed())
def test_what_is_done_in_every_time_is_what_there_was_to_do(case: Case) -> None:
    backward, forward, transfers, barrier = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    alone = [transfer.duration_ns for transfer in transfers]
    processor = [transfer.processor_ns for transfer in transfers]
    spans = (*result.backward, *result.forward)
    beside = [transfer.duration_ns + transfer.slower_ns for transfer in transfers]
    done = progress(spans, result.transfers, alone, processor, beside)
    for work, duration, borders in zip(done.ops, backward + forward, done.borders, strict=True):
        assert abs(Fraction(work - duration)) <= 3 * borders
    for part, duration in zip(done.transfers, alone, strict=True):
        assert abs(Fraction(part - duration)) <= 3
    assert sum(done.ops) >= sum(backward) + sum(forward) - 3 * len(transfers) - 3
    for number, (transfer, before) in enumerate(zip(transfers, done.before, strict=True)):
        assert before >= transfer.ready_ns - 3 * (number + 1)


@given(disturbed())
def test_the_same_schedule_comes_of_what_ops_and_transfers_took_none_of_it_earlier(
    case: Case,
) -> None:
    """Readers of answers know only the times, and simulate them again."""
    backward, forward, transfers, barrier = case
    result = simulate(backward, forward, transfers, barrier=barrier)
    rows = zip(transfers, result.ready, result.transfers, strict=True)
    took = [TimedTransfer(0, end - start, one.needed_by, at) for one, at, (start, end) in rows]
    backward, forward = (
        [end - start for start, end in spans] for spans in (result.backward, result.forward)
    )
    again = simulate(backward, forward, took, barrier=barrier)
    assert replace(again, ready=result.ready) == result
    alone = [transfer._replace(processor_ns=0, slower_ns=0) for transfer in transfers]
    free = simulate(case[0], case[1], alone, barrier=barrier)
    for late, early in zip(result.transfers, free.transfers, strict=True):
        assert late[0] >= early[0]
        assert late[1] >= early[1]
    assert result.end_ns >= free.end_ns


def test_stalls_and_transfers_beside_computation_by_hand() -> None:
    assert simulate([10], [5, 5], [TimedTransfer(10, 8, 1)]).forward == ((10, 15), (18, 23))
    waits = simulate([10], [5, 5], [TimedTransfer(10, 8, 1)], barrier=True)
    assert waits.forward[0] == (18, 23)
    transfer = TimedTransfer(10, 8, 1, processor_ns=4)
    # Beside 8 ns of the second op: 4 ns of it are done, and the other 6 afterwards.
    result = simulate([10, 10], [5, 5], [transfer])
    assert result.backward == ((0, 10), (10, 24))
    assert result.transfers == ((10, 18),)
    # Twice as long, until computation has nothing left to do.
    slowed = simulate([10, 1], [2], [TimedTransfer(10, 8, 0, slower_ns=8)])
    assert slowed.backward == ((0, 10), (10, 11))
    assert slowed.transfers == ((10, 19),)
    assert slowed.forward == ((19, 21),)


spans = st.lists(st.builds(lambda a, b: (a, a + b), st.integers(0, 30), st.integers(0, 10)))


@given(spans)
def test_a_union_is_measured_exactly(lane: list[tuple[int, int]]) -> None:
    assert busy_ns(lane) == len({moment for start, end in lane for moment in range(start, end)})


def test_a_peak_is_when_the_most_is_first_in_use() -> None:
    assert Memory(((0, 3), (10, 7), (20, 5), (30, 7), (40, 0))).peak == (10, 7)
