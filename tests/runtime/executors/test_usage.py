"""What else a training program does with the job, the model and the optimiser it has."""

import copy
import os
import pickle
import time
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.optim import SGD

from planner.model.errors import InvalidInputError
from planner.runtime.executors.base import Executor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import Outcome, errors, launch, values
from tests.runtime.reference import (
    STEPS,
    Weights,
    backward,
    ddp_weights,
    largest_difference,
    make_inputs,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import KINDS, executor_of

MODEL = "perceptron"


def attached(kind: str, model: nn.Module, world: World) -> Executor:
    return executor_of(kind, model, make_optimizer("sgd", model), world)


def beside_other_collectives(kind: str) -> tuple[float, ...]:
    """Train two models, and sum up something of one's own on the job's group in between."""
    wrong = 0
    with join(20) as world:
        models = [make_model(MODEL), make_model("recurrent")]
        executors = [attached(kind, model, world) for model in models]
        for step in range(STEPS):
            for name, model, executor in zip((MODEL, "recurrent"), models, executors, strict=True):
                backward(model, name, world.rank, step)
                executor.step()
            metric = torch.tensor([float(world.rank)])
            distributed.all_reduce(metric)
            wrong += float(metric) != sum(range(world.size))
        for executor in executors:
            executor.close()
        differences = [
            largest_difference(weights_of(model), ddp_weights(name))
            for name, model in zip((MODEL, "recurrent"), models, strict=True)
        ]
    return wrong, *differences


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_executors_and_the_program_itself_share_a_job(kind: str) -> None:
    for value in values(launch(beside_other_collectives, 2, kind, timeout_s=60)):
        assert value == (0, 0.0, 0.0)


def clamp_through_data(kind: str) -> tuple[Weights, Weights]:
    """Clip weights after each step, in a way that leaves no trace; the same with a plain optimiser.

    Ranks have the same data, so that plain training on one of them is the reference.
    """
    with join(20) as world:
        model = make_model(MODEL)
        with attached(kind, model, world) as executor:
            for step in range(STEPS):
                backward(model, MODEL, 0, step)
                executor.step()
                executor.finish()
                for parameter in model.parameters():
                    parameter.data.clamp_(-0.1, 0.1)
    plain = make_model(MODEL)
    optimizer = make_optimizer("sgd", plain)
    for step in range(STEPS):
        optimizer.zero_grad()
        backward(plain, MODEL, 0, step)
        optimizer.step()
        for parameter in plain.parameters():
            parameter.data.clamp_(-0.1, 0.1)
    return weights_of(model), weights_of(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_may_be_clipped_between_steps(kind: str) -> None:
    for value in values(launch(clamp_through_data, 2, kind, timeout_s=60)):
        assert largest_difference(*value) == 0.0


class Counting(SGD):
    """Keeps a count in its groups, as schedule-free optimisers do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
        return super().step(closure)


def misuse(kind: str, how: str) -> None:
    with join(20) as world:
        model = make_model(MODEL)
        frozen = next(model.parameters())
        frozen.requires_grad = how != "unfrozen"
        maker = Counting if how == "counting" else SGD
        optimizer = maker(
            [parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1
        )
        executor = executor_of(kind, model, optimizer, world)
        for step in range(3):
            backward(model, MODEL, world.rank, step)
            executor.step()
            if how == "optimiser" and step == 1:
                optimizer.step()
            elif how == "unfrozen":
                frozen.requires_grad = True
            elif how == "group" and step == 1:
                executor.finish()
                optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
            elif how == "written" and step == 1:
                with torch.no_grad():
                    next(model.parameters()).mul_(0.5)
            elif how == "copied" and step == 1:
                copy.deepcopy(model)
            elif how == "closed":
                executor.close()


MISUSES = {
    "optimiser": "the optimiser's step was called",
    "unfrozen": "trainable parameters are no longer those",
    "group": "the optimiser's parameters are no longer those",
    "written": "was changed while",
    "copied": "call finish() before it is copied",
    "closed": "this executor was closed",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", MISUSES)
def test_what_would_go_wrong_unseen_is_an_error(kind: str, how: str) -> None:
    for error in errors(launch(misuse, 2, kind, how, timeout_s=30)):
        assert MISUSES[how] in error.text


def test_an_optimiser_that_counts_in_its_groups_is_refused() -> None:
    for error in errors(launch(misuse, 2, "gradients", "counting", timeout_s=30)):
        assert "counts in its groups (k)" in error.text


def copy_after_finishing(kind: str) -> tuple[float, float, bool]:
    with join(20) as world:
        model = make_model(MODEL)
        with attached(kind, model, world) as executor:
            take_steps(executor, MODEL, world.rank, range(2))
            executor.finish()
            copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
            before = weights_of(model)
            backward(model, MODEL, world.rank, 2)
            executor.step()
            inputs = make_inputs(MODEL, 0, 0)
            outputs: list[Tensor] = [copy_of_model(inputs) for copy_of_model in (copied, pickled)]
            outputs[0].sum().backward()
            equal = torch.equal(*outputs)
        differences = [
            largest_difference(weights_of(copy_of_model), before)
            for copy_of_model in (copied, pickled)
        ]
    return differences[0], differences[1], equal


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_a_model_are_plain_ones(kind: str) -> None:
    for value in values(launch(copy_after_finishing, 2, kind, timeout_s=30)):
        assert value == (0.0, 0.0, True)


def attach_again(kind: str) -> str:
    with join(20) as world:
        model = make_model(MODEL)
        first = attached(kind, model, world)
        first.close()
        with attached(kind, model, world):
            try:
                attached(kind, model, world)
            except InvalidInputError as error:
                return str(error)
    return "attached twice"


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_has_one_executor_at_a_time(kind: str) -> None:
    for outcome in launch(attach_again, 2, kind, timeout_s=30):
        # Whoever learns from the other rank that it stopped does so in other words.
        text = outcome.value if outcome.error is None else outcome.error.text
        assert "another executor has it" in text


def join_twice_with_one_store(port: int) -> list[tuple[str, ...]]:
    """Join a launcher's job twice: its store still has what was said the first time."""
    os.environ |= {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    answers = []
    for turn in range(2):
        with join(20) as world:
            if world.rank:
                time.sleep(0.5)  # so that the other one has time to read too early
            answers.append(world.gather("what", f"{turn}.{world.rank}"))
    return answers


@pytest.mark.slow
def test_joining_again_begins_anew() -> None:
    from tests.runtime.faulty import store_of_a_launcher

    with store_of_a_launcher() as port:
        outcomes: list[Outcome] = launch(join_twice_with_one_store, 2, port, timeout_s=30)
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        assert outcome.value == [("0.0", "0.1"), ("1.0", "1.1")]
