"""Training by every kind of executor gives the weights of plain DDP, whatever the plan."""

import warnings
from collections.abc import Collection
from functools import partial
from random import Random
from typing import get_args

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from planner.programs import GradientProgram, ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank
from tests.runtime.recipes import ALL, OF_MODELS, RECIPES, Ours, Plain, follow, made, momentum
from tests.runtime.reference import (
    STEPS,
    Weights,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import (
    KINDS,
    Attach,
    Order,
    any_batches,
    executor_of,
    pulled_early,
    slices,
)
from tests.thorough import THOROUGH


def by_any_program(
    seed: int, world: World, model: nn.Module, optimizer: Optimizer, barrier: bool = False
) -> Executor:
    batches = any_batches(Random(seed), trainable(model), depth=8)
    return GradientExecutor(model, GradientProgram(batches, barrier=barrier), optimizer, world)


def by_any_shards(
    seed: int, cuts: int, early: bool, world: World, model: nn.Module, optimizer: Optimizer
) -> Executor:
    """Push other batches than are pulled."""
    draw, parameters = Random(seed), dict(model.named_parameters())
    pulls, pushes = (any_batches(draw, parameters, cuts) for _ in range(2))
    program = ShardProgram.pushes_first(pulls, pushes)
    return ShardExecutor(model, pulled_early(program) if early else program, optimizer, world)


def by_slices(order: Order, world: World, model: nn.Module, optimizer: Optimizer) -> Executor:
    return SliceExecutor(model, slices(model, world.size, order), optimizer, world)


def shards_of_each(world: World, model: nn.Module, optimizer: Optimizer) -> Executor:
    return executor_of("shards", model, optimizer, world)


WAYS: dict[str, list[Attach]] = {
    "gradients": [
        partial(by_any_program, seed, barrier=seed == 1) for seed in range(5 if THOROUGH else 2)
    ],
    "shards": [shards_of_each, *(partial(by_any_shards, seed, 0, seed > 1) for seed in (1, 2, 3))],
    "each": [shards_of_each],
    "slices": [partial(by_slices, order) for order in get_args(Order)],
    "cut shards": [partial(by_any_shards, seed, 9, seed % 2 == 0) for seed in range(6)],
}

ROUNDED = {"SGD fused": 1e-6, "AdamW fused": 1e-6, "mixed": 0.02}
"""Torch's fused optimisers, and all in bfloat16 (of 8 bits), round the last elements of a tensor in
another way than those before, so that the place of a cut shows."""


def check(world: World, kind: str, name: str, ours: Weights, expected: Weights) -> None:
    """Check that all ranks end with the same weights, and with those expected."""
    few = world.size <= 2  # two numbers have the same sum in either order
    limits = {} if kind == "gradients" else ROUNDED
    assert largest_difference(ours, expected) <= limits.get(name, 0 if few else 1e-6), name
    world.agree(f"the weights of {name}", repr([weight.tolist() for weight in ours.values()]))


LEFT_OUT = {"clipped", "clipped and accumulated", "Adafactor", "Adafactor, autocast"}
"""Recipes that need more than the gradient of one element."""

OF_SHARDS = [name for name in ALL if name not in LEFT_OUT]
OF_SLICES = [name for name in OF_SHARDS if name != "mixed"]  # which has numbers of several types

PLAIN = [name for name in OF_SHARDS if ALL[name].optimizer is momentum or name in OF_MODELS]
"""For three ranks: each optimiser of torch updates uneven slices as it does even ones."""

MANY = ["frozen", "tiny", "tiny, Adam"]
"""What more ranks than some parameters have elements can go wrong with."""

CUT = [*OF_MODELS, "mixed", "frozen", "tiny, Adam", "named, scheduled", "Adagrad, begun at 1"]


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "recipes"),
    [
        ("gradients", 2, [*OF_MODELS, *RECIPES]),
        ("gradients", 3, list(OF_MODELS)),
        *(("shards", ranks, of) for ranks, of in ((2, OF_SHARDS), (3, PLAIN))),
        *(("shards", ranks, [*MANY, "mixed"]) for ranks in (1, 6)),
        ("each", 2, ["tiny", "mixed", "frozen"]),
        *(("slices", ranks, of) for ranks, of in ((2, OF_SLICES), (3, PLAIN))),
        *(("slices", ranks, MANY) for ranks in (1, 6)),
        *(("cut shards", ranks, CUT) for ranks in ([2, 3, 4] if THOROUGH else [2, 3])),
    ],
)
@in_each_rank("ranks", timeout_s=150)
def test_any_way_of_training_gives_what_ddp_gives(
    world: World, kind: str, ranks: int, recipes: Collection[str]
) -> None:
    """Ways are tried by turns; those of gradients with each model, and else what does not wait."""
    for place, name in enumerate(recipes):
        recipe, ways = ALL[name], WAYS[kind]
        model, optimizer = made(recipe)
        expected = follow(recipe, model, optimizer, Plain(model, optimizer))
        if kind == "gradients":
            tried = ways if name in OF_MODELS else ways[:1]
        else:
            tried = ways if THOROUGH and name in OF_MODELS else [ways[place % len(ways)]]
        for attach in tried:
            model, optimizer = made(recipe)
            executor = attach(world, model, optimizer)
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                ours = follow(recipe, model, optimizer, Ours(executor, model))
            if name in OF_MODELS:
                share = sum(own.numel() for own in optimizer.param_groups[0]["params"])
                # Of each cell, some elements here, a rank has one too many at most.
                whole = sum(parameter.numel() for parameter in model.parameters())
                assert share == whole if kind == "gradients" else share < 2 * whole / ranks
            executor.close()
            check(world, kind, name, ours, expected)
            if recipe.between is None:
                kinds = [event.kind for event in executor.trace.events]
                assert kinds.count("forward") == STEPS * recipe.passes
            assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.slow
@in_each_rank()
def test_training_goes_on_from_what_was_saved(world: World) -> None:
    """It stops after two steps, and ends with a plain step on each rank."""
    expected = ddp_weights("perceptron", "adam")
    for kind in KINDS:
        attach = WAYS[kind][-1]
        model = make_model("perceptron")
        optimizer = make_optimizer("adam", model)
        executor = attach(world, model, optimizer)
        take_steps(executor, range(2))
        saved = model.state_dict(), executor.optimizer.state_dict()
        again = make_model("perceptron")
        again.load_state_dict(saved[0])
        executor.close()
        assert optimizer.param_groups[0]["params"] == list(model.parameters())
        assert kind == "gradients" or not optimizer.state
        optimizer = make_optimizer("adam", again)
        executor = attach(world, again, optimizer)
        optimizer.load_state_dict(saved[1])
        take_steps(executor, range(2, STEPS))
        executor.close()
        check(world, kind, "perceptron", weights_of(again), expected)
