"""Plans of models for tests, made once and handed to all ranks."""

from fractions import Fraction
from typing import Any

import msgspec
from torch import nn

from planner.families import caramel
from planner.jsonio.caramel import answer
from planner.model.costs import AffineCost
from planner.profiling import measure


def plan_of(model: nn.Module, *inputs: Any, method: str = "auto") -> bytes:
    """Return a plan for two ranks as JSON."""
    profile = measure(model, inputs, name="model", source="", warmup=0, repetitions=1)
    problem = caramel.Problem.from_profile(profile, AffineCost(10**5, Fraction(1)), workers=2)
    return msgspec.json.encode(answer(problem, caramel.solve(problem, method=method)))
