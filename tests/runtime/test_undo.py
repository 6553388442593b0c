"""Steps that are taken back leave parameters and optimisers as they were, bit by bit."""

from copy import deepcopy
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.optim import Optimizer

from planner.runtime.optimisers.undo import Undo
from tests.runtime.reference import OPTIMIZERS, make_model, make_optimizer


def step(model: nn.Module, optimizer: Optimizer, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw)
    optimizer.step()


def seen(model: nn.Module, optimizer: Optimizer) -> tuple[Any, Any]:
    return deepcopy(model.state_dict()), deepcopy(optimizer.state_dict()["state"])


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_taken_back(name: str, before: int) -> None:
    model = make_model("perceptron")
    optimizer = make_optimizer(name, model)
    parameters = list(model.parameters())
    undo = Undo(optimizer, parameters)
    for number in range(before):
        undo.begin(number, range(len(parameters)))
        step(model, optimizer, number)
    was = seen(model, optimizer)
    # In two batches: what was remembered first is what counts.
    undo.begin(before, range(3))
    undo.begin(before, range(len(parameters)))
    step(model, optimizer, before)
    assert not same(seen(model, optimizer)[0], was[0])
    undo.back()
    assert all(map(same, seen(model, optimizer), was))
    step(model, optimizer, before)
    twice = make_model("perceptron")
    other = make_optimizer(name, twice)
    for number in range(before + 1):
        step(twice, other, number)
    assert all(map(same, seen(model, optimizer), seen(twice, other)))


def test_only_the_last_step_is_kept() -> None:
    model = make_model("perceptron")
    optimizer = make_optimizer("adam", model)
    parameters = list(model.parameters())
    undo = Undo(optimizer, parameters)
    undo.begin(0, range(len(parameters)))
    step(model, optimizer, 0)
    was = seen(model, optimizer)
    undo.begin(1, [0])
    step(model, optimizer, 1)
    undo.back()
    found = seen(model, optimizer)
    first, *others = model.state_dict()
    assert torch.equal(found[0][first], was[0][first])
    assert not any(torch.equal(found[0][name], was[0][name]) for name in others)
