"""Whatever the plan and the way of training, weights of compiled models are those of DDP."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from planner import caramel
from planner.caramel.problem import Group, Part
from planner.programs import Plan
from planner.runtime import join
from planner.runtime.compiled import PlannedBackend
from tests.runtime.compiled.models import (
    INDUCTOR,
    Branches,
    Cut,
    last_first,
    plan_of,
    problem_of,
    profile_of,
    seeded,
)
from tests.runtime.launching import launch
from tests.runtime.recipes import Plain
from tests.runtime.reference import (
    Weights,
    largest_difference,
    loss_of,
    make_inputs,
    weights_of,
)
from tests.runtime.sharing import values

STEPS = 5

OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda model: SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: Adam(model.parameters(), lr=0.01, eps=1e-6),
}

Row = tuple[type[nn.Module], Plan, str, int, float | None]
"""A model, a plan, an optimiser, passes in a step, and the norm to clip gradients to."""


class Planned:
    """A compiled model that follows a plan."""

    def __init__(self, backend: PlannedBackend, model: nn.Module) -> None:
        self.forward = torch.compile(model, backend=backend, dynamic=False)
        self.no_sync = backend.no_sync
        self.step = backend.step
        self._synchronise = backend.synchronise
        self._model = model

    def clip(self, norm: float) -> None:
        self._synchronise()
        nn.utils.clip_grad_norm_(self._model.parameters(), norm)


def train(loop: Planned | Plain, rank: int, passes: int, norm: float | None) -> None:
    """Train for some steps, with the same draws in each way."""
    torch.manual_seed(rank)
    for step in range(STEPS):
        for number in range(passes):
            inputs = make_inputs("perceptron", rank, 100 * number + step)
            with loop.no_sync() if number + 1 < passes else nullcontext():
                loss_of(loop.forward(inputs), rank, step).backward()
        if norm is not None:
            loop.clip(norm)
        loop.step()


def worker(rows: Sequence[Row], inductor: bool) -> list[tuple[Weights, Weights]]:
    """Train by each plan and by DDP."""
    pairs = []
    with join(60) as world:
        for kind_of_model, plan, kind, passes, norm in rows:
            torch._dynamo.reset()
            model = seeded(kind_of_model)
            optimizer = OPTIMIZERS[kind](model)
            with PlannedBackend(model, plan, optimizer, world, inductor=inductor) as backend:
                train(Planned(backend, model), world.rank, passes, norm)
                model.state_dict()  # which finishes everything
                ours = weights_of(model)
            model = seeded(kind_of_model)
            train(Plain(model, OPTIMIZERS[kind](model)), world.rank, passes, norm)
            pairs.append((ours, weights_of(model)))
    return pairs


def rows() -> dict[str, Row]:
    """Return ways of training: the best plan, one in an odd order, cut and in parts, and DDP's."""
    profile = profile_of(Branches)
    problem = problem_of(profile)
    odd = problem_of(profile, op_order=last_first(profile))
    names = [parameter.name for parameter in problem.graph.parameters]
    cut, whole = plan_of(odd, [[name] for name in names])
    groups = list(whole.groups)
    first = groups[0].parts[0]
    groups[0] = Group((Part(first.parameter, 0, 8), groups[3].parts[0]))
    groups[3] = Group((first._replace(start=8),), depth=3)
    late = caramel.Plan(tuple(groups), whole.backward_orders, whole.forward_order)
    together = plan_of(problem, [names[:4], names[4:]], barrier=True)
    best = problem, caramel.solve(problem)
    apart = problem_of(profile_of(Cut))
    ends = ["last.weight", "last.bias"], ["stem.weight", "stem.bias"]
    others = [name for name in names if name not in (*ends[0], *ends[1])]
    parts = plan_of(apart, [ends[0], others, ends[1]])
    return {
        "best, momentum, accumulated": (Branches, best, "sgd", 2, None),
        "odd order, cut, Adam": (Branches, (cut, late), "adam", 1, None),
        "two graphs, one batch in both": (Cut, parts, "adam", 2, None),
        "barrier, Adam, accumulated": (Branches, together, "adam", 2, None),
        "clipped": (Branches, (cut, late), "sgd", 2, 0.05),
    }


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_weights_are_those_of_ddp(size: int) -> None:
    named = rows()
    chosen = dict(list(named.items())[: None if size == 3 else 3])
    results = values(launch(worker, size, list(chosen.values()), False))
    for place, name in enumerate(chosen):
        for pairs in results:
            assert largest_difference(pairs[place][0], results[0][place][0]) == 0, name
            assert largest_difference(*pairs[place]) <= 1e-6, name


@pytest.mark.slow
@pytest.mark.skipif(not INDUCTOR, reason="Inductor compiles C++ for a minute: in thorough runs")
def test_weights_are_those_of_ddp_under_inductor() -> None:
    plan = list(rows().values())[1]
    for pairs in values(launch(worker, 2, [plan], True, timeout_s=240)):
        # Dropout draws what torch draws, and merged operations round in another way.
        assert largest_difference(*pairs[0]) <= 1e-6
