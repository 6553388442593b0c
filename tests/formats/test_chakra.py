"""Chakra traces, read again with protobuf, from the fields as et_def.proto numbers them."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

import planner
from planner import InvalidInputError
from planner.formats.exporters.chakra import write_chakra
from planner.jsonio.graphs import documents_of
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from tests.cli.documents import PROVENANCE
from tests.cli.line import Line, write
from tests.formats.refused import refused

US = 1000
GRAPH = Graph(
    (
        Op("a/forward", 3 * US, "forward"),
        Op("b/forward", 5 * US, "forward", ("a/forward",)),
        Op("c/forward", 2 * US, "forward", ("a/forward",)),
        Op("d/forward", 4 * US, "forward", ("b/forward", "c/forward")),
        Op("d/backward", 4 * US, "backward", ("d/forward",)),
        Op("c/backward", 6 * US, "backward", ("d/backward", "c/forward")),
        Op("b/backward", 9 * US, "backward", ("d/backward", "b/forward")),
        Op("a/backward", 7 * US, "backward", ("b/backward", "c/backward")),
    ),
    (
        Parameter("a", 3000, ("a/backward",), ("a/forward",)),
        Parameter("b", 200, ("b/backward",), ("b/forward",)),
        Parameter("shared", 6000, ("b/backward", "c/backward"), ("b/forward", "c/forward")),
        Parameter("d", 90, ("d/backward",), ("d/forward",)),
    ),
)

WITHOUT_A = Graph(GRAPH.ops, GRAPH.parameters[1:])
"""Its first op in the forward pass reads no parameter."""


def described(graph: Graph) -> dict[str, Any]:
    ops, parameters = to_builtins(documents_of(graph))
    return {"ops": ops, "parameters": parameters}


def plan(graph: Graph = GRAPH, **given: Any) -> dict[str, Any]:
    network = {"startup_ns": 2000, "ns_per_byte": 1}
    request = {"problem": "caramel", "network": network, "method": "exact"}
    return planner.solve(request | described(graph) | given)


FIELDS = """
GlobalMetadata version 1 STRING
AttributeProto name 1 STRING
AttributeProto int32_val 7 INT32 value
AttributeProto int64_val 9 INT64 value
AttributeProto bool_val 27 BOOL value
Node id 1 UINT64
Node name 2 STRING
Node type 3 INT32
Node ctrl_deps 4 UINT64 repeated
Node data_deps 5 UINT64 repeated
Node start_time_micros 6 UINT64
Node duration_micros 7 UINT64
Node attr 10 MESSAGE repeated
""".strip()
"""Message, name, number and type, from et_def.proto; a node's type is an enumeration there."""


def messages() -> dict[str, Any]:
    """Return protobuf's classes of the messages."""
    descriptor_pb2, descriptor_pool, message_factory = (
        pytest.importorskip(f"google.protobuf.{one}")
        for one in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )
    file = descriptor_pb2.FileDescriptorProto(name="chakra", package="chakra", syntax="proto3")
    kinds: dict[str, Any] = {}
    for row in FIELDS.split("\n"):
        message, name, number, kind, *how = row.split()
        if message not in kinds:
            kinds[message] = file.message_type.add(name=message)
        field = kinds[message].field.add(name=name, number=int(number))
        field.type = getattr(field, f"TYPE_{kind}")
        field.label = field.LABEL_REPEATED if how == ["repeated"] else field.LABEL_OPTIONAL
        if kind == "MESSAGE":
            field.type_name = ".chakra.AttributeProto"
        if how == ["value"]:
            field.oneof_index = 0
    kinds["AttributeProto"].oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in kinds
    }


def decoded(data: bytes) -> list[Any]:
    """Return the nodes of a file, whose messages are each behind its length."""
    read = pytest.importorskip("google.protobuf.proto").parse_length_prefixed
    kinds, file = messages(), BytesIO(data)
    assert read(kinds["GlobalMetadata"], file).version == "0.0.4"
    return list(iter(lambda: read(kinds["Node"], file), None))


def replayed(nodes: list[Any], transfers_ns: list[int]) -> dict[str, tuple[int, int]]:
    """Start each node once all it waits for has ended."""
    times: dict[int, tuple[int, int]] = {}
    left = iter(transfers_ns)
    for node in nodes:  # listed behind what they wait for
        start = max((times[dependency][1] for dependency in node.data_deps), default=0)
        lasts = next(left) if node.type == 7 else node.duration_micros * US
        times[node.id] = (start, start + lasts)
    return {node.name: times[node.id] for node in nodes}


@pytest.mark.parametrize("method", ["exact", "caramel", "exact_split", "ddp"])
def test_replayed_with_the_planned_transfers_a_trace_takes_the_planned_times(method: str) -> None:
    """And its nodes say what they are."""
    order = [f"{name}/backward" for name in "dcba"] + [f"{name}/forward" for name in "abcd"]
    graph, more = (WITHOUT_A, {"op_order": order}) if method == "ddp" else (GRAPH, {})
    answer = plan(graph, method=method, **more)
    nodes = decoded(write_chakra(answer, graph))
    groups = answer["groups"]
    found = replayed(nodes, [group["end_ns"] - group["start_ns"] for group in groups])
    wanted = {one["op"]: (one["start_ns"], one["end_ns"]) for one in answer["schedule"]}
    wanted |= {f"transfer {k}": (one["start_ns"], one["end_ns"]) for k, one in enumerate(groups, 1)}
    assert found == wanted
    assert answer["barrier"] == (method == "ddp")  # which holds back the forward pass
    assert max(end for _, end in found.values()) == answer["iteration_ns"]
    assert sorted(node.id for node in nodes) == list(range(1, len(nodes) + 1))
    kinds = {node.name: node.type for node in nodes}
    assert {name for name, kind in kinds.items() if kind == 4} == {op.name for op in GRAPH.ops}
    sent = [node for node in nodes if node.type == 7]
    attributes = [{attribute.name: attribute for attribute in node.attr} for node in sent]
    sizes = [attribute["comm_size"].int64_val for attribute in attributes]
    assert sizes == [group["bytes"] for group in answer["groups"]]
    for one in attributes:
        assert one["comm_type"].WhichOneof("value") == "int64_val"
        assert one["comm_type"].int64_val == 0
        assert one["is_cpu_op"].WhichOneof("value") == "bool_val"


def test_of_a_depth_there_are_as_many_collectives_at_once() -> None:
    answer = plan()
    answer["groups"] = [{**group, "depth": 3} for group in answer["groups"]]
    nodes = decoded(write_chakra(answer, GRAPH, element_bytes=2))
    whole = {node.name: node for node in decoded(write_chakra(plan(), GRAPH))}
    assert sorted(node.id for node in nodes) == list(range(1, len(nodes) + 1))
    parts = [node for node in nodes if node.type == 7]
    assert len(parts) == 3 * len(answer["groups"])
    for number, group in enumerate(answer["groups"]):
        three = parts[3 * number : 3 * number + 3]
        attributes = [attribute for node in three for attribute in node.attr]
        sizes = [one.int64_val for one in attributes if one.name == "comm_size"]
        assert sum(sizes) == group["bytes"]
        assert max(sizes) - min(sizes) in (0, 2)
        assert sizes[0] % 2 == 0
        [end] = [node for node in nodes if node.name == f"transfer {number + 1}"]
        before = set(whole[end.name].data_deps)
        assert all(set(node.data_deps) == before for node in three)
        assert set(end.data_deps) == before | {node.id for node in three}
        assert (end.id, end.type, end.duration_micros) == (whole[end.name].id, 4, 0)


def test_rounding_does_not_add_up() -> None:
    ops = [Op(f"f{k}", 1400, "forward", (f"f{k - 1}",) if k else ()) for k in range(5)]
    graph = Graph((*ops, Op("b", 300, "backward", ("f4",))), (Parameter("p", 1, ("b",), ("f0",)),))
    nodes = decoded(write_chakra(plan(graph), graph))
    micros = [node.duration_micros for node in nodes if node.type == 4]
    assert micros == [0, 2, 1, 2, 1, 1]  # ends at 0.3, 1.7, 3.1, 4.5, 5.9 and 7.3 us


def test_what_a_trace_cannot_say_is_refused() -> None:
    answer = plan()
    ops = (Op("x", 1, "forward"), Op("y", 1, "backward", ("x",)))
    other = Graph(ops, (Parameter("a", 1, ("y",), ("x",)),))
    for given, graph, kind, path in (
        (answer | {"traffic": 1.5}, GRAPH, NotApplicableError, "traffic"),
        (answer | {"workers": 8}, GRAPH, NotApplicableError, "workers"),
        (answer, other, InvalidInputError, "--profile"),
        (answer, WITHOUT_A, InvalidInputError, "--profile"),
    ):
        with refused(path, "", kind):
            write_chakra(given, graph)


def test_the_command_writes_a_trace_for_each_rank(line: Line) -> None:
    write("net.json", {"name": "net", "provenance": PROVENANCE, **described(GRAPH)})
    write("plan.json", plan())
    traced = "chakra plan.json --profile net.json"
    line(f"export {traced} --ranks 3 -o net")
    assert sorted(one.name for one in Path().glob("*.et")) == ["net.0.et", "net.1.et", "net.2.et"]
    assert Path("net.2.et").read_bytes() == write_chakra(Path("plan.json").read_bytes(), GRAPH)
    for words, message in (
        ("chakra plan.json -o net", "--profile: missing"),
        (f"{traced} -o net", "--ranks: missing"),
        (f"{traced} -o net --ranks 1", "--ranks: expected an integer"),
        (traced, "--output: missing"),
        ("chakra net.json -o net --profile net.json", "an answer"),
    ):
        assert message in line.error("export", words)
