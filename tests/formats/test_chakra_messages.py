"""Programs as sends and receives in Chakra traces, read with protobuf, and followed."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.families.collectives import Program
from planner.families.collectives.layout import Layout
from planner.families.collectives.program import OWN, Message, layouts_of
from planner.families.collectives.recipes import Recipe, made
from planner.formats.exporters.chakra import write_chakra, write_messages
from planner.jsonio import decode_answer
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.programs.collectives import summing_program
from tests.collectives.programs import all_programs
from tests.formats.test_chakra import GRAPH, decoded
from tests.jsonio.test_iteration import REQUEST

SEND, RECEIVE = 5, 6
SMALL = [program for program in all_programs() if program.ranks <= 9]


def ends(node: Any) -> tuple[int, ...]:
    values = {attribute.name: attribute for attribute in node.attr}
    src, dst, tag = (values[f"comm_{name}"].int32_val for name in ("src", "dst", "tag"))
    return src, dst, tag, values["comm_size"].int64_val


def meant(program: Program, rank: int, layouts: Sequence[Layout]) -> list[tuple[int, Message]]:
    """Return the messages of a rank as a trace lists them, each with its part."""
    both = [*program.sends(rank), *program.receives(rank)]
    every = [(part, message) for part in range(len(layouts)) for message in both]
    every.sort(key=lambda one: (sum((one[0], one[1].step)), one[0], one[1].sender != rank, one[1]))
    return [
        (part, message)
        for part, message in every
        if layouts[part].span(message.first, message.stop - message.first)
    ]


def followed(
    traces: list[list[Any]], program: Program, layouts: Sequence[Layout], seed: int
) -> bool:
    """Carry traces out in some order that they allow; whether all ends in the sums."""
    draw = Random(seed)
    every = product(range(program.ranks), range(len(layouts)), range(program.chunks))
    owned = [(rank, part, OWN, chunk) for rank, part, chunk in every]
    held: dict[tuple[int, int, int, int], Counter[int]] = {
        key: Counter({key[0]: 1}) for key in owned
    }
    messages = [meant(program, rank, layouts) for rank in range(program.ranks)]
    wire: dict[tuple[int, ...], list[Counter[int]]] = {}
    blocks: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(
        list
    )  # by what they wait for
    waits: dict[tuple[int, int], int] = {}
    for rank, trace in enumerate(traces):
        for place, node in enumerate(trace):
            before: list[tuple[Any, ...]] = [
                (rank, dependency) for dependency in set(node.data_deps)
            ]
            if node.type == RECEIVE:
                before.append(ends(node))
            waits[rank, place] = len(before)
            for one in before:
                blocks[one].append((rank, place))
    ready = [one for one, count in waits.items() if not count]
    left = len(waits)
    while ready:
        left -= 1
        rank, place = ready.pop(draw.randrange(len(ready)))
        node, (part, message) = traces[rank][place], messages[rank][place]
        chunks = range(message.first, message.stop)
        happened: list[tuple[Any, ...]] = [(rank, node.id)]
        if node.type == SEND:
            assert ends(node) not in wire
            wire[ends(node)] = [Counter(held[rank, part, message.source, one]) for one in chunks]
            happened.append(ends(node))
        else:
            for chunk, what in zip(chunks, wire.pop(ends(node)), strict=True):
                key = rank, part, message.target, chunk
                held[key] = (held[key] if message.adds and key in held else Counter()) + what
        for one in happened:
            for other in blocks[one]:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
    if left:
        return False
    whole = Counter(dict.fromkeys(range(program.ranks), 1))
    return not wire and all(held[key] == whole for key in owned if layouts[key[1]].span(key[3], 1))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            one,
            marks=[pytest.mark.slow] if one.ranks > 4 else [],
            id=f"{number} {one.name} {one.ranks}",
        )
        for number, one in enumerate(SMALL)
    ],
)
def test_traces_of_all_ranks_sum_up_in_every_order(program: Program) -> None:
    elements = sum((7, 1, 0, 12, 5)) if not program.even else 2 * program.chunks + 1
    layout = program.layout(elements, 1 if not program.even else 4)
    traces = [decoded(write_messages(program, rank, [layout])) for rank in range(program.ranks)]
    for rank, (trace, messages) in enumerate(
        zip(traces, (meant(program, one, [layout]) for one in range(program.ranks)), strict=True)
    ):
        assert [node.id for node in trace] == list(range(1, len(trace) + 1))
        for node, (_, message) in zip(trace, messages, strict=True):
            assert node.type == (SEND if message.sender == rank else RECEIVE)
            size = layout.span(message.first, message.stop - message.first)
            assert ends(node)[:2] == (message.sender, message.receiver)
            assert ends(node)[3] == size
            assert str(message.first) in node.name
    both: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for node in (node for trace in traces for node in trace):
        both[node.type].append(ends(node))
    assert len(set(both[SEND])) == len(both[SEND])
    assert sorted(both[SEND]) == sorted(both[RECEIVE])
    seeds = 2 if sum(map(len, traces)) < 200 else 1
    assert all(followed(traces, program, [layout], seed) for seed in range(seeds))


@pytest.mark.parametrize(
    "recipe",
    [Recipe("ring", (3,)), Recipe("bml", (2, 2)), Recipe("halving_doubling", (3,))],
    ids=str,
)
def test_parts_follow_each_other_on_a_connection(recipe: Recipe) -> None:
    program = made(recipe)
    layouts = layouts_of(program, 3 * program.chunks + 1, 4, 3)
    assert sum(layout.span(0, program.chunks) for layout in layouts) == 12 * program.chunks + 4
    traces = [decoded(write_messages(program, rank, layouts)) for rank in range(program.ranks)]
    assert all(followed(traces, program, layouts, seed) for seed in range(3))
    for rank, trace in enumerate(traces):
        alone = [decoded(write_messages(program, rank, [layout])) for layout in layouts]
        assert len(trace) == sum(map(len, alone))
        names = {node.name: node.id for node in trace}
        assert len(names) == len(trace)
        behind = 0
        for node in trace:
            part = int(node.name.split(" of part ")[1][0])
            earlier = names.get(node.name.replace(f"of part {part}", f"of part {part - 1}"))
            assert (earlier in node.data_deps) == (node.type == SEND and part > 0)
            behind += node.type == SEND and part > 0
        assert behind


def test_a_send_without_what_it_waits_for_sums_up_wrongly() -> None:
    program = next(one for one in SMALL if one.name == "ring(3)")
    layout = program.layout(30)
    traces = [decoded(write_messages(program, rank, [layout])) for rank in range(3)]
    for node in traces[0]:
        del node.data_deps[:]
    assert not all(followed(traces, program, [layout], seed) for seed in range(20))


PROFILE: dict[str, Any] = {
    "name": "net",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "batch_size": 1,
    "ops": [
        {"name": op.name, "ns": op.duration_ns, "pass": op.phase, "after": list(op.after)}
        for op in GRAPH.ops
    ],
    "parameters": [
        {
            "name": parameter.name,
            "bytes": parameter.size_bytes,
            "updated_by": list(parameter.updated_by),
            "read_by": list(parameter.read_by),
        }
        for parameter in GRAPH.parameters
    ],
}


def iteration(algorithm: str = "ring", method: str = "joint") -> tuple[dict[str, Any], Graph]:
    answer = planner.solve(
        {
            "problem": "iteration",
            "profile": PROFILE,
            "cluster": REQUEST["cluster"],
            "modes": ["replicated"],
            "algorithms": [algorithm],
            "method": method,
        }
    )
    assert "error" not in answer, answer
    return answer, GRAPH


def test_messages_of_an_iteration_stand_between_ops_and_transfers() -> None:
    answer, graph = iteration(method="layer_by_layer")
    assert len(answer["transfers"]) > 2
    program = summing_program(decode_answer(json.dumps(answer).encode())[0]).program
    for rank in range(program.ranks):
        nodes = decoded(write_chakra(answer, graph, rank, 4))
        whole = {node.name: node for node in decoded(write_chakra(answer, graph))}
        assert sorted(node.id for node in nodes) == list(range(1, len(nodes) + 1))
        sent: dict[int, int] = defaultdict(int)
        known: set[tuple[int, ...]] = set()
        seen: set[int] = set()
        for node in nodes:
            assert set(node.data_deps) <= seen  # listed behind what they wait for
            seen.add(node.id)
            other = whole.get(node.name)
            if other is None:
                sent[node.type] += ends(node)[3]
                assert ends(node)[:3] not in known  # also of several transfers
                known.add(ends(node)[:3])
            else:
                assert node.id == other.id
                assert set(other.data_deps) <= set(node.data_deps)
                assert node.duration_micros == other.duration_micros
        size = sum(transfer["bytes"] for transfer in answer["transfers"])
        share = size * 2 * (program.ranks - 1) / program.ranks
        assert sent[SEND] == pytest.approx(share, abs=8 * program.ranks * len(answer["transfers"]))


def test_ranks_that_are_none_and_plans_that_say_no_program_are_refused() -> None:
    answer, graph = iteration()
    with pytest.raises(InvalidInputError) as caught:
        write_chakra(answer, graph, 99)
    assert caught.value.path == "rank"


BCUBE = {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": 400, "link_bytes_per_s": 5e9}
SLICES = {
    "problem": "bigdl",
    "elements": 1003,
    "element_bytes": 4,
    "nodes": 4,
    "partitions_per_node": 1,
    "link_bytes_per_s": 1e9,
}


def file(folder: Path, name: str, content: Any) -> str:
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


def test_the_command_writes_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = file(tmp_path, "bml.json", planner.solve(BCUBE))
    out = str(tmp_path / "out")
    command = ["export", "chakra", plan, "--messages", "-o", out]
    assert main([*command, "--bytes", "1600"]) == 0
    assert sorted(one.name for one in tmp_path.glob("*.et")) == [f"out.{k}.et" for k in range(4)]
    sent = [ends(node) for node in decoded((tmp_path / "out.3.et").read_bytes())]
    assert sum(one[3] for one in sent if one[0] == 3) == 2400
    alone = ["export", "chakra", plan, "--messages", "--rank", "2", "--bytes", "1600"]
    assert main([*alone, "-o", str(tmp_path / "one")]) == 0
    assert [one.name for one in tmp_path.glob("one*")] == ["one.2.et"]
    assert (tmp_path / "one.2.et").read_bytes() == (tmp_path / "out.2.et").read_bytes()
    slices = file(tmp_path, "bigdl.json", planner.solve(SLICES))
    assert main(["export", "chakra", slices, "--messages", "-o", str(tmp_path / "cut")]) == 0
    cut = [ends(node) for node in decoded((tmp_path / "cut.1.et").read_bytes())]
    lengths = [4 * (stop - start) for start, stop in planner.solve(SLICES)["slices"]]
    assert {one[1]: one[3] for one in cut if one[0] == 1 and one[2] == 0} == {
        node: lengths[node] for node in (0, 2, 3)
    }
    profile = file(tmp_path, "profile.json", PROFILE)
    whole = file(tmp_path, "whole.json", iteration()[0])
    named = ["export", "chakra", whole, "--messages", "-o", str(tmp_path / "it")]
    assert main([*named, "--profile", profile, "--rank", "0"]) == 0
    assert (tmp_path / "it.0.et").read_bytes() == write_chakra(*iteration(), 0, 4)
    for arguments, message in (
        (command, "--bytes: missing"),
        ([*command, "--bytes", "401"], "--element-bytes: expected a divisor of 401"),
        ([*command, "--bytes", "0"], "--bytes: expected an integer >= 1"),
        ([*command, "--bytes", "400", "--rank", "4"], "--rank: expected an integer <= 3"),
        ([*command, "--bytes", "400", "--ranks", "5"], "--ranks: expected 4"),
        ([*command, "--bytes", "400", "--profile", profile], "--profile: not with a plan of bml"),
        ([*named[:3], "-o", out, "--rank", "0"], "--rank: only with --messages"),
        ([*named[:3], "-o", out, "--bytes", "4"], "--bytes: only with --messages"),
        ([*named], "--profile: missing"),
        ([*named, "--profile", profile, "--bytes", "4"], "--bytes: the plan says"),
        (
            ["export", "chakra", slices, "--messages", "--bytes", "4", "-o", out],
            "--bytes: expected 4012",
        ),
        (
            ["export", "chakra", file(tmp_path, "c.json", _caramel()), "--messages", "-o", out],
            "problem: a plan of caramel leaves open how to sum up",
        ),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def _caramel() -> dict[str, Any]:
    from tests.formats.test_exports import caramel

    return dict(caramel())
