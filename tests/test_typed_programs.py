"""Typed plans become the same programs as their answers."""

import dataclasses
import json
from fractions import Fraction
from typing import Any, Literal

import pytest

from planner.families import bigdl, caramel, ibatch, iteration
from planner.families.caramel import Part
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.network import Network
from planner.programs import (
    Batch,
    GradientProgram,
    Piece,
    ShardProgram,
    program_of,
    read_plan,
)
from planner.solving.result import Infeasibility, Result
from tests.jsonio.test_iteration import REQUEST as ITERATION
from tests.test_programs import BIGDL, CARAMEL, IBATCH, solved

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
        ("sharded", "ps", ShardProgram),
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
