"""Plans are attached typed or as answers alike: ranks with one and the other agree and train."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from planner.families import bigdl, caramel, ibatch, iteration
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.errors import InvalidPlanError
from planner.model.network import Network
from planner.model.topologies import Switch
from planner.profiling import measure
from planner.programs.from_plans import TypedPlan, answer_of
from planner.runtime import attach, join
from tests.runtime.launching import launch, values
from tests.runtime.reference import (
    away_from_ddp,
    make_inputs,
    make_model,
    make_optimizer,
    measured,
)

NAME = "perceptron"
STEPS = 2


def follow(plans: dict[str, tuple[Any, Any]]) -> dict[str, float]:
    """Train by a typed plan on rank 0, and by its answer on others; return how far DDP is."""
    with join() as world:
        return {
            name: away_from_ddp(answer if world.rank else typed, NAME, world, steps=STEPS)
            for name, (typed, answer) in plans.items()
        }


@pytest.mark.slow
def test_typed_plans_and_answers_are_followed_alike() -> None:
    profile = measured(NAME)
    names = profile.layer_parameters()
    assert names is not None
    cost = AffineCost(20_000, Fraction(100))
    gradients = caramel.Problem.from_profile(profile, cost, element_bytes=4)
    cluster = Cluster("two", "a test", 2, Switch(2), Nic(Fraction(10**9), 20_000))
    whole = iteration.Problem.from_profile(profile, cluster, modes=["replicated"], element_bytes=4)
    elements = sum(parameter.numel() for parameter in make_model(NAME).parameters())
    slices = bigdl.Problem(
        elements=elements,
        element_bytes=4,
        nodes=2,
        partitions_per_node=1,
        network=Network(Fraction(10**9)),
    )
    layers: list[TypedPlan] = [
        (problem, ibatch.solve(problem), names)
        for direction in ("pull", "push")
        for problem in [ibatch.Problem.from_profile(profile, cost, direction=direction)]
    ]
    typed: dict[str, list[TypedPlan]] = {
        "caramel": [(gradients, caramel.solve(gradients))],
        "iteration": [(whole, iteration.solve(whole))],
        "ibatch": layers,
        "bigdl": [(slices, bigdl.solve(slices))],
    }
    plans = {
        name: (several, [msgspec.json.encode(answer_of(plan)) for plan in several])
        for name, several in typed.items()
    }
    for value in values(launch(follow, 2, plans)):
        assert value == dict.fromkeys(plans, 0)


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
    (value,) = values(launch(refuse, 1))
    assert "groups" in value
