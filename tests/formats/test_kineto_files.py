"""Trace files: those that were cut, and clocks that run backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats import read_kineto
from planner.formats.importers.kineto_trace import clock_remarks, read_trace
from tests.formats.test_kineto import a_step, event, written
from tests.formats.test_kineto_devices import on_a_device


@given(st.data())
def test_a_file_that_was_cut_is_refused(data: st.DataObject) -> None:
    text = written(on_a_device())
    stop = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InvalidInputError, match=r"not JSON"):
        read_trace(text[:stop])


def test_a_wrong_event_is_named_by_its_place_in_the_file() -> None:
    events = a_step()
    events[17] = events[17] | {"ts": "x"}
    with pytest.raises(InvalidInputError) as caught:
        read_trace(written(events))
    assert caught.value.path == "traceEvents[17].ts"
    text = written(a_step()).replace(b'"dur": 10', b'"dur": NaN')
    with pytest.raises(InvalidInputError, match=f"byte {text.index(b'NaN')}"):
        read_trace(text)


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


def test_steps_become_one_by_medians() -> None:
    events = [
        one
        for k, slower in enumerate((1.0, 6.0, 2.0))
        for one in a_step(k, 1000 * k, 10 * k, slower)
    ]
    profile, _ = read_kineto(written(events), name="m", source="s")
    assert profile.graph is not None
    assert profile.graph.ops[1].duration_ns == 8000
