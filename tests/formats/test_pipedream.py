"""PipeDream's profiler graphs. The files here are made up in its format."""

from typing import Any

import pytest

from planner.formats import read_pipedream
from planner.model.graphs import Parameter
from planner.model.profiles import Profile
from tests.formats.refused import refused

ROW = (
    "{name} -- {operation} -- forward_compute_time={forward}, backward_compute_time={backward}, "
    "activation_size={activation}, parameter_size={size}"
)


def row(name: str, operation: str, forward: str = "1.500", **given: str) -> str:
    known = {"backward": "2.000", "activation": "8.000", "size": "0.000"} | given
    return ROW.format(name=name, operation=operation, forward=forward, **known)


EDGES = [f"\tnode{i} -- node{j}" for i, j in ((1, 2), (2, 3), (2, 4), (3, 5), (4, 5))]
NODES = ((2, "A", "8.0"), (3, "B", "0.0"), (4, "C", "4.0"), (5, "D", "0.0"))
CONV = "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
GOOD = "\n".join(
    [
        row("node4", "Linear(in_features=8, out_features=2, bias=True)", size="72.000"),
        row("node10", "ReLU(inplace)"),
        row("node1", "Input", forward="17.972", backward="0.000"),
        row("node2", CONV, activation="[100.000; 28.000]", size="896.000"),
        "\tnode10 -- node4",
        "\tnode1 -- node2",
        "\tnode2 -- node10",
    ]
)


def read(*lines: str, **more: Any) -> tuple[Profile, tuple[str, ...]]:
    text = "\n".join(lines).encode()
    return read_pipedream(text, name="m", source="graph.txt", **more)


def test_unordered_rows_lists_and_the_input_row() -> None:
    profile, warnings = read(GOOD, batch_size=4)
    names = [layer.name for layer in profile.layers]
    assert names == ["node2 Conv2d", "node10 ReLU", "node4 Linear"]
    assert profile.layers[0].activation_bytes == 128
    assert [layer.forward_ns for layer in profile.layers] == [1_500_000] * 3
    assert profile.parameter_bytes == 896 + 72
    assert [layer.block for layer in profile.layers] == [0, 1, 2]
    assert profile.provenance.kind == "imported"
    assert "graph.txt" in profile.provenance.source
    assert profile.batch_size == 4
    (warning,) = warnings
    assert "data loading" in warning


def test_branches_share_a_block_and_without_parameters_there_is_no_graph() -> None:
    profile, _ = read(*(row(f"node{i}", "ReLU(inplace)") for i in range(1, 6)), *EDGES)
    assert [layer.block for layer in profile.layers] == [0, 1, 2, 2, 2]
    assert profile.graph is None


def test_the_edges_make_a_dataflow_graph() -> None:
    rows = (row(f"node{i}", f"{kind}()", size=size) for i, kind, size in NODES)
    graph = read(row("node1", "Input"), *rows, *EDGES, "\tnode2 -- node4")[0].graph
    assert graph is not None
    assert [(op.name, op.after) for op in graph.ops] == [
        ("node2 A/forward", ()),
        ("node3 B/forward", ("node2 A/forward",)),
        ("node4 C/forward", ("node2 A/forward",)),
        ("node5 D/forward", ("node3 B/forward", "node4 C/forward")),
        ("node5 D/backward", ("node5 D/forward",)),
        ("node4 C/backward", ("node5 D/backward", "node4 C/forward")),
        ("node3 B/backward", ("node5 D/backward", "node3 B/forward")),
        ("node2 A/backward", ("node3 B/backward", "node4 C/backward", "node2 A/forward")),
    ]
    assert {op.duration_ns for op in graph.ops if op.phase == "backward"} == {2_000_000}
    assert graph.parameters == (
        Parameter("node2 A", 8, ("node2 A/backward",), ("node2 A/forward",)),
        Parameter("node4 C", 4, ("node4 C/backward",), ("node4 C/forward",)),
    )


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("", "", "at least one layer"),
        (row("node1", "Input"), "", "at least one layer"),
        ("nonsense", "line 1", "expected 'node -- operation -- measurements'"),
        ("a -- b -- c", "line 1", "missing forward_compute_time"),
        (row("n", "ReLU", forward="x"), "line 1, forward_compute_time", "a number"),
        (row("n", "ReLU", forward="-1"), "line 1, forward_compute_time", ">= 0"),
        (row("n", "ReLU", forward="NaN"), "line 1, forward_compute_time", ">= 0"),
        (row("n", "ReLU", forward="1e99999"), "line 1, forward_compute_time", ">= 0"),
        (row("n", "ReLU", forward="1e999999"), "line 1, forward_compute_time", "a number"),
        (row("n", "ReLU", activation="[1; x]"), "line 1, activation_size", "a number"),
        (row("n", "ReLU") + "\n" + row("n", "ReLU"), "line 2", "given twice"),
        (row("n", "ReLU") + "\n\tn -- m", "line 2", "'m'"),
        (row("n", "ReLU") + "\n\tn m", "line 2", "node -- node"),
        (row("n", "R") + "\n" + row("m", "R") + "\n\tn -- m\n\tm -- n", "", "cycle: "),
    ],
)
def test_what_is_no_graph_is_refused(text: str, path: str, expected: str) -> None:
    with refused(path, expected):
        read(text)
