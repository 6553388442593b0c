"""Traces of PyTorch's profiler on a device: what kernels take."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.importers.kineto_trace import clock_remarks, read_trace
from tests.formats.test_kineto import (
    ACCUMULATE,
    RUN,
    Event,
    a_step,
    durations,
    event,
    launch,
    read,
    written,
)


def on_a_device() -> list[Event]:
    """Return the step with nodes on their own thread, and kernels that run later."""
    launched = [  # at, thread, kernel's start and duration
        (9, 1, 200, 30),  # addmm
        (21, 1, 231, 4),  # relu
        (47, 2, 250, 10),  # its node
        (53, 2, 262, 20),  # addmm's node
        (64, 2, 283, 1),  # accumulation
        (64.5, 2, 300, 90),  # all-reduce: no computation
    ]
    events = [
        one | {"tid": 2} if re.search(f"{RUN}|Backward|{ACCUMULATE}", one["name"]) else one
        for one in a_step()
    ]
    for number, (at, thread, start, lasts) in enumerate(launched):
        kernel = "ncclDevKernel" if lasts == 90 else "k"
        events += launch(number, at, start, lasts, kernel, thread=thread)
    return events


def test_kernels_are_timed_where_a_device_computes() -> None:
    about = {"deviceProperties": [{"name": "a device"}]}
    assert read(on_a_device(), **about)[0].provenance.processor == "a device"
    # The sum starts nothing, nor do its node and that of the transposition.
    assert durations(on_a_device()) == [30_000, 4_000, 0, 0, 10_000, 21_000, 0]


def warned(events: list[Event], said: str) -> bool:
    return any(said in warning for warning in read(events)[1])


def test_what_runs_between_two_kernels_is_no_time_of_an_op() -> None:
    """The device still works on the step before: the second kernel waits for it."""
    kernels = [*launch(1, 6, 20, 3), *launch(2, 21, 700, 5)]
    before = event("k", 30, 660, "kernel", correlation=99, thread=7)
    events = [*a_step(), *kernels, before]
    assert durations(events) == [3_000, 5_000, 0, 0, 0, 0, 0]
    assert warned(events, "run for 0.008 ms of a step of 0.705 ms")


def test_what_runs_at_once_counts_once_whatever_runtime_started_it() -> None:
    events = [*a_step(), *launch(1, 6, 20, 30, runtime="xpu_runtime")]
    events += launch(2, 21, 40, 30, stream=8, runtime="privateuse1_runtime")
    events += launch(3, 27, 45, 10, runtime="cuda_driver")
    assert durations(events)[:3] == [30_000, 20_000, 0]
    assert warned(events, "run for 0.05 ms of a step of 0.1 ms: the rest")


def test_medians_that_add_up_to_more_than_a_step_are_shortened() -> None:
    """Each of three kernels is long in two of three steps; the device is busy all the time."""
    events = []
    for k, long in enumerate(((60, 36, 4), (60, 4, 36), (4, 60, 36))):
        starts = [100 * k, 100 * k + long[0], 100 * k + long[0] + long[1]]
        events += a_step(k + 1, 100 * k, 10 * k)
        for place, at in enumerate((6, 21, 27)):
            events += launch(10 * k + place, 100 * k + at, starts[place], long[place])
    assert sum(durations(events)) <= 100_000
    assert durations(events)[:3] == [45_454, 27_272, 27_272]  # of 60, 36 and 36 in 132
    assert warned(events, "add up to 0.132 ms, 0.032 ms more than a step")


def test_a_host_that_runs_ahead_does_not_shorten_what_the_device_does() -> None:
    events = []
    for k in range(3):
        events += a_step(k + 1, 100 * k, 10 * k)
        events += launch(k, 100 * k + 6, 1000 * k, 990)
    assert durations(events)[0] == 990_000
    assert not warned(events, "shortened")


def test_events_of_unknown_accelerators_are_not_ignored_silently() -> None:
    unknown = [event("a", at, 20, "hpu_op", correlation="x", thread=9) for at in (10, 20, 50)]
    calls = [event("launch", 9, 1, "mtia_runtime", correlation=1)]
    known = [event("Iteration Start", 0, 100, "Trace"), event("sync", 3, 1, "cuda_sync")]
    events = [*a_step(), *unknown, *calls, *known]
    assert durations(events) == durations(a_step())
    assert warned(events, "3 events of category 'hpu_op', which run for 0.05 ms")
    assert warned(events, "runtime (mtia_runtime) but no kernels")
    assert len(read(events)[1]) == 2 + len(read(a_step())[1])


# --- files that were cut, and clocks that run backwards


@given(st.data())
def test_a_file_that_was_cut_is_refused(data: st.DataObject) -> None:
    text = written(on_a_device())
    stop = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InvalidInputError, match=r"not JSON"):
        read_trace(text[:stop])


def test_clocks_that_run_backwards_are_told() -> None:
    assert clock_remarks(read_trace(written([*a_step(1), *a_step(2, 200)]))) == []
    odd = event("aten::mul", 30, -3)
    trace = read_trace(written([*a_step(), odd]))
    assert trace.calls == read_trace(written(a_step())).calls
    assert "1 event that end before they begin" in clock_remarks(trace)[0]
    early = read_trace(written([*a_step(), *launch(1, 9, 7, 1)]))
    assert "1 kernel begin before they are launched, up to 2 µs" in clock_remarks(early)[0]
