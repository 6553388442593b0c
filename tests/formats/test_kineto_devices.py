"""Traces of PyTorch's profiler on a device: what kernels take."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.importers.kineto_trace import clock_remarks, read_trace
from planner.model.profiles import Profile
from tests.formats.test_kineto import ACCUMULATE, RUN, Event, a_step, event, read, written


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
        one | {"tid": 2} if RUN in one["name"] or "Backward" in one["name"] else one
        for one in a_step()
    ]
    events = [one | {"tid": 2} if ACCUMULATE in one["name"] else one for one in events]
    for number, (at, thread, start, lasts) in enumerate(launched):
        kernel = "ncclDevKernel" if lasts == 90 else "k"
        given = {"correlation": number}
        events.append(event("launch", at, 0.1, "cuda_runtime", **given, thread=thread))
        events.append(event(kernel, start, lasts, "kernel", **given, thread=7))
    return events


def test_kernels_are_timed_where_a_device_computes() -> None:
    profile, _ = read(on_a_device(), deviceProperties=[{"name": "a device"}])
    assert profile.graph is not None
    assert [(op.name, op.duration_ns) for op in profile.graph.ops] == [
        ("aten::linear/forward", 30_000),
        ("aten::relu/forward", 4_000),
        ("aten::sum/forward", 0),  # starts nothing
        ("aten::sum/SumBackward0", 0),
        ("aten::relu/ReluBackward0", 10_000),
        ("aten::linear/AddmmBackward0", 21_000),
        ("aten::linear/TBackward0", 0),
    ]
    assert profile.provenance.processor == "a device"


def launch(number: int, at: float, start: float, lasts: float, **given: Any) -> list[Event]:
    """Return a call of the runtime, and the kernel it starts."""
    category = given.pop("category", "cuda_runtime")
    stream = given.pop("stream", 7)
    return [
        event("launch", at, 0.1, category, correlation=number),
        event("k", start, lasts, "kernel", correlation=number, thread=stream),
    ]


def durations(profile: Profile) -> list[int]:
    assert profile.graph is not None
    return [op.duration_ns for op in profile.graph.ops]


def test_what_runs_between_two_kernels_is_no_time_of_an_op() -> None:
    """The device still works on the step before: the second kernel waits for it."""
    kernels = [*launch(1, 6, 20, 3), *launch(2, 21, 700, 5)]
    before = event("k", 30, 660, "kernel", correlation=99, thread=7)
    profile, warnings = read([*a_step(), *kernels, before])
    assert durations(profile) == [3_000, 5_000, 0, 0, 0, 0, 0]
    assert any("run for 0.008 ms of a step of 0.705 ms" in warning for warning in warnings)


def test_what_runs_at_once_counts_once() -> None:
    kernels = [*launch(1, 6, 20, 30), *launch(2, 21, 40, 30, stream=8), *launch(3, 27, 45, 10)]
    profile, warnings = read([*a_step(), *kernels])
    assert durations(profile)[:3] == [30_000, 20_000, 0]
    assert any("run for 0.05 ms of a step of 0.1 ms: the rest" in warning for warning in warnings)


def test_medians_that_add_up_to_more_than_a_step_are_shortened() -> None:
    """Each of three kernels is long in two of three steps; the device is busy all the time."""
    events = []
    for k, long in enumerate(((60, 36, 4), (60, 4, 36), (4, 60, 36))):
        starts = [100 * k, 100 * k + long[0], 100 * k + long[0] + long[1]]
        events += a_step(k + 1, 100 * k, 10 * k)
        for place, at in enumerate((6, 21, 27)):
            events += launch(10 * k + place, 100 * k + at, starts[place], long[place])
    profile, warnings = read(events)
    assert sum(durations(profile)) <= 100_000
    assert durations(profile)[:3] == [45_454, 27_272, 27_272]  # of 60, 36 and 36 in 132
    assert any("add up to 0.132 ms, 0.032 ms more than a step" in warning for warning in warnings)


def test_a_host_that_runs_ahead_does_not_shorten_what_the_device_does() -> None:
    events = []
    for k in range(3):
        events += a_step(k + 1, 100 * k, 10 * k)
        events += launch(k, 100 * k + 6, 1000 * k, 990)
    profile, warnings = read(events)
    assert durations(profile)[0] == 990_000
    assert not any("shortened" in warning for warning in warnings)


def test_other_runtimes_start_kernels_too() -> None:
    for category in ("xpu_runtime", "privateuse1_runtime", "cuda_driver"):
        profile, _ = read([*a_step(), *launch(1, 6, 20, 30, category=category)])
        assert durations(profile)[0] == 30_000


def test_events_of_unknown_accelerators_are_not_ignored_silently() -> None:
    unknown = [event("a", at, 20, "hpu_op", correlation="x", thread=9) for at in (10, 20, 50)]
    calls = [event("launch", 9, 1, "mtia_runtime", correlation=1)]
    known = [event("Iteration Start", 0, 100, "Trace"), event("sync", 3, 1, "cuda_sync")]
    profile, warnings = read([*a_step(), *unknown, *calls, *known])
    assert durations(profile) == durations(read(a_step())[0])
    assert any(
        "3 events of category 'hpu_op', which run for 0.05 ms" in warning for warning in warnings
    )
    assert any("runtime (mtia_runtime) but no kernels" in warning for warning in warnings)
    assert len(warnings) == 2 + len(read(a_step())[1])


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
    kernels = [
        event("launch", 9, 1, "cuda_runtime", correlation=1),
        event("k", 7, 1, "kernel", correlation=1, thread=7),
    ]
    early = read_trace(written([*a_step(), *kernels]))
    assert "1 kernel begin before they are launched, up to 2 µs" in clock_remarks(early)[0]
