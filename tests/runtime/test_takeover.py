"""Loops that call the optimiser's step: the weights are those of DDP, and all is put back."""

import copy
import pickle
from typing import Any

import msgspec
import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from planner.model.errors import NotApplicableError
from planner.programs.from_plans import TypedPlan, answer_of
from planner.runtime import join, take_over
from tests.runtime.launching import errors, launch, values
from tests.runtime.plans import typed_plans
from tests.runtime.reference import (
    STEPS,
    backward,
    largest_difference,
    make_model,
    make_optimizer,
    weights_of,
)


def looped(model: Any, optimizer: Any, *, clips: Any = None) -> None:
    """Train with a scheduler, accumulated gradients, and a closure every other step."""
    rank = distributed.get_rank()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for step in range(STEPS):

        def passes(step: int = step) -> str:
            optimizer.zero_grad()
            with model.no_sync():
                backward(model, "perceptron", rank, 2 * step)
            backward(model, "perceptron", rank, 2 * step + 1)
            if clips is not None:
                clips()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            return "loss"

        if step % 2:
            assert optimizer.step(passes) == "loss"
        else:
            passes()
            optimizer.step()
        schedule.step()


def followed(clip: bool, plan: list[TypedPlan]) -> None:
    """Follow a plan as it is on rank 0, and its answers on others."""
    answers = [msgspec.json.encode(answer_of(one)) for one in plan]
    with join() as world:
        plain = DistributedDataParallel(make_model("perceptron"))
        looped(plain, make_optimizer("adam", plain), clips=(lambda: None) if clip else None)
        model = make_model("perceptron")
        optimizer = make_optimizer("adam", model)
        attached: Any = answers if world.rank else plan
        with take_over(model, optimizer, attached, world=world) as executor:
            clips = executor.synchronise if clip else None
            looped(model, optimizer, clips=clips)
            counted = executor.steps
            executor.finish()
            others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
            with others[0].no_sync(), others[1].no_sync():
                backward(others[0], "perceptron", 0, 0)
        assert counted == STEPS
        assert not hasattr(model, "no_sync")
        assert largest_difference(weights_of(model), weights_of(plain.module)) == 0
        before = weights_of(model)
        backward(model, "perceptron", 0, 0)
        optimizer.step()  # its own again
        assert largest_difference(before, weights_of(model)) > 0


@pytest.mark.parametrize(
    ("family", "clip"), [("caramel", False), ("caramel", True), ("ibatch", False), ("bigdl", False)]
)
def test_a_loop_that_knows_nothing_of_plans_follows_one(family: str, clip: bool) -> None:
    values(launch(followed, 2, clip, typed_plans("perceptron")[family]))


def failing(plan: Any) -> None:
    model = make_model("perceptron")
    optimizer = make_optimizer("sgd", model)
    with take_over(model, optimizer, plan, timeout_s=20):
        if distributed.get_rank():
            raise ValueError("no more data")
        backward(model, "perceptron", 0, 0)
        optimizer.step()


@pytest.mark.slow
def test_what_ends_one_loop_ends_all() -> None:
    first, second = errors(launch(failing, 2, typed_plans("perceptron")["caramel"]))
    assert (first.type, second.type) == ("CommunicationError", "ValueError")
    assert "rank 1 stopped: ValueError: no more data" in first.text


def slices(plan: Any) -> None:
    model = make_model("perceptron")
    optimizer = make_optimizer("sgd", model)
    with take_over(model, optimizer, plan) as executor:
        backward(model, "perceptron", distributed.get_rank(), 0)
        with pytest.raises(NotApplicableError, match="no rank has whole gradients"):
            executor.synchronise()
        optimizer.step()


def test_plans_whose_gradients_are_never_whole_say_so() -> None:
    values(launch(slices, 2, typed_plans("perceptron")["bigdl"]))
