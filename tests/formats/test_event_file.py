"""Trace files are read piece by piece as they would be at once."""

import gzip
import io
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats import read_kineto
from planner.formats.importers import event_file
from planner.formats.importers.event_file import EventFile
from planner.formats.importers.kineto_trace import clock_remarks, read_trace
from tests.formats.test_kineto import a_step, event, written
from tests.formats.test_kineto_devices import on_a_device


class One(msgspec.Struct):
    """An event of which all is kept."""

    a: Any = None


# Texts that look like cuts, ends and escapes; objects within objects within lists.
TEXTS = st.one_of(
    st.sampled_from(['},{"a":', "}, {", "]}", '\\"},{', '"', "\\", '"traceEvents": [', "\n},\n{"]),
    st.text(max_size=5),
)
VALUES: Any = st.recursive(
    st.one_of(st.integers(-9, 9), TEXTS, st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
EVENTS = st.lists(VALUES.map(lambda value: {"a": value}), max_size=8)


def read_in_pieces(data: bytes, piece: int) -> tuple[list[Any], bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_file, "PIECE", piece)
        file = EventFile(io.BytesIO(data), One, limit=1 << 30)
        found = [one.a for batch in file.batches() for one in batch]
    return found, file.outside


@pytest.mark.slow
@given(
    EVENTS,
    st.dictionaries(TEXTS.filter(lambda key: key != "traceEvents"), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2),
    st.integers(4, 40),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_pieces_are_read_as_the_whole(
    events: list[Any],
    before: dict[str, Any],
    after: dict[str, Any],
    piece: int,
    indent: int | None,
    packed: bool,
) -> None:
    document = {**before, "traceEvents": events, **after}
    text = json.dumps(document, indent=indent).encode()
    found, outside = read_in_pieces(gzip.compress(text) if packed else text, piece)
    assert found == [one["a"] for one in events]
    assert json.loads(outside) == document | {"traceEvents": []}


@pytest.mark.slow
@given(EVENTS, st.integers(1, 40), st.sampled_from(["]", "", ",", ",]"]))
def test_a_bare_array_may_lack_its_end(events: list[Any], piece: int, end: str) -> None:
    text = "[" + ",".join(map(json.dumps, events)) + (end if events else "]")
    found, _ = read_in_pieces(text.encode(), piece)
    assert found == [one["a"] for one in events]


@given(st.data())
def test_a_file_that_was_cut_is_refused(data: st.DataObject) -> None:
    text = written(on_a_device())
    stop = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InvalidInputError, match=r"not JSON|missing"):
        read_in_pieces(text[:stop], data.draw(st.integers(20, 5000))) and read_kineto(
            text[:stop], name="m", source="s"
        )


@pytest.mark.parametrize("more", [1, 2])
def test_a_file_that_was_cut_between_two_events_is_refused(more: int) -> None:
    text = written(on_a_device())
    for end in list(re.finditer(rb"\},", text))[::7]:
        with pytest.raises(InvalidInputError, match="not JSON"):
            read_in_pieces(text[: end.start() + more], 100)


@pytest.mark.parametrize("piece", [7, 200, 1 << 20])
def test_a_wrong_event_is_named_by_its_place_in_the_file(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_file, "PIECE", piece)
    events = a_step()
    events[17] = events[17] | {"ts": "x"}
    with pytest.raises(InvalidInputError) as caught:
        read_trace(written(events))
    assert caught.value.path == "traceEvents[17].ts"
    text = written(a_step()).replace(b'"dur": 10', b'"dur": NaN')
    with pytest.raises(InvalidInputError, match=f"byte {text.index(b'NaN')}"):
        read_trace(text)


def test_one_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "PIECE", 100)
    monkeypatch.setattr(event_file, "MAX_OUTSIDE", 1000)
    with pytest.raises(InvalidInputError, match=r"traceEvents\[1\]: expected at most 1000 bytes"):
        read_trace(b'{"traceEvents": [{}, {"args": "' + b"x" * 5000)
    with pytest.raises(InvalidInputError, match="in the first 1000 bytes"):
        read_trace(b'{"x": "' + b"x" * 5000)


def test_clocks_that_run_backwards_are_told() -> None:
    assert clock_remarks(read_trace(written([*a_step(1), *a_step(2, 200)]))) == []
    odd = event("aten::mul", 30, -3)
    trace = read_trace(written([*a_step(), odd]))
    assert trace.calls == read_trace(written(a_step())).calls
    assert "1 event that end before they begin" in clock_remarks(trace)[0]
    crossed = read_trace(written([*a_step(1), *a_step(2, 50)]))
    assert "1 step begin before the one before has ended, first step 2" in clock_remarks(crossed)[0]
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
