"""Plans of models for tests, made once and handed to all ranks."""

from fractions import Fraction
from typing import Any

import msgspec
from torch import nn

from planner.families import bigdl, caramel, ibatch
from planner.jsonio.caramel import answer
from planner.model.costs import AffineCost
from planner.model.network import Network
from planner.profiling import measure
from planner.programs.from_plans import TypedPlan
from tests.runtime.reference import make_model, measured


def plan_of(model: nn.Module, *inputs: Any, method: str = "auto") -> bytes:
    """Return a plan for two ranks as JSON."""
    profile = measure(model, inputs, name="model", source="", warmup=0, repetitions=1)
    problem = caramel.Problem.from_profile(profile, AffineCost(10**5, Fraction(1)), workers=2)
    return msgspec.json.encode(answer(problem, caramel.solve(problem, method=method)))


def typed_plans(name: str) -> dict[str, list[TypedPlan]]:
    """Return plans of each family for a model of `reference` and two ranks."""
    profile, cost = measured(name), AffineCost(20_000, Fraction(100))
    names = profile.layer_parameters()
    assert names is not None
    gradients = caramel.Problem.from_profile(profile, cost, element_bytes=4)
    slices = bigdl.Problem(
        elements=sum(parameter.numel() for parameter in make_model(name).parameters()),
        element_bytes=4,
        nodes=2,
        partitions_per_node=1,
        network=Network(Fraction(10**9)),
    )
    pull = ibatch.Problem.from_profile(profile, cost, direction="pull")
    push = ibatch.Problem.from_profile(profile, cost, direction="push")
    return {
        "caramel": [(gradients, caramel.solve(gradients))],
        "ibatch": [(pull, ibatch.solve(pull), names), (push, ibatch.solve(push), names)],
        "bigdl": [(slices, bigdl.solve(slices))],
    }
