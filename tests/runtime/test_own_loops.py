"""Loops that call the optimiser's step follow a plan: one that is given, or that of `tune`."""

import copy
import os
import pickle
import re
from typing import Any

import msgspec
import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import planner
from planner.model.errors import CommunicationError, MeasurementError, NotApplicableError
from planner.programs import read_plan
from planner.programs.from_plans import answer_of
from planner.runtime import take_over, tuning
from planner.runtime.measuring import contention
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_process, in_each_rank
from tests.runtime.plans import typed_plans
from tests.runtime.reference import (
    STEPS,
    away_from_ddp,
    backward,
    largest_difference,
    make_inputs,
    make_model,
    make_optimizer,
    weights_of,
)

NAME = "perceptron"


@pytest.fixture
def plans(family: str) -> Any:
    return typed_plans(NAME)[family]


def looped(model: Any, optimizer: Any, *, clips: Any = None) -> None:
    """Train with a scheduler, accumulated gradients, and a closure every other step."""
    rank = distributed.get_rank()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for step in range(STEPS):

        def passes(step: int = step) -> str:
            optimizer.zero_grad()
            with model.no_sync():
                backward(model, NAME, rank, 2 * step)
            backward(model, NAME, rank, 2 * step + 1)
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


@pytest.mark.parametrize(
    ("family", "clip"), [("caramel", False), ("caramel", True), ("ibatch", False), ("bigdl", False)]
)
@in_each_rank()
def test_a_loop_that_knows_nothing_of_plans_follows_one(
    world: World, family: str, clip: bool, plans: Any
) -> None:
    """Rank 0 is given a plan as it is, others its answers; then all is put back."""
    plain = DistributedDataParallel(make_model(NAME))
    looped(plain, make_optimizer("adam", plain), clips=(lambda: None) if clip else None)
    model = make_model(NAME)
    optimizer = make_optimizer("adam", model)
    answers: Any = [msgspec.json.encode(answer_of(one)) for one in plans]
    with take_over(model, optimizer, answers if world.rank else plans, world=world) as executor:
        looped(model, optimizer, clips=executor.synchronise if clip else None)
        assert executor.steps == STEPS
        if family != "caramel":
            with pytest.raises(NotApplicableError, match="no rank has whole gradients"):
                executor.synchronise()
        executor.finish()
        others: list[Any] = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        with others[0].no_sync(), others[1].no_sync():
            backward(others[0], NAME, 0, 0)
    assert not hasattr(model, "no_sync")
    assert largest_difference(weights_of(model), weights_of(plain.module)) == 0
    before = weights_of(model)
    backward(model, NAME, 0, 0)
    optimizer.step()  # its own again
    assert largest_difference(before, weights_of(model)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("family", ["caramel"])
@in_each_process()
def test_what_ends_one_loop_ends_all(family: str, plans: Any) -> None:
    model = make_model(NAME)
    optimizer = make_optimizer("sgd", model)

    def train() -> None:
        with take_over(model, optimizer, plans, timeout_s=20):
            if distributed.get_rank():
                raise ValueError("no more data")
            backward(model, NAME, 0, 0)
            optimizer.step()

    first = os.environ["RANK"] == "0"
    error: type[Exception] = CommunicationError if first else ValueError
    words = "rank 1 stopped: ValueError: no more data" if first else "^no more data"
    with pytest.raises(error, match=words):
        train()


# ---
# One call: what it decides, that it changes nothing else, and that training is DDP's.


def hurried() -> None:
    """Measure little: what the numbers are does not matter here."""
    tuning._TIMED = (64, 4096)
    contention.SAMPLE_S = 0.02


def counting(module: Any, _inputs: Any) -> None:
    module.counted += 1


def tuned(world: World, asked: float, refused: str, words: str) -> None:
    """Train where a plan has to gain so much over DDP."""
    advised, keeps = tuning._Advised(None, asked, refused), bool(asked or refused)
    vars(tuning)["_advised"] = lambda _: advised
    shown: list[str] = []
    tuning.Progress.__call__ = lambda _self, text, *_: shown.append(text)  # type: ignore[attr-defined, method-assign]
    model: Any = make_model(NAME)
    model.register_buffer("counted", torch.zeros(()))
    model.register_forward_pre_hook(counting)
    optimizer = make_optimizer("adam", model)
    before, random = weights_of(model), torch.get_rng_state()
    parameters = list(model.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])  # and the others have none
    inputs = (make_inputs(NAME, world.rank, 0),)
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
            backward(made.model, NAME, world.rank, step)
            optimizer.step()
    assert re.search(words, made.reason)
    assert (made.ddp_ns or 0) > 0
    assert (made.plan_ns is None) == bool(refused)  # a refused plan is not tried
    assert keeps or {*shown} > {"model: run", "network: round", "planning"}
    del made  # before the group that DDP uses
    assert away_from_ddp(model, optimizer="adam") == 0


@pytest.mark.slow
@in_each_rank(timeout_s=240)
def test_a_plan_is_followed_only_where_it_gains(world: World) -> None:
    hurried()
    compared = tuning._compared
    tuning._compared = lambda *times: (compared(*times)[0], True)
    tuned(world, 0.0, "", "follow the plan$")
    tuned(world, 1e9, "", "to gain.*keep DDP")
    tuned(world, 0.0, "no", "no .*keep DDP$")


@pytest.mark.parametrize(("slow", "least"), [(0, 1.03), (1, 1.03), (10, 1.15)])
def test_trials_ask_for_as_much_gain_as_the_advice(slow: int, least: float) -> None:
    """Sending takes none, a tenth or all of a step of DDP, 1 s: 15 % of that share is asked for."""
    answer = planner.solve(
        {
            "problem": "caramel",
            "ops": [
                {"name": "f", "ns": 5 * 10**8, "pass": "forward"},
                {"name": "b", "ns": 3 * 10**8, "pass": "backward", "after": ["f"]},
            ],
            "parameters": [{"name": "w", "bytes": 10**8, "updated_by": "b", "read_by": "f"}],
            "network": {
                "startup_ns": 0,
                "ns_per_byte": 2,
                "interference": {"startup_ns": 0, "ns_per_byte": slow, "slowdown": 1},
            },
            "workers": 2,
        }
    )
    made: Any = read_plan(msgspec.json.encode(answer))
    advised = tuning._advised(made)
    assert advised.size is None
    assert advised.asked == pytest.approx(least)
    assert advised.refused == "the plan is predicted to gain nothing"


@pytest.mark.parametrize(
    ("plan", "gain", "reliable"),
    [((90, 95, 91), 1.0989, True), ((90, 101, 91), 1.0989, False), ((110, 120, 90), 0.909, False)],
)
def test_a_gain_is_one_of_medians_and_reliable_if_every_round_has_it(
    plan: tuple[float, ...], gain: float, reliable: bool
) -> None:
    gained, every = tuning._compared(plan, (100, 100, 101))
    assert gained == pytest.approx(gain, rel=1e-3)
    assert every is reliable


def test_ddp_keeps_the_predicted_size_unless_its_default_wins_every_turn() -> None:
    default: dict[str, tuple[float, ...]] = {"default": (10, 10, 10)}
    assert tuning._best_ddp(default) == "default"
    for times, best in (((8, 8, 8), "tuned"), ((9, 12, 12), "tuned"), ((11, 12, 12), "default")):
        assert tuning._best_ddp(default | {"tuned": times}) == best


@pytest.mark.slow
@in_each_process(1)
def test_one_rank_has_nothing_to_plan() -> None:
    model = make_model(NAME)
    inputs = (make_inputs(NAME, 0, 0),)
    with planner.tune(model, inputs, make_optimizer("sgd", model)) as made:
        assert "one rank has nobody to communicate with" in made.reason
        assert made.model is model
        assert made.keep_ddp


@pytest.mark.slow
@in_each_process()
def test_a_model_that_fails_ends_all_ranks() -> None:
    hurried()
    model = make_model(NAME)
    updates = make_optimizer("sgd", model)
    with pytest.raises(MeasurementError, match="the model's forward pass failed"):
        planner.tune(model, (torch.zeros(4, 5),), updates, timeout_s=10)
