"""Executors of every kind, and what several tests of them have in common."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf
from random import Random
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from planner.families.bigdl import Exchange
from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.programs.forms import Direction
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


def any_batches(
    draw: Random, parameters: Mapping[str, nn.Parameter], cuts: int = 3, depth: int = 1
) -> tuple[Batch, ...]:
    """Draw batches that carry all of the parameters once, cut anywhere, in any order."""
    pieces = []
    for name, parameter in parameters.items():
        size, width = parameter.numel(), parameter.element_size()
        places = [draw.randint(0, size) for _ in range(draw.randint(0, cuts))]
        marks = sorted({0, size, *places})
        pieces += [Piece(name, width * start, width * stop) for start, stop in pairwise(marks)]
    draw.shuffle(pieces)
    ends = sorted({0, len(pieces), *(draw.randint(0, len(pieces)) for _ in range(4))})
    return tuple(
        Batch(tuple(pieces[start:stop]), depth=draw.randint(1, depth))
        for start, stop in pairwise(ends)
    )


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
