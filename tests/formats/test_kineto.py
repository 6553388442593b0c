"""Traces of PyTorch's profiler: made up event by event, with times in microseconds."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from planner.formats import read_kineto
from planner.jsonio import decode_profile
from planner.model.graphs import Graph, Op, Parameter
from planner.model.profiles import Profile
from tests.cli.documents import LINK
from tests.cli.line import Line
from tests.formats.refused import refused

Event = dict[str, Any]
RUN = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"


def event(name: str, start: float, lasts: float, cat: str = "cpu_op", **given: Any) -> Event:
    thread = given.pop("thread", 1)
    args = {key.replace("_", " "): value for key, value in given.items() if value is not None}
    place = {"pid": 1, "tid": thread, "ts": start, "dur": lasts}
    return {"ph": "X", "cat": cat, "name": name, **place, "args": args}


def op(name: str, start: float, lasts: float, number: int | None = None, thread: int = 1) -> Event:
    return event(name, start, lasts, Sequence_number=number, thread=thread)


def node(name: str, start: float, lasts: float, number: int, thread: int = 1) -> list[Event]:
    given: Any = {"Sequence_number": number, "Fwd_thread_id": 1, "thread": thread}
    return [event(RUN + name, start, lasts, **given), event(name, start + 0.5, lasts - 1, **given)]


def gradient(
    shape: Any, start: float, lasts: float, kind: Any = "float", thread: int = 1
) -> list[Event]:
    given: Any = {"Input_Dims": [shape], "Input_type": [kind], "thread": thread}
    return [
        event(RUN + ACCUMULATE, start, lasts, thread=thread),
        event(ACCUMULATE, start + 0.5, lasts - 1, **given),
    ]


def launch(
    number: int,
    at: float,
    start: float,
    lasts: float,
    name: str = "k",
    *,
    runtime: str = "cuda_runtime",
    thread: int = 1,
    stream: int = 7,
) -> list[Event]:
    """Return a call of the runtime, and the kernel it starts."""
    return [
        event("launch", at, 0.1, runtime, correlation=number, thread=thread),
        event(name, start, lasts, "kernel", correlation=number, thread=stream),
    ]


def a_step(number: int = 1, at: float = 0, first: int = 0, slower: float = 0) -> list[Event]:
    """Return a linear layer, a ReLU and a sum, forward and backward, and the update."""
    return [
        event(f"ProfilerStep#{number}", at, 100, "user_annotation"),
        op("aten::randn", at + 1, 2),
        op("aten::linear", at + 5, 10, first),
        op("aten::t", at + 6, 1, first),
        op("aten::addmm", at + 8, 5, first + 1),
        op("aten::detach", at + 16, 1, first + 2),  # asks for a number and makes no node
        op("aten::relu", at + 20, 4, first + 2),
        op("aten::sum", at + 26 + slower, 4, first + 3),
        op("aten::ones_like", at + 36, 1),
        *node("SumBackward0", at + 40, 4, first + 3),
        *node("ReluBackward0", at + 46, 4, first + 2),
        *node("AddmmBackward0", at + 52, 10, first + 1),
        *gradient([4], at + 63, 2),
        *node("TBackward0", at + 66, 2, first),
        *gradient([4, 8], at + 69, 3, "c10::Half"),
        event("Optimizer.step#SGD.step", at + 80, 10, "user_annotation"),
        op("aten::add_", at + 81, 2, first + 4),
    ]


def written(events: Any, **more: Any) -> bytes:
    return json.dumps({"traceEvents": events, **more}).encode()


def read(events: Any, **more: Any) -> tuple[Profile, tuple[str, ...]]:
    return read_kineto(written(events, **more), name="m", source="trace.json")


def graph_of(events: Any, **more: Any) -> Graph:
    graph = read(events, **more)[0].graph
    assert graph is not None
    return graph


def durations(events: Any, **more: Any) -> list[int]:
    return [one.duration_ns for one in graph_of(events, **more).ops]


OPS = [
    ("aten::linear/forward", 15_000, "forward"),
    ("aten::relu/forward", 6_000, "forward"),
    ("aten::sum/forward", 14_000, "forward"),
    ("aten::sum/SumBackward0", 6_000, "backward"),
    ("aten::relu/ReluBackward0", 6_000, "backward"),
    ("aten::linear/AddmmBackward0", 14_000, "backward"),
    ("aten::linear/TBackward0", 6_000, "backward"),
]


def test_what_a_hook_of_a_gradient_waits_for_is_no_computation() -> None:
    """As ZeRO's, which send and wait: here for 1.2 of the 14 µs of the layer's node."""
    sent: Any = {"Input_Dims": [[[4]], []]}
    hook = [
        event("c10d::allreduce_", 63.6, 0.1, **sent),
        event("gloo:all_reduce", 63.8, 1, "user_annotation", Input_Dims=[[4]], thread=2),
    ]
    times = [duration for _, duration, _ in OPS]
    times[-2] -= 1200
    assert durations([*a_step(), *hook]) == times


def test_a_step_becomes_ops_one_after_the_other_and_parameters() -> None:
    """Its events may be in any order, and the file compressed."""
    profile, warnings = read(a_step())
    graph = graph_of(a_step())
    packed = gzip.compress(written(a_step()[::-1]))
    assert read_kineto(packed, name="m", source="s")[0].graph == graph
    before = [(), *((name,) for name, _, _ in OPS)]
    assert graph.ops == tuple(
        Op(name, duration, phase, after)  # type: ignore[arg-type]
        for (name, duration, phase), after in zip(OPS, before, strict=False)
    )
    reader = ("aten::linear/forward",)
    assert graph.parameters == (
        Parameter("aten::linear 4x8", 64, ("aten::linear/TBackward0",), reader),
        Parameter("aten::linear 4", 16, ("aten::linear/AddmmBackward0",), reader),
    )
    assert [(layer.name, layer.forward_ns, layer.backward_ns) for layer in profile.layers] == [
        ("aten::linear", 15_000, 20_000),
        ("aten::relu", 6_000, 6_000),
        ("aten::sum", 14_000, 6_000),
    ]
    assert [layer.parameter_bytes for layer in profile.layers] == [80, 0, 0]
    assert profile.layer_parameters() == (("aten::linear 4x8", "aten::linear 4"), (), ())
    assert profile.provenance.kind == "imported"
    assert "trace.json" in profile.provenance.source
    first = [warning.split()[0] for warning in warnings]
    assert first == ["times", "0.002"]  # one step; randn left out


def test_each_op_takes_its_median_over_the_steps() -> None:
    steps = [(1, 0.0, 1.0), (2, 1000.0, 4.0), (3, 2000.0, 2.0)]
    events = [one for k, at, slower in steps for one in a_step(k, at, 10 * k, slower)]
    assert durations(events) == [15_000, 8_000, 12_000, 6_000, 6_000, 14_000, 6_000]


def test_a_step_unlike_the_others_is_left_out() -> None:
    odd = [one for one in a_step(3, 2000) if "4, 8" not in str(one["args"])]
    profile, warnings = read(a_step() + a_step(2, 1000) + odd)
    assert profile.provenance.repetitions == 2
    assert "2 of 3 steps" in warnings[0]


def test_without_marks_a_step_ends_with_its_update() -> None:
    events = [one for at in (0, 1000) for one in a_step(at=at) if "Step#" not in one["name"]]
    assert read(events)[0].provenance.repetitions == 2


def test_a_shared_parameter_belongs_to_the_op_that_reads_it_first() -> None:
    # Both linear ops read one weight; its gradient is complete behind the node of the first.
    events = [
        op("aten::linear", 0, 10, 0),
        op("aten::linear", 10, 10, 1),
        *node("MmBackward0", 30, 10, 1),
        *node("MmBackward1", 40, 10, 0),
        *gradient([2, 2], 50, 10),
    ]
    assert graph_of(events).parameters == (
        Parameter("aten::linear 2x2", 16, ("aten::linear/MmBackward1",), ("aten::linear/forward",)),
    )


def test_an_unknown_reader_is_the_first_op() -> None:
    events = [one for one in a_step() if one["name"] != "aten::t"]
    events[2]["args"].pop("Sequence number")
    readers = [parameter.read_by for parameter in graph_of(events).parameters]
    assert readers == [("aten::linear/forward",)] * 2
    assert any("1 of 2 parameters" in warning for warning in read(events)[1])


@pytest.mark.parametrize("field", ["Ev Idx", "Profiler Event Index"])
def test_down_sampled_traces_are_called_so(field: str) -> None:
    def numbered(events: list[Event]) -> list[Event]:
        return [one | {"args": one["args"] | {field: k}} for k, one in enumerate(events)]

    whole = numbered(a_step())
    assert not any("down-sampled" in one for one in read(whole)[1])
    sampled = [one for one in whole if one["name"] not in ("aten::randn", "aten::add_")]
    expected = f"down-sampled or cut: the file holds {len(whole) - 2} of {len(whole) - 1} events"
    assert expected in read(sampled)[1][0]
    with refused("traceEvents", "backward pass; down-sampled or cut: the file"):
        read([one for one in whole if ACCUMULATE not in one["name"]])


def without(*names: str) -> list[Event]:
    return [one for one in a_step() if not any(name in one["name"] for name in names)]


def with_args(place: str, **args: Any) -> list[Event]:
    given = {key.replace("_", " "): value for key, value in args.items()}
    return [
        one | {"args": one["args"] | given} if one["name"] == place else one for one in a_step()
    ]


def twice() -> list[Event]:
    """Return a step with two forward and backward passes."""
    mark, *first = a_step()
    return [mark | {"dur": 300}, *first, *a_step(at=100, first=9)[1:]]


HOROVOD = b"""[
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "allreduce.w"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 12, "pid": 1},
{"ph": "X", "name": "0", "ts": 15, "pid": 1, "dur": 0},
{"ph": "E", "ts": 20, "pid": 1},
"""
PLUGIN = b"""[
{"name": "Group", "cat": "GROUP", "ph": "b", "id": 0, "pid": 7, "tid": 1, "ts": 76.6, "args": {}},
{"name": "AllReduce", "cat": "COLL", "ph": "b", "args": {"Datatype": ncclFloat32, "Stream": 0x41}},
{}]"""
JAX = b"""{"displayTimeUnit": "ns", "traceEvents": [
{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
{"ph": "X", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2, "name": "fusion"}]}"""
FLOATS = PLUGIN.replace(b"ncclFloat32", b'"f"').replace(b"0x41", b'"1"')
NESTED = [*a_step(), *[one | {"ts": 53.5, "dur": 1} for one in gradient([2], 0, 2)[1:]]]
ARGS = "traceEvents[16].args"


@pytest.mark.parametrize(
    ("events", "path", "expected"),
    [
        ([], "traceEvents", "ProfilerActivity.CPU"),
        ([3], "traceEvents[0]", "expected object, got int"),
        ([op("a", "x", 1)], "traceEvents[0].ts", "microseconds"),  # type: ignore[arg-type]
        ([op("a", 10**30, 1)], "traceEvents[0].ts", "microseconds"),
        ([op("a", 1, -1)], "traceEvents", "ProfilerActivity.CPU"),
        ([op("a", 1, 1) | {"args": [1]}], "traceEvents[0].args", "expected object"),
        ([{"ph": "X", "cat": "cpu_op"}], "traceEvents[0].ts", "missing"),
        ([op("a", 1, 1, "x")], "traceEvents[0].args.Sequence number", "an integer"),  # type: ignore[arg-type]
        (without(ACCUMULATE), "traceEvents", "record whole training steps"),
        (without("Backward"), "ProfilerStep#1", "before any backward op"),
        (without("aten::"), "ProfilerStep#1", "no forward op"),
        (with_args(ACCUMULATE, Input_Dims=None), f"{ARGS}.Input Dims", "record_shapes"),
        (with_args(ACCUMULATE, Input_type=["int4"]), f"{ARGS}.Input type[0]", "int4"),
        (with_args(ACCUMULATE, Input_Dims=[[-1]]), f"{ARGS}.Input Dims[0]", ">= 0"),
        (with_args(ACCUMULATE, Input_Dims=[[10**9] * 9]), f"{ARGS}.Input Dims[0]", "bytes"),
        (with_args(ACCUMULATE, Input_Dims=[]), f"{ARGS}.Input Dims", "one input"),
        (with_args(ACCUMULATE, Input_type=[""]), "ProfilerStep#1", "at least one gradient"),
        (twice(), "ProfilerStep#1", "between backward ops"),
        ([*a_step(), *node("ReluBackward0", 74, 2, 2)], "ProfilerStep#1", "twice"),
        ([*a_step(), op("aten::ones_like", 45, 0.5)], "ProfilerStep#1", "between backward ops"),
        (NESTED, "traceEvents[23]", "use_reentrant=False"),
        ([*a_step(), event("k", 1, 1, "kernel", correlation=1)], "ProfilerStep#1", "cuda_runtime"),
    ],
)  # fmt: skip
def test_what_is_no_step_is_refused(events: list[Any], path: str, expected: str) -> None:
    with refused(path, expected):
        read(events)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "^not JSON"),
        (written(a_step()).replace(b'"dur": 10', b'"dur": NaN'), "^not JSON"),
        (b"[]", "^expected object, got array"),
        (b"{}", "^traceEvents: missing"),
        (b'{"x": ' + b"[" * 10**5, "nested too deeply"),
        (b"\xff\xfe", "^not JSON"),
        (gzip.compress(written(a_step()), mtime=0)[:-9], "ends early"),
        (b"\x1f\x8bno", "^not gzip"),
        *(
            (text, rf"{what}.*ProfilerActivity\.CPU")
            for text, what in (
                (HOROVOD, "Horovod's timeline"),
                (HOROVOD[:-2] + b"]", "Horovod's timeline"),
                (HOROVOD[:-30], "Horovod's timeline"),
                (PLUGIN, "NCCL's profiler plugin"),
                (FLOATS, "NCCL's profiler plugin"),
                (JAX, "TensorFlow's or JAX's profiler"),
                (written([event("frame", 1, 1, "ui")]), "it has 'ui'; give a trace of torch.pro"),
                (written([]), "no event has a category"),
            )
        ),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_is_no_trace_of_pytorch_is_refused(data: bytes, expected: str) -> None:
    with refused(None, expected):
        read_kineto(data, name="m", source="s")


def test_the_command_writes_a_profile_that_can_be_compared(line: Line) -> None:
    Path("net.json.gz").write_bytes(gzip.compress(written(a_step())))
    assert "warning: net.json.gz" in line("import kineto net.json.gz --batch-size 4 -o net").err
    found = decode_profile(Path("net").read_bytes())
    assert (found.name, found.batch_size, found.parameter_bytes) == ("net", 4, 80)
    assert "2 parameters" in line("compare net --problem caramel", LINK).out
    Path("net.json.gz").write_bytes(b"{")
    assert "net.json.gz: not JSON" in line.error("import kineto net.json.gz")


OLDER = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "kernel": "Kernel",
    "cuda_runtime": "Runtime",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}


def as_before_1_12(events: list[Event]) -> list[Event]:
    """Return events as torch 1.9 wrote them: other categories, nothing around autograd nodes."""
    return [
        one | {"cat": OLDER.get(one["cat"], one["cat"]), "tid": str(one["tid"])}
        for one in events
        if not one["name"].startswith(RUN)
    ]


def test_categories_of_before_torch_1_12_are_read_as_todays() -> None:
    old = as_before_1_12(a_step())
    graph = graph_of(old)
    assert [(one.name, one.phase) for one in graph.ops] == [(name, phase) for name, _, phase in OPS]
    parameters = [(one.name, one.size_bytes) for one in graph.parameters]
    assert parameters == [("aten::linear 4x8", 64), ("aten::linear 4", 16)]
    inputs: list[Any] = [None, []]
    for dims in inputs:
        named = event("my forward", 4, 30, "Operator", Input_Dims=dims)  # a range of the user's
        assert read([named, *old])[0].layers == read(old)[0].layers


def test_an_operator_of_before_torch_1_12_on_a_device() -> None:
    events = a_step()
    for number, at in enumerate((9.0, 21.0, 53.0, 64.0)):
        events += launch(number, at, at + 1, 0.5, "gemm")
    new = durations(events)
    assert durations(as_before_1_12(events)) == new
    assert sum(new) == 2000


@pytest.mark.parametrize("odd", [b"\x01\n\x1f", b"\xfe\xff\x80", b"\xfe\x00"])
def test_names_with_control_characters_or_bytes_that_are_no_utf_8_are_read(odd: bytes) -> None:
    text = written([event("aten::ODD", 1, 1), *a_step()], traceName="ODD")
    profile, _ = read_kineto(text.replace(b"ODD", odd), name="m", source="t")
    assert profile.layers == read(a_step())[0].layers
    with refused(None, r"not JSON.*byte"):
        read_kineto(text.replace(b"ODD", odd).replace(b"}, {", b"} {", 1), name="m", source="t")


def test_what_other_tools_write_may_stand_in_a_trace_of_pytorch() -> None:
    events = [event("NEGOTIATE_ALLREDUCE", 1, 1, "COLL"), *a_step()]
    assert read(events)[0].layers == read(a_step())[0].layers
