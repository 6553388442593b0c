"""Plans become programs without loss, typed or as answers, or an error says what is missing."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

import planner
from planner.families import caramel
from planner.families.caramel import Part
from planner.jsonio import decode_answer
from planner.jsonio.service import decode_request
from planner.model.errors import InvalidInputError, InvalidPlanError
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
from planner.solving.result import Infeasibility, Result
from tests.jsonio.requests import CARAMEL, ITERATION

IBATCH: dict[str, Any] = {
    "problem": "ibatch",
    "layer_bytes": [100, 200, 300, 1],
    "transfer_ns": [500, 600, 700, 10],
    "compute_ns": [500, 600, 700, 10],
    "startup_ns": 100,
    "layer_parameters": [["a.weight", "a.bias"], ["b.weight"], ["c.weight"], []],
}
BML = {"problem": "bml", "n": 3, "k": 2, "gradient_bytes": 900, "link_bytes_per_s": 1e9}
BIGDL: dict[str, Any] = {"problem": "bigdl", "elements": 1003, "element_bytes": 4, "nodes": 4}
BIGDL |= {"partitions_per_node": 1, "link_bytes_per_s": 1e9}


def solved(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps(planner.solve(request | changes)))
    assert "error" not in answer, answer
    return answer


def without(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != name}


AFFINE = {**CARAMEL, "network": {"startup_ns": 30, "ns_per_byte": 0.05}}
JOINT = {**ITERATION, "element_bytes": 4}
SHARDED = {**JOINT, "modes": ["sharded"]}
NAMES: list[list[str]] = IBATCH["layer_parameters"]
PULL, PUSH = ({**IBATCH, "direction": direction} for direction in ("pull", "push"))


def planned(request: dict[str, Any], method: str = "auto") -> tuple[Any, Result[Any, Any]]:
    problem = decode_request(json.dumps(request).encode()).to_problem()
    family = getattr(planner, request["problem"])
    return problem, family.solve(problem, method=method)


METHODS: list[tuple[dict[str, Any], str, type]] = [
    *((CARAMEL, method, GradientProgram) for method in ("exact", "caramel", "horovod")),
    *(
        (request, method, GradientProgram)
        for request in (CARAMEL, AFFINE)
        for method in ("auto", "ddp", "mg_wfbp", "layer_by_layer", "bytescheduler")
    ),
    *(({**JOINT, "modes": ["replicated"]}, one, GradientProgram) for one in ("auto", "ddp")),
    *((SHARDED, method, ShardProgram) for method in ("ps", "ibatch")),
    ({**SHARDED, "max_transfer_bytes": 1000}, "auto", ShardProgram),
    *((BIGDL, method, SliceProgram) for method in ("auto", "same_order")),
]


@pytest.mark.parametrize(("request_", "method", "kind"), METHODS)
def test_a_plan_gives_one_program_as_an_answer_and_typed(
    request_: dict[str, Any], method: str, kind: type
) -> None:
    answer = solved(request_, method=method)
    program = program_of(answer)
    assert isinstance(program, kind)
    text = json.dumps(answer).encode()
    assert program_of(text) == program_of(decode_answer(text)[0]) == program
    problem, result = planned(request_, method)
    plan: Any = result.plan
    assert program_of((problem, result)) == program_of((problem, plan)) == program
    # It is read from the answer itself, not from another family's made up in its place.
    assert read_plan(answer).problem == request_["problem"]
    if isinstance(program, ShardProgram):
        for batches in (program.pulls, program.pushes):
            pieces = [piece for batch in batches for piece in batch.pieces]
            cut = any(piece != Piece(piece.parameter) for piece in pieces)
            assert cut == ("max_transfer_bytes" in request_)
    if isinstance(program, SliceProgram):
        assert [list(span) for span in program.slices] == answer["slices"]
        assert [list(order) for order in program.pull_order] == answer["pull_order"]
    if request_["problem"] == "caramel":
        assert isinstance(program, GradientProgram)
        assert program.barrier is answer["barrier"]
        assert method not in ("ddp", "bytescheduler") or program.barrier is (method == "ddp")
        assert program.batches == tuple(
            Batch(
                tuple(Piece(it, *row.get("part", {}).get(it, ())) for it in row["parameters"]),
                row["bytes"],
                row["depth"],
            )
            for row in answer["groups"]
        )


def test_layers_are_pulled_and_pushed_as_the_plans_say() -> None:
    pull, push = solved(PULL), solved(PUSH)
    typed_pull, typed_push = ((*planned(request), NAMES) for request in (PULL, PUSH))

    def named(*spans: list[int]) -> list[tuple[Piece, ...]]:
        held = [tuple(map(Piece, chain(*NAMES[start:stop]))) for start, stop in spans]
        return [pieces for pieces in held if pieces]

    everything, pulled, pushed = named([0, 4]), named(*pull["batches"]), named(*push["batches"])
    for plans, expected in (
        ((pull,), (pulled, everything)),
        ((push,), (everything, pushed)),
        ((pull, push), (pulled, pushed)),
        ((typed_push, typed_pull), (pulled, pushed)),
        (([typed_pull, typed_push],), (pulled, pushed)),
        ((typed_pull, push), (pulled, pushed)),
    ):
        program = program_of(*plans)
        assert isinstance(program, ShardProgram)
        assert [batch.pieces for batch in program.pulls] == expected[0]
        assert [batch.pieces for batch in program.pushes] == expected[1]


def test_parts_that_touch_are_one_piece_and_a_whole_parameter_is_whole() -> None:
    weight, bias, large = range(3)
    groups = (
        caramel.Group((Part(large, 3000, 4000),)),
        caramel.Group((Part(large, 0, 1000), Part(bias, 0, 40), Part(large, 1000, 3000))),
        caramel.Group((Part(weight, 0, 200), Part(weight, 200, 400))),
    )
    problem, _ = planned(AFFINE)
    plan = caramel.Plan(groups, (problem.order.backward,), problem.order.forward)
    program = program_of((problem, plan))
    assert isinstance(program, GradientProgram)
    assert program.batches == (
        Batch((Piece("two.weight", 3000, 4000),), 1000),
        Batch((Piece("two.weight", 0, 3000), Piece("one.bias")), 3040),
        Batch((Piece("one.weight"),), 400),
    )


def test_what_a_plan_leaves_open_is_an_error() -> None:
    gradients, slices, pull, push = map(solved, (CARAMEL, BIGDL, PULL, PUSH))
    other = {**push, "layer_parameters": [["x"], ["b.weight"], ["c.weight"], []]}
    twice = {**pull, "layer_parameters": [["a"], ["b"], ["c"], ["a"]]}
    (problem, result), (layers, batches) = planned(AFFINE), planned(PULL)
    assert result.plan is not None
    incomplete = replace(result.plan, groups=result.plan.groups[1:])
    none: Result[caramel.Plan, Any] = Result(
        "x", None, None, None, 0.0, infeasibility=Infeasibility("it is too large", ("memory",))
    )
    answer = decode_answer(json.dumps(pull).encode())[0]
    mixed, no_plan = "expected a plan or result of a problem", "expected an answer of planner solve"
    cases: list[tuple[tuple[Any, ...], str, str]] = [
        ((), "", "expected a plan"),
        ((gradients, gradients), "problem", "got caramel and caramel"),
        ((pull, pull), "direction", "at most one plan"),
        ((without(pull, "layer_parameters"),), "layer_parameters", "put layer_parameters into"),
        ((pull, other), "layer_parameters", "different layers"),
        ((twice,), "layer_parameters", "'a'"),
        ((solved(CARAMEL, method="ps"),), "method", "parameter servers"),
        ((without(slices, "pull_order"),), "pull_order", "missing"),
        ((solved(BIGDL, method="tree_aggregate"),), "method", "goes through a driver"),
        ((CARAMEL,), "status", no_plan),
        (({"x": 1},), "status", f"missing: {no_plan}"),
        (("plan.json",), "plan", "got str: read the file"),
        ((Path("plan.json"),), "plan", "read_bytes()"),
        ((None,), "plan", "expected bytes, a mapping or an answer, got NoneType"),
        ((solved(BML),), "problem", "give a plan of caramel"),
        ((b"{",), "", ""),
        (({"error": {}},), "error", "not a plan"),
        ((changed(answer, batches=()),), "batch", ""),
        (((problem, none),), "plan", "there is none: it is too large"),
        (((problem, batches),), "plan", mixed),
        (((problem,),), "plan", mixed),
        (((layers, batches),), "layer_parameters", "missing"),
        (((layers, batches, NAMES[1:]),), "layer_parameters", "expected those of 4 layers, got 3"),
    ]
    for plans, path, message in cases:
        with pytest.raises(InvalidInputError) as error:
            program_of(*plans)
        assert error.value.path.startswith(path), (error.value, path)
        assert message in str(error.value)
    with pytest.raises(InvalidPlanError, match=r"two\.weight"):
        program_of((problem, incomplete))


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
    made = "GradientProgram((Batch((Piece('a'), Piece('b'))),))"
    words = [sys.executable, "-c", f"from planner.programs import *; print(digest({made}))"]
    shown = subprocess.run(words, capture_output=True, check=True, text=True)
    assert shown.stdout.strip() == digest(program)
