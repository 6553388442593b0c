"""Shards are taken back a step, put together on all ranks, and trained on in another way."""

from functools import cache
from itertools import product

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from planner.errors import PlannerError
from planner.programs import GradientProgram, ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.optimisers.state import contents, state
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.executors.test_cut_shards import WAYS, cut
from tests.runtime.launching import launch
from tests.runtime.reference import (
    Weights,
    backward,
    largest_difference,
    make_model,
    make_optimizer,
    weights_of,
)
from tests.runtime.sharing import pulled_early

RANKS = 3
DONE, STEPS = 3, 5
CASES = [
    (*how, back)
    for how, back in product((("sgd", "perceptron"), ("adam", "convolutions")), (DONE, DONE - 1))
]


@cache
def expected(kind: str, name: str) -> Weights:
    """Return what training in one process gives, with the gradients of all ranks."""
    model = make_model(name)
    optimizer = make_optimizer(kind, model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(RANKS):
            backward(model, name, rank, step)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= RANKS
        optimizer.step()
    return weights_of(model)


def sharded(model: nn.Module, way: int) -> ShardProgram:
    pull, push = WAYS[way]
    return pulled_early(ShardProgram.pushes_first(cut(model, *pull), cut(model, *push)[::-1]))


def train(world: World, kind: str, name: str, back: int, *, replicated: bool) -> Weights:
    model = make_model(name)
    if name == "convolutions":  # whose elements lie in another order then
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    optimizer = make_optimizer(kind, model)
    executor: Executor = ShardExecutor(model, sharded(model, 0), optimizer, world, recoverable=True)
    for step in range(DONE):
        backward(model, name, world.rank, step)
        executor.step()
    executor.finish()
    assert executor.complete == DONE
    executor.close()
    for wrong in (DONE - 2, DONE + 1):
        with pytest.raises(PlannerError, match=f"cannot go back to step {wrong}: {DONE} are"):
            executor.roll_back(wrong, world)
    if back < DONE:  # what is left of pulls that did not all arrive
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(world.rank)
    executor.roll_back(back, world)
    world.agree("the parameters", contents(executor.parameters))
    world.agree("the state", state(optimizer, executor.names))
    assert all(parameter in optimizer.state for parameter in model.parameters())
    if replicated:
        batches = GradientProgram(cut(model, *WAYS[1][0]))
        executor = GradientExecutor(model, batches, optimizer, world, steps=back)
    else:
        executor = ShardExecutor(model, sharded(model, 1), optimizer, world, steps=back)
    with executor:
        for step in range(back, STEPS):
            backward(model, name, world.rank, step)
            executor.step()
        assert executor.steps == STEPS
    return weights_of(model)


def train_all(replicated: bool) -> dict[str, Weights]:
    with join() as world:
        return {str(case): train(world, *case, replicated=replicated) for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("replicated", [False, True])
def test_training_goes_on_from_a_step_before(replicated: bool) -> None:
    outcomes = launch(train_all, RANKS, replicated, timeout_s=120)
    for case in CASES:
        for outcome in outcomes:
            assert outcome.error is None, outcome.error.trace
            difference = largest_difference(outcome.value[str(case)], expected(*case[:2]))
            assert difference < 1e-5, case


def nothing_kept() -> str:
    model = make_model("perceptron")
    with join() as world:
        executor = ShardExecutor(model, sharded(model, 0), make_optimizer("sgd", model), world)
        assert executor.complete is None
        executor.close()
        with pytest.raises(PlannerError) as refused:
            executor.roll_back(0, world)
    return str(refused.value)


def test_without_a_copy_there_is_no_way_back() -> None:
    (outcome,) = launch(nothing_kept, 1)
    assert outcome.error is None, outcome.error.trace
    assert "recoverable=True" in outcome.value
