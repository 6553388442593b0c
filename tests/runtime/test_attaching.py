"""Plans are attached typed or as answers alike: ranks with one and the other agree and train."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

pytest.importorskip("torch")

import planner
from planner.families import bigdl, caramel, ibatch, iteration
from planner.jsonio import encode_profile
from planner.jsonio.clusters import decode_cluster
from planner.model.costs import AffineCost
from planner.model.errors import InvalidPlanError
from planner.model.network import Network
from planner.profiling import measure
from planner.runtime import attach, join
from tests.runtime.launching import launch
from tests.runtime.reference import (
    backward,
    ddp_weights,
    largest_difference,
    make_inputs,
    make_model,
    make_optimizer,
    measured,
    weights_of,
)

NAME = "perceptron"
STEPS = 2


def follow(plans: dict[str, tuple[Any, Any]]) -> dict[str, float]:
    """Train by a typed plan on rank 0, and by its answer on others; return how far DDP is."""
    differences = {}
    with join() as world:
        expected = ddp_weights(NAME, steps=STEPS)
        for name, (typed, answer) in plans.items():
            model = make_model(NAME)
            optimizer = make_optimizer("sgd", model)
            with attach(model, answer if world.rank else typed, optimizer, world) as executor:
                for step in range(STEPS):
                    backward(model, NAME, world.rank, step)
                    executor.step()
            differences[name] = largest_difference(weights_of(model), expected)
    return differences


def solved(problem: str, **request: Any) -> dict[str, Any]:
    answer = planner.solve({"problem": problem, **request})
    assert "error" not in answer, answer
    return answer


@pytest.mark.slow
def test_typed_plans_and_answers_are_followed_alike() -> None:
    profile = measured(NAME)
    names = profile.layer_parameters()
    assert names is not None
    document = json.loads(encode_profile(profile))
    cost = AffineCost(20_000, Fraction(100))
    gradients = caramel.Problem.from_profile(profile, cost, element_bytes=4)
    cluster = {
        "name": "two",
        "source": "a test",
        "machines": 2,
        "topology": {"kind": "switch"},
        "nic": {"bytes_per_s": 1e9, "startup_ns": 20_000},
    }
    whole = iteration.Problem.from_profile(
        profile, decode_cluster(json.dumps(cluster).encode()), modes=["replicated"], element_bytes=4
    )
    elements = sum(parameter.numel() for parameter in make_model(NAME).parameters())
    slices = bigdl.Problem(
        elements=elements,
        element_bytes=4,
        nodes=2,
        partitions_per_node=1,
        network=Network(Fraction(10**9)),
    )
    layers = {
        direction: ibatch.Problem.from_profile(profile, cost, direction=direction)
        for direction in ("pull", "push")
    }
    plans = {
        "caramel": (
            (gradients, caramel.solve(gradients)),
            solved(
                "caramel",
                ops=document["ops"],
                parameters=document["parameters"],
                network={"startup_ns": 20_000, "ns_per_byte": 100},
                element_bytes=4,
            ),
        ),
        "iteration": (
            (whole, iteration.solve(whole)),
            solved(
                "iteration",
                profile=document,
                cluster=cluster,
                modes=["replicated"],
                element_bytes=4,
            ),
        ),
        "ibatch": (
            [(problem, ibatch.solve(problem), names) for problem in layers.values()],
            [
                solved(
                    "ibatch",
                    layer_bytes=problem.layer_bytes,
                    transfer_ns=[100 * size for size in problem.layer_bytes or ()],
                    compute_ns=problem.compute_ns,
                    startup_ns=20_000,
                    direction=direction,
                    layer_parameters=names,
                )
                for direction, problem in layers.items()
            ],
        ),
        "bigdl": (
            (slices, bigdl.solve(slices)),
            solved(
                "bigdl",
                elements=elements,
                element_bytes=4,
                nodes=2,
                partitions_per_node=1,
                link_bytes_per_s=1e9,
            ),
        ),
    }
    for outcome in launch(follow, 2, plans):
        assert outcome.error is None, outcome.error
        assert outcome.value == dict.fromkeys(plans, 0)


def refuse() -> str:
    with join() as world:
        model = make_model(NAME)
        profile = measure(model, (make_inputs(NAME, 0, 0),), name=NAME, source="", warmup=0)
        problem = caramel.Problem.from_profile(profile, AffineCost(1, Fraction(1)), element_bytes=4)
        result = caramel.solve(problem)
        assert result.plan is not None
        incomplete = replace(result.plan, groups=result.plan.groups[1:])
        with pytest.raises(InvalidPlanError) as refusal:
            attach(model, (problem, incomplete), make_optimizer("sgd", model), world)
        return str(refusal.value)


def test_a_typed_plan_is_checked() -> None:
    (outcome,) = launch(refuse, 1)
    assert outcome.error is None, outcome.error
    assert "groups" in outcome.value
