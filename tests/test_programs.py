"""Answers of the planner become programs without loss, or an error says what is missing."""

import dataclasses
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import planner
from planner import bigdl, caramel, ibatch, iteration
from planner.caramel import Part
from planner.caramel.evaluation import TransferTimes
from planner.costs import AffineCost
from planner.errors import InvalidInputError, InvalidPlanError
from planner.graphs import Graph, Op, Parameter
from planner.jsonio import decode_answer, decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.network import Network
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
from planner.programs.building import gradients
from planner.programs.forms import Direction
from planner.results import Infeasibility, Result
from tests.jsonio.test_iteration import REQUEST as ITERATION

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
        ((CARAMEL,), "status", "expected an answer of planner solve, got a request"),
        (({"name": "x", "layers": []},), "status", "got a profile"),
        (({"name": "x", "ops": [], "parameters": []},), "status", "got a profile"),
        (({"network": {"table": [[1, 2]]}, "ranks": 2},), "status", "got a measured network"),
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


GRAPH = Graph(
    tuple(
        Op(op["name"], op["ns"], op["pass"], tuple(op.get("after", ()))) for op in CARAMEL["ops"]
    ),
    tuple(
        Parameter(
            parameter["name"],
            parameter["bytes"],
            (parameter["updated_by"],),
            (parameter["read_by"],),
        )
        for parameter in CARAMEL["parameters"]
    ),
)
GRADIENTS = caramel.Problem(GRAPH, AffineCost(30, Fraction(1, 20)), element_bytes=4)
"""What `CARAMEL` asks, but for the depths."""
SLICES = bigdl.Problem(
    elements=1003,
    element_bytes=4,
    nodes=4,
    partitions_per_node=1,
    network=Network(Fraction(10**9)),
)
NAMES: list[list[str]] = IBATCH["layer_parameters"]


def layers(direction: Literal["pull", "push"]) -> ibatch.Problem:
    return ibatch.Problem(
        layer_bytes=IBATCH["layer_bytes"],
        transfer_ns=IBATCH["transfer_ns"],
        compute_ns=IBATCH["compute_ns"],
        startup_ns=100,
        direction=direction,
    )


def joint(*modes: Literal["replicated", "sharded"]) -> iteration.Problem:
    profile = decode_profile(json.dumps(ITERATION["profile"]).encode())
    cluster = decode_cluster(json.dumps(ITERATION["cluster"]).encode())
    return iteration.Problem.from_profile(profile, cluster, modes=modes, element_bytes=4)


@pytest.mark.parametrize("method", ["auto", "ddp", "mg_wfbp", "layer_by_layer", "bytescheduler"])
def test_typed_gradient_plans_give_the_program_of_their_answers(method: str) -> None:
    network = {"startup_ns": 30, "ns_per_byte": 0.05}
    answer = solved(CARAMEL, method=method, network=network)
    result = caramel.solve(GRADIENTS, method=method)
    assert result.plan is not None
    program = program_of((GRADIENTS, result))
    assert isinstance(program, GradientProgram)
    assert program == program_of((GRADIENTS, result.plan)) == program_of(answer)


@pytest.mark.parametrize(
    ("mode", "method", "kind"),
    [
        ("replicated", "auto", GradientProgram),
        ("replicated", "layer_by_layer", GradientProgram),
        ("sharded", "fsdp", ShardProgram),
        ("sharded", "ibatch", ShardProgram),
    ],
)
def test_typed_joint_plans_give_the_program_of_their_answers(
    mode: Literal["replicated", "sharded"], method: str, kind: type
) -> None:
    problem = joint(mode)
    result = iteration.solve(problem, method=method)
    answer = solved(ITERATION, modes=[mode], method=method, element_bytes=4)
    program = program_of((problem, result))
    assert isinstance(program, kind)
    assert program == program_of(answer)
    # It is read from the answer itself, not from another family's made up in its place.
    assert read_plan(answer).problem == "iteration"


def test_typed_plans_that_cut_shards_give_the_program_of_their_answers() -> None:
    problem = dataclasses.replace(joint("sharded"), max_transfer_bytes=1000)
    program = program_of((problem, iteration.solve(problem)))
    answer = solved(ITERATION, modes=["sharded"], element_bytes=4, max_transfer_bytes=1000)
    assert isinstance(program, ShardProgram)
    assert program == program_of(answer)
    for batches in (program.pulls, program.pushes):
        assert any(piece != Piece(piece.parameter) for batch in batches for piece in batch.pieces)


def test_typed_plans_of_layers_and_slices_give_the_program_of_their_answers() -> None:
    plans = {
        direction: (problem, ibatch.solve(problem), NAMES)
        for direction in ("pull", "push")
        for problem in [layers(direction)]
    }
    answers = {direction: solved(IBATCH, direction=direction) for direction in plans}
    assert program_of(plans["pull"]) == program_of(answers["pull"])
    assert program_of(plans["push"], plans["pull"]) == program_of(*answers.values())
    assert program_of(list(plans.values())) == program_of(plans["pull"], answers["push"])
    for method in "auto", "same_order":
        typed = program_of((SLICES, bigdl.solve(SLICES, method=method)))
        assert typed == program_of(solved(BIGDL, method=method))


def test_parts_that_touch_are_one_piece_and_a_whole_parameter_is_whole() -> None:
    weight, bias, large = range(3)
    groups = (
        caramel.Group((Part(large, 3000, 4000),)),
        caramel.Group((Part(large, 0, 1000), Part(bias, 0, 40), Part(large, 1000, 3000))),
        caramel.Group((Part(weight, 0, 200), Part(weight, 200, 400))),
    )
    order = GRADIENTS.order
    program = program_of((GRADIENTS, caramel.Plan(groups, (order.backward,), order.forward)))
    assert isinstance(program, GradientProgram)
    assert program.batches == (
        Batch((Piece("two.weight", 3000, 4000),), 1000),
        Batch((Piece("two.weight", 0, 3000), Piece("one.bias")), 3040),
        Batch((Piece("one.weight"),), 400),
    )


def test_typed_plans_that_cannot_be_followed_are_an_error() -> None:
    result = caramel.solve(GRADIENTS)
    assert result.plan is not None
    pull = layers("pull")
    plan = ibatch.solve(pull)
    incomplete = dataclasses.replace(result.plan, groups=result.plan.groups[1:])
    none: Result[caramel.Plan, Any] = Result(
        "x", None, None, None, 0.0, infeasibility=Infeasibility("it is too large", ("memory",))
    )
    driver = bigdl.solve(SLICES, method="tree_aggregate")
    cases: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        (((GRADIENTS, incomplete),), InvalidPlanError, "two.weight"),
        (((GRADIENTS, none),), InvalidInputError, "plan: there is none: it is too large"),
        (((GRADIENTS, plan),), InvalidInputError, "plan: expected a plan or result of a problem"),
        (((GRADIENTS,),), InvalidInputError, "plan: expected a plan or result of a problem"),
        (((GRADIENTS, result), (GRADIENTS, result)), InvalidInputError, "caramel and caramel"),
        (((GRADIENTS, caramel.solve(GRADIENTS, method="ps")),), InvalidInputError, "servers"),
        (((pull, plan),), InvalidInputError, "layer_parameters: missing"),
        (((pull, plan, NAMES[1:]),), InvalidInputError, "expected those of 4 layers, got 3"),
        (((pull, plan, NAMES), (pull, plan, NAMES)), InvalidInputError, "at most one plan"),
        (((SLICES, driver),), InvalidInputError, "driver"),
    ]
    for plans, kind, message in cases:
        with pytest.raises(kind, match=message):
            program_of(*plans)


def test_a_batch_is_firm_if_the_plan_lets_the_network_wait_for_it() -> None:
    def firm(first: tuple[int, int, int], second: tuple[int, int, int]) -> list[bool]:
        times = [TransferTimes(*one, 0) for one in (first, second)]
        made = gradients([Batch(()), Batch(())], times, "", barrier=False, traffic=1)
        return [batch.firm for batch in made.batches]

    assert firm((50, 50, 60), (20, 60, 70)) == [True, False]
    assert firm((50, 50, 60), (50, 60, 70)) == [False, False]
    assert firm((0, 0, 60), (20, 60, 70)) == [False, False]
    assert firm((0, 0, 60), (80, 80, 90)) == [False, False]
