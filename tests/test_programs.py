"""Answers of the planner become programs without loss, or an error says what is missing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import planner
from planner.jsonio import decode_answer
from planner.model.errors import InvalidInputError
from planner.programs import (
    Batch,
    GradientProgram,
    Piece,
    Program,
    ShardProgram,
    SliceProgram,
    digest,
    program_of,
    read_plan,
)
from planner.programs.forms import Direction

CARAMEL: dict[str, Any] = {
    "problem": "caramel",
    "ops": [
        {"name": "f1", "ns": 40, "pass": "forward"},
        {"name": "f2", "ns": 50, "pass": "forward", "after": ["f1"]},
        {"name": "b2", "ns": 60, "pass": "backward", "after": ["f2"]},
        {"name": "b1", "ns": 70, "pass": "backward", "after": ["b2"]},
    ],
    "parameters": [
        {"name": "one.weight", "bytes": 400, "updated_by": "b1", "read_by": "f1"},
        {"name": "one.bias", "bytes": 40, "updated_by": "b1", "read_by": "f1"},
        {"name": "two.weight", "bytes": 4000, "updated_by": "b2", "read_by": "f2"},
    ],
    "network": {
        "startup_ns": 30,
        "ns_per_byte": 0.05,
        "depths": {"4": {"startup_ns": 40, "ns_per_byte": 0.04}},
    },
    "element_bytes": 4,
}
IBATCH: dict[str, Any] = {
    "problem": "ibatch",
    "layer_bytes": [100, 200, 300, 1],
    "transfer_ns": [500, 600, 700, 10],
    "compute_ns": [500, 600, 700, 10],
    "startup_ns": 100,
    "layer_parameters": [["a.weight", "a.bias"], ["b.weight"], ["c.weight"], []],
}
BML = {
    "problem": "bml",
    "n": 3,
    "k": 2,
    "gradient_bytes": 900,
    "link_bytes_per_s": 1e9,
}
BIGDL = {
    "problem": "bigdl",
    "elements": 1003,
    "element_bytes": 4,
    "nodes": 4,
    "partitions_per_node": 1,
    "link_bytes_per_s": 1e9,
}


def solved(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps(planner.solve(request | changes)))
    assert "error" not in answer, answer
    return answer


def without(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != name}


@pytest.mark.parametrize(
    "method", ["auto", "exact", "caramel", "ddp", "horovod", "mg_wfbp", "layer_by_layer"]
)
def test_gradients_travel_as_the_plan_says(method: str) -> None:
    answer = solved(CARAMEL, method=method)
    program = program_of(answer)
    assert isinstance(program, GradientProgram)
    assert program.barrier is answer["barrier"]
    assert program.batches == tuple(
        Batch(
            tuple(
                Piece(name, *group.get("part", {}).get(name, ())) for name in group["parameters"]
            ),
            group["bytes"],
            group["depth"],
        )
        for group in answer["groups"]
    )
    text = json.dumps(answer).encode()
    assert program_of(text) == program_of(decode_answer(text)[0]) == program


def test_who_waits_for_all_gradients() -> None:
    barriers = {
        method: program_of(solved(CARAMEL, method=method)) for method in ("ddp", "bytescheduler")
    }
    assert {name: program.barrier for name, program in barriers.items()} == {  # type: ignore[union-attr]
        "ddp": True,
        "bytescheduler": False,
    }


def test_parts_of_parameters_are_carried_over() -> None:
    answer = solved(CARAMEL, method="auto", network={"startup_ns": 0, "ns_per_byte": 0})
    fields = ("ready_ns", "start_ns", "startup_end_ns", "end_ns", "due_ns")
    moments = dict.fromkeys(fields, answer["backward_ns"])  # it costs nothing
    group = without(answer["groups"][0] | moments, "part")
    rest = [{**group, "parameters": ["one.weight", "one.bias"], "bytes": 440, "depth": 1}]
    cut = [
        {
            **group,
            "parameters": ["two.weight"],
            "bytes": size,
            "depth": 2,
            "part": {"two.weight": part},
        }
        for size, part in ((1000, [3000, 4000]), (3000, [0, 3000]))
    ]
    program = program_of({**answer, "groups": cut + rest})
    assert isinstance(program, GradientProgram)
    assert program.batches == (
        Batch((Piece("two.weight", 3000, 4000),), 1000, 2),
        Batch((Piece("two.weight", 0, 3000),), 3000, 2),
        Batch((Piece("one.weight"), Piece("one.bias")), 440, 1),
    )


def ranges(batches: list[list[int]]) -> list[list[str]]:
    names = IBATCH["layer_parameters"]
    return [[name for layer in names[start:stop] for name in layer] for start, stop in batches]


def carried(batches: tuple[Batch, ...]) -> list[list[str]]:
    assert all(piece == Piece(piece.parameter) for batch in batches for piece in batch.pieces)
    return [[piece.parameter for piece in batch.pieces] for batch in batches]


def test_layers_are_pulled_and_pushed_as_the_plans_say() -> None:
    pull = solved(IBATCH, direction="pull")
    push = solved(IBATCH, direction="push")
    everything = [["a.weight", "a.bias", "b.weight", "c.weight"]]
    pulled = [names for names in ranges(pull["batches"]) if names]
    pushed = [names for names in ranges(push["batches"]) if names]
    for plans, expected in (
        ((pull,), (pulled, everything)),
        ((push,), (everything, pushed)),
        ((pull, push), (pulled, pushed)),
        ((push, pull), (pulled, pushed)),
    ):
        program = program_of(*plans)
        assert isinstance(program, ShardProgram)
        assert (carried(program.pulls), carried(program.pushes)) == expected


def test_slices_and_pulls_are_carried_over() -> None:
    answer = solved(BIGDL)
    program = program_of(answer)
    assert isinstance(program, SliceProgram)
    assert [list(span) for span in program.slices] == answer["slices"]
    assert [list(order) for order in program.pull_order] == answer["pull_order"]


def test_what_a_plan_leaves_open_is_an_error() -> None:
    gradients, slices = solved(CARAMEL), solved(BIGDL)
    typed = read_plan(slices)
    pull, push = (solved(IBATCH, direction=direction) for direction in ("pull", "push"))
    other = {**push, "layer_parameters": [["x"], ["b.weight"], ["c.weight"], []]}
    twice = {**pull, "layer_parameters": [["a"], ["b"], ["c"], ["a"]]}
    cases: list[tuple[tuple[Any, ...], str, str]] = [
        ((), "", "expected a plan"),
        ((gradients, gradients), "problem", "got caramel and caramel"),
        ((gradients, pull), "problem", "got caramel and ibatch"),
        ((pull, pull), "direction", "at most one plan"),
        ((pull, push, push), "direction", "at most one plan"),
        ((without(pull, "layer_parameters"),), "layer_parameters", "put layer_parameters into"),
        ((pull, without(push, "layer_parameters")), "layer_parameters", "different layers"),
        ((pull, other), "layer_parameters", "different layers"),
        ((twice,), "layer_parameters", "'a'"),
        ((solved(CARAMEL, method="ps"),), "method", "parameter servers"),
        ((without(slices, "pull_order"),), "pull_order", "missing"),
        ((replace(typed, pull_order=UNSET),), "pull_order", "missing"),
        ((solved(BIGDL, method="tree_aggregate"),), "method", "goes through a driver"),
        ((CARAMEL,), "status", "expected an answer of planner solve"),
        (({"name": "x", "layers": []},), "status", "expected an answer of planner solve"),
        (({"x": 1},), "status", "missing: expected an answer of planner solve"),
        (("plan.json",), "plan", "got str: read the file"),
        ((Path("plan.json"),), "plan", "read_bytes()"),
        ((None,), "plan", "expected bytes, a mapping or an answer, got NoneType"),
        ((solved(BML),), "problem", "give a plan of caramel"),
        ((b"{",), "", ""),
        (({"error": {}},), "error", "not a plan"),
    ]
    for plans, path, message in cases:
        with pytest.raises(InvalidInputError) as error:
            program_of(*plans)
        assert error.value.path.startswith(path), (error.value, path)
        assert message in str(error.value)


@pytest.mark.parametrize("batches", [[], [[0, 3]], [[0, 4], [0, 1]], [[0, 2], [3, 4]]])
def test_layers_left_out_or_sent_twice_are_an_error(batches: list[list[int]]) -> None:
    answer = decode_answer(json.dumps(solved(IBATCH, direction="pull")).encode())[0]
    changed = replace(answer, batches=tuple(map(tuple, batches)))
    with pytest.raises(InvalidInputError, match=r"batch|as many elements as layers"):
        program_of(changed)


def test_a_digest_tells_programs_apart() -> None:
    program = GradientProgram((Batch((Piece("a"), Piece("b"))),))
    pushes: list[tuple[Direction, Batch]] = [("push", program.batches[0])] * 2
    pulls: list[tuple[Direction, Batch]] = [("pull", program.batches[0])] * 2
    others: list[Program] = [
        GradientProgram((Batch((Piece("b"), Piece("a"))),)),
        GradientProgram((Batch((Piece("a"),)), Batch((Piece("b"),)))),
        GradientProgram((Batch((Piece("a"), Piece("b")), depth=2),)),
        GradientProgram(program.batches, barrier=True),
        ShardProgram((*pushes, *pulls)),
        ShardProgram((pushes[0], pulls[0], pushes[1], pulls[1])),
    ]
    assert ShardProgram.pushes_first(program.batches * 2, program.batches * 2) == others[4]
    assert len({digest(some) for some in (program, *others)}) == 7
    code = (
        "from planner.programs import *\n"
        "print(digest(GradientProgram((Batch((Piece('a'), Piece('b'))),))))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout.strip() == digest(program)


def test_reading_a_plan_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from planner.programs import program_of\n"
        "program_of(sys.stdin.buffer.read())"
    )
    plan = json.dumps(solved(CARAMEL)).encode()
    subprocess.run([sys.executable, "-c", code], input=plan, check=True)
