"""Models with branches, dropout and shared weights, and plans of their compiled graphs."""

import shutil
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from planner import AffineCost, caramel
from planner.caramel.problem import Group, Part
from planner.profiles import Profile
from planner.profiling import measure_compiled
from tests.runtime.reference import CLASSES, make_inputs
from tests.thorough import THOROUGH

INDUCTOR = THOROUGH and any(map(shutil.which, ("g++", "clang++", "c++")))
"""Whether tests have Inductor compile, which takes a minute."""


class Branches(nn.Module):
    """Three branches of different sizes, dropout, and an embedding that classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(12, 10)
        self.left = nn.Linear(10, 6)
        self.middle = nn.Sequential(nn.Linear(10, 7), nn.Tanh(), nn.Linear(7, 6))
        self.right = nn.Linear(10, 6, bias=False)
        self.drop = nn.Dropout(0.25)
        self.shared = nn.Linear(6, 6, bias=False)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.stem(inputs))
        hidden = self.left(hidden) * torch.tanh(self.middle(hidden)) + self.right(hidden)
        hidden = self.shared(self.drop(torch.tanh(self.shared(hidden))))
        outputs: Tensor = self.last(self.drop(hidden))
        return outputs


class Cut(Branches):
    """The same in two graphs, which share a layer."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.stem(inputs))
        hidden = self.left(hidden) * torch.tanh(self.middle(hidden)) + self.right(hidden)
        hidden = self.shared(hidden)
        torch._dynamo.graph_break()
        hidden = self.shared(self.drop(torch.tanh(self.shared(hidden))))
        outputs: Tensor = self.last(self.drop(hidden))
        return outputs


def seeded(kind: type[nn.Module]) -> nn.Module:
    """Return a model with the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return kind()


def profile_of(kind: type[nn.Module]) -> Profile:
    """Return the profile of a compiled model."""
    inputs = (make_inputs("perceptron", 0, 0),)
    model = seeded(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo looks at gradients of what crosses a graph break
        return measure_compiled(
            model, inputs, name=kind.__name__, source="", warmup=1, repetitions=1
        )


def problem_of(profile: Profile, **options: Any) -> caramel.Problem:
    """Return a problem over a slow network."""
    network = AffineCost.from_bandwidth(startup_ns=10_000, bytes_per_s=Fraction(10**7))
    return caramel.Problem.from_profile(profile, network, workers=2, **options)


def last_first(profile: Profile) -> tuple[str, ...]:
    """Return another order of the ops than the compiler's: what stands last runs first, or soon."""
    graph = profile.dataflow()
    order: list[str] = []
    for phase in ("backward", "forward"):
        ops = [op for op in graph.ops if op.phase == phase]
        done = (
            {op.name for op in graph.ops if op.phase == "forward"} if phase == "backward" else set()
        )
        while ops:
            index = max(i for i, op in enumerate(ops) if done.issuperset(op.after))
            done.add(ops[index].name)
            order.append(ops.pop(index).name)
    return tuple(order)


def plan_of(
    problem: caramel.Problem, groups: Sequence[Sequence[str]], *, barrier: bool = False
) -> tuple[caramel.Problem, caramel.Plan]:
    """Return a plan that sends these parameters together, in parts if they are marked with *."""
    number = {parameter.name: j for j, parameter in enumerate(problem.graph.parameters)}
    sizes = [parameter.size_bytes for parameter in problem.graph.parameters]
    made = []
    for names in groups:
        depth = 2 if any(name.endswith("*") for name in names) else 1
        chosen = [number[name.rstrip("*")] for name in names]
        made.append(Group(tuple(Part(j, 0, sizes[j]) for j in chosen), depth))
    order = problem.order
    return problem, caramel.Plan(tuple(made), (order.backward,), order.forward, barrier=barrier)
