"""One call: what it decides, that it changes nothing else, and that training is DDP's."""

import re
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import planner
from planner.model.errors import MeasurementError
from planner.runtime import join, tuning
from planner.runtime.measuring import contention
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


def hurried() -> None:
    """Measure little: what the numbers are does not matter here."""
    tuning._TIMED = (64, 4096)
    contention.SAMPLE_S = 0.02


def counting(module: Any, _inputs: Any) -> None:
    module.counted += 1


def tuned(worth: Fraction, keeps: bool, words: str) -> None:
    """Train where a plan has to gain so much over DDP."""
    hurried()
    vars(tuning)["WORTH"], compared = worth, tuning._compared
    tuning._compared = lambda times: (compared(times)[0], True, compared(times)[2])
    shown: list[str] = []
    tuning.Progress.__call__ = lambda _self, text, *_: shown.append(text)  # type: ignore[attr-defined, method-assign]
    model: Any = make_model("perceptron")
    model.register_buffer("counted", torch.zeros(()))
    model.register_forward_pre_hook(counting)
    optimizer = make_optimizer("adam", model)
    before, random = weights_of(model), torch.get_rng_state()
    parameters = list(model.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])  # and the others have none
    with join() as world:
        inputs = (make_inputs("perceptron", world.rank, 0),)
        options: dict[str, Any] = {"world": world, "steps": 2, "time_limit": 0.5}
        with planner.tune(model, inputs, optimizer, **options) as made:
            assert largest_difference(before, weights_of(model)) == 0
            assert int(model.counted) == 0
            assert not optimizer.state
            assert torch.equal(random, torch.get_rng_state())
            assert (parameters[0].grad == 1).all()
            assert all(parameter.grad is None for parameter in parameters[1:])
            assert made.keep_ddp == isinstance(made.model, DistributedDataParallel) == keeps
            for step in range(STEPS):
                optimizer.zero_grad()
                backward(made.model, "perceptron", world.rank, step)
                optimizer.step()
        assert re.search(words, made.reason)
        assert min(made.plan_ns or 0, made.ddp_ns or 0) > 0
        assert keeps or {*shown} > {"model: run", "network: round", "planning"}
        del made  # before the group that DDP uses
        assert largest_difference(weights_of(model), ddp_weights("perceptron", "adam")) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worth", "keeps", "words"),
    [(Fraction(0), False, "follow the plan$"), (Fraction(10**9), True, "keep DDP")],
)
def test_a_plan_is_followed_only_where_it_gains(worth: Fraction, keeps: bool, words: str) -> None:
    values(launch(tuned, 2, worth, keeps, words, timeout_s=120))


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


def alone() -> None:
    model = make_model("perceptron")
    inputs = (make_inputs("perceptron", 0, 0),)
    with planner.tune(model, inputs, make_optimizer("sgd", model)) as made:
        assert "one rank has nobody to communicate with" in made.reason
        assert made.model is model
        assert made.keep_ddp


@pytest.mark.slow
def test_one_rank_has_nothing_to_plan() -> None:
    values(launch(alone, 1))


def failing() -> None:
    hurried()
    model = make_model("perceptron")
    planner.tune(model, (torch.zeros(4, 5),), make_optimizer("sgd", model), timeout_s=10)


@pytest.mark.slow
def test_a_model_that_fails_ends_all_ranks() -> None:
    for error in errors(launch(failing, 2)):
        assert error.type == MeasurementError.__name__
        assert "the model's forward pass failed" in error.text
