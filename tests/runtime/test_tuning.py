"""One call: what it decides, that it changes nothing else, and that training is DDP's."""

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import planner
from planner.model.errors import MeasurementError
from planner.runtime import World, join, tuning
from planner.runtime.measuring import beside
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    STEPS,
    backward,
    ddp_weights,
    largest_difference,
    make_inputs,
    make_model,
    make_optimizer,
    weights_of,
)

ALWAYS, NEVER = Fraction(0), Fraction(10**9)
"""What a plan has to gain over DDP."""


def counting(module: Any, _inputs: Any) -> None:
    module.counted += 1


def tuned(world: World, worth: Fraction) -> Any:
    vars(tuning)["WORTH"], compared = worth, tuning._compared
    tuning._compared = lambda times: (compared(times)[0], True, compared(times)[2])
    model: Any = make_model("perceptron")
    model.register_buffer("counted", torch.zeros(()))
    model.register_forward_pre_hook(counting)
    optimizer = make_optimizer("adam", model)
    before, random = weights_of(model), torch.get_rng_state()
    parameters = list(model.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])  # and the others have none
    shown: list[str] = []
    tuning.Progress.__call__ = lambda _self, text, *_: shown.append(text)  # type: ignore[attr-defined, method-assign]
    with planner.tune(
        model,
        (make_inputs("perceptron", world.rank, 0),),
        optimizer,
        world=world,
        steps=2,
        time_limit=0.5,
    ) as made:
        same = (
            largest_difference(before, weights_of(model)) == 0
            and int(model.counted) == 0
            and not optimizer.state
            and torch.equal(random, torch.get_rng_state())
            and bool((parameters[0].grad == 1).all())
            and all(parameter.grad is None for parameter in parameters[1:])
        )
        kept, kind = made.keep_ddp, type(made.model)
        for step in range(STEPS):
            optimizer.zero_grad()
            backward(made.model, "perceptron", world.rank, step)
            optimizer.step()
    times = made.plan_ns, made.ddp_ns
    away = largest_difference(weights_of(model), ddp_weights("perceptron", "adam"))
    return made.reason, kept, kind is DistributedDataParallel, same, times, away, set(shown)


def hurried() -> None:
    """Measure little: what the numbers are does not matter here."""
    tuning._TIMED = tuning._BESIDE = (64, 4096)
    beside.SAMPLE_S = 0.02


def all_ways() -> Any:
    hurried()
    with join() as world:
        return [tuned(world, worth) for worth in (ALWAYS, NEVER)]


@pytest.mark.slow
def test_a_plan_is_followed_only_where_it_gains() -> None:
    for value in values(launch(all_ways, 2, timeout_s=120)):
        followed, slower = value
        assert followed[0].endswith("follow the plan")
        assert "keep DDP" in slower[0]
        assert [row[1] for row in value] == [False, True]
        assert [row[2] for row in value] == [False, True]
        assert all(row[3] for row in value)
        assert all(min(times) > 0 for times in (followed[4], slower[4]))
        assert all(row[5] == 0 for row in value)
        assert followed[6] > {"model: run", "network: round", "planning"}


@pytest.mark.parametrize(
    ("plan", "gain", "reliable"),
    [((90, 95, 91), 1.0989, True), ((90, 101, 91), 1.0989, False), ((110, 120, 90), 0.909, False)],
)
def test_a_gain_is_one_over_ddp_s_best_setting_and_reliable_if_every_round_has_it(
    plan: tuple[float, ...], gain: float, reliable: bool
) -> None:
    times = {"plan": plan, "default": (130, 120, 99), "tuned": (100, 100, 101)}
    gained, *others = tuning._compared(times)
    assert gained == pytest.approx(gain, rel=1e-3)
    assert others == [reliable, "tuned"]


def alone() -> Any:
    model = make_model("perceptron")
    inputs = (make_inputs("perceptron", 0, 0),)
    with planner.tune(model, inputs, make_optimizer("sgd", model)) as made:
        return made.reason, made.model is model, made.keep_ddp


def failing() -> None:
    hurried()
    model = make_model("perceptron")
    planner.tune(model, (torch.zeros(4, 5),), make_optimizer("sgd", model), timeout_s=10)


@pytest.mark.slow
def test_one_rank_has_nothing_to_plan() -> None:
    (outcome,) = launch(alone, 1)
    reason, same, kept = outcome.value
    assert "one rank has nobody to communicate with" in reason
    assert (same, kept) == (True, True)


@pytest.mark.slow
def test_a_model_that_fails_ends_all_ranks() -> None:
    for error in errors(launch(failing, 2)):
        assert error.type == MeasurementError.__name__
        assert "the model's forward pass failed" in error.text
