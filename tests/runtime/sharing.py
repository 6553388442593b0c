"""Executors of every kind, and what several tests of them have in common."""

from collections.abc import Callable
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from planner.families.bigdl import Exchange
from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.world import World
from tests.runtime.reference import make_model, make_optimizer

Attach = Callable[[World, nn.Module, Optimizer], Executor]
Order = Literal["rotated", "same", "backwards"]

KINDS = ("gradients", "shards", "slices")


def executor_of(kind: str, model: nn.Module, optimizer: Optimizer, world: World) -> Executor:
    """Return an executor with a batch for each parameter, or with equal slices."""
    batches = tuple(Batch((Piece(name),)) for name in trainable(model))
    if kind == "gradients":
        return GradientExecutor(model, GradientProgram(batches[::-1]), optimizer, world)
    if kind == "shards":
        program = ShardProgram.pushes_first(batches, batches[::-1])
        return ShardExecutor(model, program, optimizer, world)
    return SliceExecutor(model, slices(model, world.size), optimizer, world)


def attached(
    world: World, kind: str = "gradients", updates: str = "sgd", name: str = "perceptron"
) -> Executor:
    """Return an executor of a small model."""
    model = make_model(name)
    return executor_of(kind, model, make_optimizer(updates, model), world)


def slices(model: nn.Module, size: int, order: Order = "rotated") -> SliceProgram:
    """Return equal slices of all parameters, and who pulls them in which order."""
    elements = sum(parameter.numel() for parameter in trainable(model).values())
    plan = Exchange(elements, size, "same" if order == "same" else "rotated")
    pulls = tuple(plan.pull_order(node) for node in range(size))
    if order == "backwards":  # and nobody begins with itself
        pulls = tuple(order_of_rank[:0:-1] + order_of_rank[:1] for order_of_rank in pulls)
    return SliceProgram(tuple(plan.slice(node) for node in range(size)), pulls)
