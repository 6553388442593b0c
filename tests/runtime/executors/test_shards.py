"""Sharded training by a plan of batches, held against plain DDP."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.optim import Optimizer

from planner.errors import InvalidInputError
from planner.programs import Batch, Piece, ShardProgram
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.optimisers.sliced import ELEMENTWISE, check_elementwise
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch
from tests.runtime.reference import backward, make_model, make_optimizer
from tests.runtime.sharing import (
    JOBS,
    REST,
    Attach,
    Pair,
    check,
    compare,
    compare_models,
    resume,
    values,
)

SIZES = {"one": [], "each": [1] * 100, "uneven": [1, 3, 2]}
"""Of batches; what is left is one more."""


def batches(model: nn.Module, sizes: Iterable[int]) -> tuple[Batch, ...]:
    names = [name for name, _ in model.named_parameters()]
    groups = []
    for size in sizes:
        groups.append(names[:size])
        names = names[size:]
    return tuple(Batch(tuple(map(Piece, some))) for some in [*groups, names] if some)


def program(model: nn.Module, pull: str, push: str) -> ShardProgram:
    return ShardProgram(batches(model, SIZES[pull]), batches(model, SIZES[push])[::-1])


def attach(
    world: World, pull: str, push: str, model: nn.Module, optimizer: Optimizer
) -> ShardExecutor:
    return ShardExecutor(model, program(model, pull, push), optimizer, world)


def train(recipes: list[str]) -> dict[str, Pair]:
    ways = ("uneven", "each"), ("one", "uneven"), ("each", "one")
    with join() as world:
        pairs: dict[str, Pair] = {}
        for start, (pull, push) in enumerate(ways):
            pairs |= compare(partial(attach, world, pull, push), recipes[start::3])
        if recipes == REST:
            same: dict[str, Attach] = {how: partial(attach, world, how, how) for how in SIZES}
            pairs |= compare_models(same, world.rank)
            for name in "tiny", "mixed", "frozen":
                pairs[f"{name}, each"] = compare(same["each"], [name])[name]
            pairs["resumed"] = resume(same["uneven"], world.rank)
    return pairs


@pytest.mark.parametrize(("size", "recipes"), JOBS)
def test_weights_are_those_of_ddp(size: int, recipes: list[str]) -> None:
    check(values(launch(train, size, recipes, timeout_s=150)))


def watch_order(_: object = None) -> tuple[list[tuple[str, int, int]], list[set[str]], list[int]]:
    """Train two steps; return the transfers, what was pending behind each layer, and the state."""
    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("adam", model)
        layers = dict(model.named_children())
        pulls = tuple(
            Batch(tuple(Piece(f"{name}.{kind}") for kind in ("weight", "bias"))) for name in layers
        )
        pushes = (*pulls[1::-1], *pulls[2:])
        executor = ShardExecutor(model, ShardProgram(pulls, pushes), optimizer, world)
        pending: list[set[str]] = []
        for layer in layers.values():
            layer.register_forward_hook(
                lambda *_: pending.append(
                    {executor.names[parameter] for parameter in executor.gate.pending}
                )
            )
        for step in range(2):
            backward(model, "perceptron", world.rank, step)
            executor.step()
        moments = [state["exp_avg"].numel() for state in optimizer.state.values()]
        executor.close()
        events = [event for event in executor.trace.events if event.kind == "transfer"]
    return [(event.direction, event.step, event.batch) for event in events], pending, moments


def test_order_and_place_of_what_travels() -> None:
    results = values(launch(watch_order, 3))
    layers = list(dict(make_model("perceptron").named_children()))
    for transfers, pending, _ in results:
        assert transfers == [
            (direction, step, batch)
            for step in range(2)
            for direction in ("push", "pull")
            for batch in range(4)
        ]
        left = [
            {f"{name}.{kind}" for name in layers[done:] for kind in ("weight", "bias")}
            for done in range(1, 5)
        ]
        assert pending == [set()] * 4 + left
    elements = sum(parameter.numel() for parameter in make_model("perceptron").parameters())
    assert sum(sum(moments) for _, _, moments in results) == elements
    assert max(sum(moments) for _, _, moments in results) < elements / 2


def misuse(kind: str) -> None:
    """Do what ends a job."""
    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("sgd", model)
        plan = program(model, "uneven", "uneven")
        if kind == "incomplete":
            plan = ShardProgram(plan.pulls, plan.pushes[1:])
        if kind == "cut":
            halves = Piece("norm.weight", 0, 48), Piece("norm.weight", 48)
            rest = tuple(
                piece for piece in plan.pulls[1].pieces if piece.parameter != "norm.weight"
            )
            plan = ShardProgram((plan.pulls[0], Batch(halves + rest), *plan.pulls[2:]), plan.pushes)
        if kind == "begun":
            backward(model, "perceptron", 0, 0)
            optimizer.step()
        executor = ShardExecutor(model, plan, optimizer, world)
        for step in range(3):
            backward(model, "perceptron", world.rank, step)
            if kind == "changed" and step == 1 and world.rank == 1:
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            executor.step()
            if kind == "written" and step == 1 and world.rank == 1:
                with torch.no_grad():
                    model.get_parameter("norm.weight").zero_()


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("incomplete", "InvalidPlanError", r"push\.batches: the model's \S+ is not in the plan"),
        ("cut", "InvalidPlanError", r"pull\.batches\[1\]: expected norm\.weight as a whole"),
        ("begun", "InvalidInputError", "optimizer: expected one that has not taken a step"),
        ("changed", "CommunicationError", r"step 1.*rank 1 stopped: the gradient of \S+ was chang"),
        ("written", "CommunicationError", r"rank 1 stopped: norm\.weight was changed.*finish\(\)"),
    ],
)
def test_misuse_is_noticed(kind: str, error: str, message: str) -> None:
    for outcome in launch(misuse, 2, kind):
        assert outcome.error is not None
        assert outcome.error.type == error
        assert re.search(message, outcome.error.text)


class Doubled(torch.optim.SGD):
    """Somebody's own."""


@pytest.mark.parametrize(
    "kind", [torch.optim.Adafactor, torch.optim.Muon, torch.optim.SparseAdam, Doubled]
)
def test_optimisers_that_need_whole_parameters_are_refused(kind: type[Optimizer]) -> None:
    with pytest.raises(InvalidInputError, match=f"SGD, Adam, .* ASGD.*got {kind.__name__}$"):
        check_elementwise(kind([nn.Parameter(torch.zeros(2, 2))], lr=0.1))  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_optimisers_that_have_begun_are_refused(kind: type[Optimizer]) -> None:
    parameter = nn.Parameter(torch.zeros(2, 2))
    options: dict[str, Any] = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind([parameter], lr=0.1, **options)  # type: ignore[call-arg]
    check_elementwise(optimizer)
    parameter.grad = torch.ones(2, 2)
    optimizer.step()
    with pytest.raises(InvalidInputError, match="has not taken a step"):
        check_elementwise(optimizer)
