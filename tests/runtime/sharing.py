"""What tests of the executors have in common in which each rank updates a part of the weights."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from planner.families.bigdl import Exchange
from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.programs.forms import Direction
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.world import World
from tests.runtime.recipes import RECIPES, Plain, Recipe, changed, follow, made, of
from tests.runtime.reference import (
    CLASSES,
    MODELS,
    OPTIMIZERS,
    STEPS,
    Perceptron,
    Weights,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.thorough import THOROUGH

KINDS = ("gradients", "shards", "slices")


def executor_of(kind: str, model: nn.Module, optimizer: Optimizer, world: World) -> Executor:
    """Return an executor with a batch for each parameter, or with equal slices."""
    batches = tuple(Batch((Piece(name),)) for name in trainable(model))
    if kind == "gradients":
        return GradientExecutor(model, GradientProgram(batches[::-1]), optimizer, world)
    if kind == "shards":
        program = ShardProgram.pushes_first(batches, batches[::-1])
        return ShardExecutor(model, program, optimizer, world)
    elements = sum(parameter.numel() for parameter in trainable(model).values())
    plan, ranks = Exchange(elements, world.size, "rotated"), range(world.size)
    slices = SliceProgram(tuple(map(plan.slice, ranks)), tuple(map(plan.pull_order, ranks)))
    return SliceExecutor(model, slices, optimizer, world)


Attach = Callable[[nn.Module, Optimizer], Executor]
Pair = tuple[Weights, Weights]
"""Weights by the executor, and those expected."""


class Tiny(nn.Module):
    """Has parameters smaller than the number of ranks, one of them without any dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.first = nn.Linear(12, 5)
        self.second = nn.Linear(5, 2)
        self.shift = nn.Parameter(torch.tensor([0.5]))
        self.last = nn.Linear(2, CLASSES, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(inputs * self.scale))))
        outputs: Tensor = self.last(hidden + self.shift)
        return outputs


def transpose(model: Perceptron) -> None:
    """Let elements of parameters lie in memory in another order than theirs."""
    for layer in (model.first, model.second):
        layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)


def freeze(model: Perceptron) -> None:
    """Freeze layers that the optimiser knows of."""
    for layer in (model.first, model.second):
        layer.requires_grad_(requires_grad=False)


def clamp(model: nn.Module, step: int) -> None:
    """Write into parameters that are complete."""
    model.state_dict()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.2, 0.2)


def _named(model: nn.Module) -> Optimizer:
    """Return an optimiser that knows names, in two groups."""
    named = list(model.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [row for row in named if "weight" in row[0]], "weight_decay": 0.01},
        {"params": [row for row in named if "bias" in row[0]], "lr": 0.03, "momentum": 0.5},
    ]
    return SGD(groups, lr=0.1, momentum=0.9)


OWN = {
    "tiny": Recipe(Tiny),
    "tiny, Adam": Recipe(Tiny, of(torch.optim.Adam, lr=0.001, eps=1e-4)),
    "transposed": Recipe(changed(transpose)),
    "frozen": Recipe(changed(freeze)),
    "named, scheduled": replace(RECIPES["scheduled"], optimizer=_named),
    "clamped": Recipe(between=clamp),
    "SGD fused": Recipe(optimizer=of(SGD, fused=True, momentum=0.9, nesterov=True)),
    "SGD foreach": Recipe(optimizer=of(SGD, foreach=True, momentum=0.9, maximize=True)),
    "Adadelta": Recipe(optimizer=of(torch.optim.Adadelta)),
    "Adagrad, begun at 1": Recipe(optimizer=of(torch.optim.Adagrad, initial_accumulator_value=1.0)),
    "Adamax": Recipe(optimizer=of(torch.optim.Adamax, eps=1e-4)),
    "RAdam": Recipe(optimizer=of(torch.optim.RAdam, eps=1e-4)),
    "Rprop": Recipe(optimizer=of(torch.optim.Rprop)),
}

LEFT_OUT = {"clipped", "clipped and accumulated", "Adafactor", "Adafactor, autocast"}
"""Recipes that need more than the gradient of one element."""

ALL = {name: recipe for name, recipe in RECIPES.items() if name not in LEFT_OUT} | OWN

QUICK = [
    "accumulated",
    "clamped",
    "evaluated",
    "frozen",
    "mixed",
    "named, scheduled",
    "saved",
    "shared",
    "tiny, Adam",
    "two groups",
]
"""What takes seconds."""

REST = [name for name in ALL if name not in QUICK]
"""What is not in that; beside it all models are trained."""

MESSAGES = ["tiny", "transposed"]
"""What each kind of executor puts into messages by itself."""

DIVIDED = {
    kind: [name for name in REST if THOROUGH or REST.index(name) % 2 == place or name in MESSAGES]
    for place, kind in enumerate(("shards", "slices"))
}
"""By default most of those by one kind of executor: both share the gate and the optimisers."""

MANY = ["frozen", "mixed", "tiny", "tiny, Adam"]
"""What more ranks than some parameters have elements can go wrong with."""


def jobs(kind: str) -> list[Any]:
    """Return numbers of ranks, and recipes."""
    rest, few = DIVIDED[kind], [name for name in QUICK if name not in MANY]
    if THOROUGH:
        jobs, slow = [(1, QUICK), (2, QUICK)], [(3, QUICK), (2, rest), (3, rest), (6, MANY)]
    else:  # with three ranks all models are trained by `test_cut_shards`, too
        jobs, slow = [(2, QUICK), (1, ["accumulated", "tiny, Adam"])], [(3, few), (2, rest)]
        slow.append((6, MANY))
    return [*jobs, *(pytest.param(*job, marks=pytest.mark.slow) for job in slow)]


ROUNDED = {"SGD fused": 1e-6, "AdamW fused": 1e-6, "mixed": 0.02}
"""Torch's fused optimisers, and all in bfloat16 (of 8 bits), round the last elements of a tensor in
another way than those before, so that the place of a cut shows."""

UNSTABLE = {"RMSprop": 1e-4, "Rprop": 0.1}
"""These divide by the size of a gradient, or look at its sign alone."""


class Ours:
    """An executor's loop."""

    def __init__(self, executor: Executor, model: nn.Module) -> None:
        self.forward = model
        self.no_sync = executor.no_sync
        self.step = executor.step


def compare(attach: Attach, recipes: Collection[str]) -> dict[str, Pair]:
    """Train by an executor and by DDP."""
    pairs = {}
    for name in recipes:
        model, optimizer = made(ALL[name])
        executor = attach(model, optimizer)
        ours = follow(ALL[name], model, optimizer, Ours(executor, model))
        executor.close()
        model, optimizer = made(ALL[name])
        pairs[name] = ours, follow(ALL[name], model, optimizer, Plain(model, optimizer))
    return pairs


def compare_models(attachers: Mapping[str, Attach], rank: int) -> dict[str, Pair]:
    """Do the same for all models, in several ways, optimisers by turns.

    By default all ways are tried on the first model, and one on each other.
    """
    kinds = list(OPTIMIZERS)
    expected = cache(ddp_weights)
    pairs = {}
    for number, name in enumerate(MODELS):
        for place, (how, attach) in enumerate(attachers.items()):
            if number and place != number % len(attachers) and not THOROUGH:
                continue
            kind = kinds[(number + place) % len(kinds)]
            model = make_model(name)
            executor = attach(model, make_optimizer(kind, model))
            take_steps(executor, name, rank)
            executor.close()
            pairs[f"{name}, {kind}, {how}"] = weights_of(model), expected(name, kind)
    return pairs


def resume(attach: Attach, rank: int) -> Pair:
    """Stop after two steps, and go on from what was saved; end with a plain step on each rank."""
    model = make_model("perceptron")
    optimizer = make_optimizer("adam", model)
    executor = attach(model, optimizer)
    take_steps(executor, "perceptron", rank, range(2))
    saved = model.state_dict(), executor.optimizer.state_dict()
    again = make_model("perceptron")
    again.load_state_dict(saved[0])
    executor.close()
    assert optimizer.param_groups[0]["params"] == list(model.parameters())
    assert not optimizer.state
    optimizer = make_optimizer("adam", again)
    executor = attach(again, optimizer)
    optimizer.load_state_dict(saved[1])
    take_steps(executor, "perceptron", rank, range(2, STEPS))
    executor.close()
    return weights_of(again), ddp_weights("perceptron", "adam")


def pulled_early(program: ShardProgram) -> ShardProgram:
    """Return a program that pulls each batch as soon as all of it was pushed."""
    spans = [
        (name, start, stop or inf, number)
        for number, push in enumerate(program.pushes)
        for name, start, stop in push.pieces
    ]

    def pushed(pull: Batch) -> int:
        return max(
            number
            for name, start, stop in pull.pieces
            for other, first, last, number in spans
            if name == other and start < last and first < (stop or inf)
        )

    transfers: list[tuple[Direction, Batch]] = []
    for number, push in enumerate(program.pushes):
        transfers.append(("push", push))
        transfers += [("pull", pull) for pull in program.pulls if pushed(pull) == number]
    return ShardProgram(tuple(transfers))


def check(results: Sequence[dict[str, Pair]]) -> None:
    """Check that all ranks end with the same weights, and with those expected."""
    for name, (ours, expected) in results[0].items():
        for other in results[1:]:
            assert largest_difference(ours, other[name][0]) == 0, name
        # Two numbers have the same sum in either order.
        limits = ROUNDED if len(results) <= 2 else {**ROUNDED, **UNSTABLE}
        limit = limits.get(name.removesuffix(", each"), 0 if len(results) <= 2 else 1e-6)
        assert largest_difference(ours, expected) <= limit, name
