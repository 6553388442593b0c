"""FX graphs: what torch's graphs become, and what is refused."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from planner.families.overlap import check, own_order, solve
from planner.formats.importers.fx import problem_of
from planner.jsonio.graphs import decode_fx
from tests.cli.line import Line, read, write
from tests.formats.refused import refused

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The forward graph of two sharded layers, as a backend of torch.compile is given it."""
    import torch.distributed as dist
    import torch.distributed._functional_collectives as funcol
    from torch._dynamo.backends.common import aot_autograd
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from planner.profiling.fx import fx_document

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    documents: list[dict[str, Any]] = []

    def keep(graph_module: Any, _: Any) -> Any:
        documents.append(
            fx_document(
                graph_module.graph,
                node_ns=lambda node: 1000,
                collective_ns=lambda node, size: 500 + size,
                copy_gbps=1.0,
            )
        )
        return graph_module

    group: Any = dist.group.WORLD

    def layers(x: Any, first: Any, second: Any) -> Any:
        for shard in (first, second):
            whole = funcol.all_gather_tensor(shard, 0, group)
            x = torch.relu(x @ whole)
        return x

    try:
        compiled = torch.compile(layers, backend=aot_autograd(fw_compiler=keep), fullgraph=True)
        compiled(torch.ones(3, 8), torch.ones(2, 8), torch.ones(2, 8))
    finally:
        dist.destroy_process_group()
        torch._dynamo.reset()
    return documents[0]


def read_graph(document: dict[str, Any]) -> Any:
    return problem_of(decode_fx(json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("name", "freed", "kept"),
    [
        ("primals_1", "all", True),
        ("tangents_1", "named", False),
        ("arg0_1", "named", True),
        ("arg0_1", "all", False),
        ("tangents_1", "none", True),
    ],
)
def test_parameters_stay(document: dict[str, Any], name: str, freed: Any, kept: bool) -> None:
    """Only parameters are marked in a document; of other inputs only the name is known."""
    text = json.dumps(document).replace('"arg0_1"', f'"{name}"')
    other = json.loads(text)
    other["nodes"][0]["kept"] = name == "primals_1"
    problem = problem_of(decode_fx(json.dumps(other).encode()), freed)
    assert problem.tensors[0].producer is None
    assert problem.tensors[0].kept == kept


def place(document: dict[str, Any], test: Callable[[dict[str, Any]], Any]) -> int:
    return next(n for n, row in enumerate(document["nodes"]) if test(row))


def collective(row: dict[str, Any]) -> Any:
    return row.get("collective")


def test_a_graph_of_torch_is_planned(document: dict[str, Any]) -> None:
    problem = read_graph(document)
    assert len(problem.collectives) == 2
    (kind,) = problem.kinds
    assert kind.name == "all_gather_into_tensor float32"
    first = problem.collectives[0]
    assert first.size_bytes == 2 * 8 * 4
    assert first.pack_bytes == 0  # a gather is packed into the place of its output
    assert first.input_tensor is not None
    assert first.unpack_bytes == 4 * first.size_bytes
    assert (first.pack_ns, first.unpack_ns) == (2 * 64, 2 * 256)
    # What is gathered is there from its start; the wait returns the same memory.
    gathered = [t for t in problem.tensors if t.producer == first.start]
    assert [t.size_bytes for t in gathered] == [256]
    shards = [t for t in problem.tensors if t.size_bytes == 64]
    assert len(shards) == 2
    assert all(t.producer is None for t in shards)
    assert problem.tensors[first.input_tensor] in shards
    own = check(problem, own_order(problem))
    best = solve(problem)
    assert best.objective_ns is not None
    assert best.objective_ns < own.makespan_ns


def test_what_is_no_graph_is_refused(document: dict[str, Any]) -> None:
    nodes = document["nodes"]
    start = place(document, collective)
    wait = place(document, lambda row: row.get("waits"))
    computed = place(document, lambda row: row.get("duration_ns"))
    last = [row["name"] for row in nodes if row.get("duration_ns")][-1]
    taken, known = nodes[start]["inputs"], nodes[computed]["inputs"]
    duration, more = f"nodes[{computed}].duration_ns", f"nodes[{computed}].inputs[{len(known)}]"
    for number, change, path, said in (
        (computed, {"inputs": [*known, "nobody"]}, more, "nobody"),
        (start, {"inputs": [*taken, last]}, "nodes", "cycle"),
        (wait, {"waits": None}, f"nodes[{wait}].duration_ns", ""),
        (wait, {"waits": False, "duration_ns": 0}, f"nodes[{start}].collective", "nothing waits"),
        (wait, {"inputs": []}, f"nodes[{wait}].inputs", "waits for no collective"),
        (computed, {"duration_ns": -1}, duration, ""),
        (computed, {"duration_ns": None}, duration, "^missing(,|$)"),
    ):
        changed = deepcopy(document)
        row = (nodes[number] | change).items()
        changed["nodes"][number] = {name: value for name, value in row if value is not None}
        with refused(path, said):
            read_graph(changed)
    for given, where, said in (
        ({**document, "nodes": [*nodes, nodes[0]]}, None, "twice"),
        ({**document, "times": {}}, "times", ""),
        ({"nodes": []}, "fx", ""),
    ):
        with refused(where, said):
            read_graph(given)


def test_the_command_makes_a_request(document: dict[str, Any], line: Line) -> None:
    write("graph.json", document)
    line("import fx graph.json -o made.json")
    problem = read_graph(document)
    own = check(problem, own_order(problem))
    assert read("made.json")["memory_limit_bytes"] == own.peak_bytes
    assert "not hidden" in line("compare made.json --methods greedy,own_order").out
    line("import fx graph.json -o freed.json --freed-inputs all")
    assert not any(tensor.get("kept") for tensor in read("freed.json")["tensors"][:1])
    line.error("import fx graph.json --name x")
    line.error("import pipedream graph.txt --freed-inputs all")
    assert "expected one of fx" in line.error("import fx graph.json graph.json")


def test_writes_keep_their_place() -> None:
    from torch import fx

    from planner.profiling.fx import fx_document

    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(4)
    read_before = graph.call_function(torch.ops.aten.neg.default, (x,))
    write = graph.call_function(torch.ops.aten.add_.Tensor, (x, 1))
    read_after = graph.call_function(torch.ops.aten.exp.default, (x,))
    graph.output((read_before, write, read_after))
    written = fx_document(graph, node_ns=lambda _: 1, collective_ns=lambda *_: 0)
    problem = read_graph(written)
    number = {node.name: n for n, node in enumerate(problem.nodes)}
    assert number[read_before.name] in problem.nodes[number[write.name]].after
    assert number[write.name] in problem.nodes[number[read_after.name]].after
