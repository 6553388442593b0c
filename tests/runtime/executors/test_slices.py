"""Training by slices, held against plain DDP."""

import os
import time
from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import distributed, nn
from torch.optim import Optimizer

from planner.families.bigdl.problem import Exchange
from planner.model.errors import InvalidPlanError
from planner.programs import SliceProgram
from planner.runtime.executors.slices import SliceExecutor, check_slices
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import errors, launch, values
from tests.runtime.recipes import RECIPES, made
from tests.runtime.reference import backward, ddp_weights, make_model, make_optimizer, weights_of
from tests.runtime.sharing import (
    DIVIDED,
    Attach,
    Pair,
    check,
    compare,
    compare_models,
    jobs,
    resume,
)

Order = Literal["rotated", "same", "backwards"]


def program(model: nn.Module, size: int, order: Order) -> SliceProgram:
    elements = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    plan = Exchange(elements, size, "same" if order == "same" else "rotated")
    pulls = tuple(plan.pull_order(node) for node in range(size))
    if order == "backwards":  # and nobody begins with itself
        pulls = tuple(order_of_rank[:0:-1] + order_of_rank[:1] for order_of_rank in pulls)
    return SliceProgram(tuple(plan.slice(node) for node in range(size)), pulls)


def attach(world: World, order: Order, model: nn.Module, optimizer: Optimizer) -> SliceExecutor:
    return SliceExecutor(model, program(model, world.size, order), optimizer, world)


def train(recipes: list[str]) -> dict[str, Pair]:
    orders: tuple[Order, ...] = ("rotated", "same", "backwards")
    all_models = recipes == DIVIDED["slices"]
    recipes = [name for name in recipes if name != "mixed"]
    with join() as world:
        pairs: dict[str, Pair] = {}
        for start, order in enumerate(orders):
            pairs |= compare(partial(attach, world, order), recipes[start::3])
        if all_models:
            ways: dict[str, Attach] = {order: partial(attach, world, order) for order in orders}
            pairs |= compare_models(ways, world.rank)
            pairs["resumed"] = resume(partial(attach, world, "rotated"), world.rank)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(("size", "recipes"), jobs("slices"))
def test_weights_are_those_of_ddp(size: int, recipes: list[str]) -> None:
    check(values(launch(train, size, recipes, timeout_s=150)))


GLOO: Any = distributed.ProcessGroupGloo


def watch_order(order: Order) -> tuple[list[tuple[int, int]], list[tuple[str, int]], int]:
    """Train a step; return whom this rank asked for how many elements, turns, and state."""
    asked: list[tuple[int, int]] = []
    receive = GLOO.recv

    def spy(group: Any, tensors: list[torch.Tensor], src: int, tag: int) -> Any:
        asked.append((src, tensors[0].numel()))
        return receive(group, tensors, src, tag)

    GLOO.recv = spy
    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("adam", model)
        executor = attach(world, order, model, optimizer)
        backward(model, "perceptron", world.rank, 0)
        executor.step()
        moments = sum(state["exp_avg"].numel() for state in optimizer.state.values())
        executor.close()
    events = [event for event in executor.trace.events if event.kind == "transfer"]
    return asked, [(event.direction, event.batch) for event in events], moments


@pytest.mark.parametrize("order", ["rotated", "same"])
def test_order_of_pulls(order: Order) -> None:
    size = 4
    elements = sum(parameter.numel() for parameter in make_model("perceptron").parameters())
    plan = program(make_model("perceptron"), size, order)
    sizes = [stop - start for start, stop in plan.slices]
    for rank, (asked, turns, moments) in enumerate(values(launch(watch_order, size, order))):
        others = [other for other in plan.pull_order[rank] if other != rank]
        if order == "rotated":
            assert others == [(rank + turn) % size for turn in range(1, size)]
        gradients = [(other, sizes[rank]) for other in others]
        weights = [(other, sizes[other]) for other in others]
        assert asked == gradients + weights
        assert turns == [(way, turn) for way in ("push", "pull") for turn in range(size)]
        assert moments == sizes[rank]
    assert sum(sizes) == elements


def lose_a_connection() -> None:
    receive = GLOO.recv

    def broken(group: Any, tensors: list[torch.Tensor], src: int, tag: int) -> Any:
        if (os.environ["RANK"], src) == ("0", 2):
            raise RuntimeError("the cable is cut")
        return receive(group, tensors, src, tag)

    GLOO.recv = broken
    with join(timeout_s=8) as world:
        model = make_model("perceptron")
        executor = attach(world, "rotated", model, make_optimizer("sgd", model))
        backward(model, "perceptron", world.rank, 0)
        executor.step()


def test_the_other_end_of_a_broken_transfer_is_named() -> None:
    for error in errors(launch(lose_a_connection, 4)):
        assert "the cable is cut" in error.text
        attributes = error.attributes
        assert (attributes["step"], attributes["batch"], attributes["peers"]) == (0, 2, (2,))


def serve_slowly() -> Pair:
    """Let one rank own everything, and still have to send when it needs nothing more itself."""
    send = GLOO.send

    def slow(group: Any, tensors: list[torch.Tensor], dst: int, tag: int) -> Any:
        time.sleep(0.3)
        return send(group, tensors, dst, tag)

    GLOO.send = slow
    with join() as world:
        model = make_model("perceptron")
        elements = sum(parameter.numel() for parameter in model.parameters())
        plan = SliceProgram(((0, 0), (0, 0), (0, elements)), ((0, 2, 1), (1, 0, 2), (0, 1, 2)))
        executor = SliceExecutor(model, plan, make_optimizer("sgd", model), world)
        backward(model, "perceptron", world.rank, 0)
        executor.step()
        executor.close()
        return weights_of(model), ddp_weights("perceptron", steps=1)


@pytest.mark.slow
def test_a_rank_serves_the_others_to_the_end() -> None:
    check([{"": pair} for pair in values(launch(serve_slowly, 3))])


def mix_types() -> None:
    with join() as world:
        model, optimizer = made(RECIPES["mixed"])
        attach(world, "rotated", model, optimizer)


def test_one_type_of_numbers() -> None:
    for error in errors(launch(mix_types, 2)):
        assert error.text.startswith("model.second.weight: expected torch.float32")


@pytest.mark.parametrize(
    ("slices", "order", "path"),
    [
        (((0, 5),), ((0, 1), (1, 0)), "slices"),
        (((0, 5), (5, 9)), ((0, 1), (1, 0)), "slices"),
        (((0, 11), (11, 10)), ((0, 1), (1, 0)), "slices[1]"),
        (((0, 5), (5, 10)), ((0, 1), (1, 1)), "pull_order[1]"),
    ],
)
def test_plans_that_do_not_fit(
    slices: tuple[tuple[int, int], ...], order: tuple[tuple[int, ...], ...], path: str
) -> None:
    with pytest.raises(InvalidPlanError) as error:
        check_slices(SliceProgram(slices, order), 2, 10)
    assert error.value.path == path
    check_slices(SliceProgram(((0, 10), (10, 10)), ((1, 0), (1, 0))), 2, 10)
