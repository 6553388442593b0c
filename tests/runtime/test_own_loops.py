"""Loops that call the optimiser's step follow a plan: one that is given, or that of `tune`."""

import copy
import os
import pickle
import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import planner
from planner.jsonio.what_if import AdviceAnswer
from planner.model.errors import CommunicationError, MeasurementError, NotApplicableError
from planner.model.profiles import Profile
from planner.programs.from_plans import answer_of
from planner.runtime import take_over, tuning
from planner.runtime.measuring import contention
from planner.runtime.measuring.trial import run_ddp, run_plan
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
def plans() -> Any:
    return typed_plans(NAME)


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


@pytest.mark.slow
@in_each_rank()
def test_a_loop_that_knows_nothing_of_plans_follows_one(world: World, plans: Any) -> None:
    """Rank 0 is given a plan as it is, others its answers; then all is put back."""
    for family, clip in (
        *(("caramel", False), ("caramel", True)),
        *(("ibatch", False), ("bigdl", False)),
    ):
        plain = DistributedDataParallel(make_model(NAME))
        looped(plain, make_optimizer("adam", plain), clips=(lambda: None) if clip else None)
        model = make_model(NAME)
        optimizer = make_optimizer("adam", model)
        answers: Any = [msgspec.json.encode(answer_of(one)) for one in plans[family]]
        given = answers if world.rank else plans[family]
        with take_over(model, optimizer, given, world=world) as executor:
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
@in_each_process()
def test_what_ends_one_loop_ends_all(plans: Any) -> None:
    model = make_model(NAME)
    optimizer = make_optimizer("sgd", model)

    def train() -> None:
        with take_over(model, optimizer, plans["caramel"], timeout_s=20):
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
    vars(tuning).update(_TIMED=(64, 4096), FEWEST=1, MOST=2)
    contention.SAMPLE_S = 0.02


def counting(module: Any, _inputs: Any) -> None:
    module.counted += 1


def tuned(world: World, worth: float, refused: str, words: str) -> None:
    """Train where a plan has to gain so much over DDP."""
    vars(tuning).update(WORTH=worth, _advised=lambda _: ([None, 1], refused))
    keeps = bool(worth or refused)
    profiles: list[Profile] = []

    def slowest(_: World, own: Profile) -> Profile:
        profiles.append(own)
        return own

    vars(tuning).update(slowest_profile=slowest)
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
    options: dict[str, Any] = {"world": world, "steps": 2, "time_limit": 0.1}
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
    assert len(profiles) == 1  # of all ranks the slowest's counts
    assert re.search(words, made.reason)
    assert (made.ddp_ns or 0) > 0
    assert (made.plan_ns is None) == bool(refused)  # a refused plan is not tried
    assert keeps or {*shown} > {"model: run", "network: round", "planning"}
    del made  # before the group that DDP uses
    assert away_from_ddp(model, optimizer="adam") == 0


@pytest.mark.slow
@in_each_rank()
def test_a_plan_follows_ddp_whose_gradients_are_views_of_one_buffer(
    world: World, plans: Any
) -> None:
    model, inputs = make_model(NAME), (make_inputs(NAME, world.rank, 0),)
    optimizer = make_optimizer("sgd", model)
    how: Any = {"steps": 1, "warmup": 0}
    run_ddp(model, inputs, optimizer, world, **how, gradient_as_bucket_view=True)
    assert next(model.parameters()).grad is not None
    assert len(run_plan(model, inputs, plans["caramel"], optimizer, world, **how).steps) == 1


@pytest.mark.slow
@in_each_rank(timeout_s=240)
def test_a_plan_is_followed_only_where_it_gains(world: World) -> None:
    hurried()
    tuned(world, 0.0, "", "follow the plan$")
    tuned(world, 1e9, "", "to gain.*keep DDP")
    tuned(world, 0.0, "no", "no .*keep DDP")


@pytest.mark.parametrize(
    ("bucket", "gain", "sizes", "words"),
    [
        (None, 1.2, [None], "^$"),
        (1, 1.01, [None, 1, 5], "^$"),
        (25, 1.009, [None, 10, 25, 50], r"predicted to gain 0\.90%, less than 1\.00%,$"),
        (100, 0.9, [None, 50, 100], "predicted to gain nothing$"),
    ],
)
def test_sizes_next_to_the_predicted_one_are_tried_and_plans_that_may_gain(
    bucket: int | None, gain: float, sizes: list[int | None], words: str
) -> None:
    least = 1.5  # what answers ask for without a trial
    advice = AdviceAnswer(
        keep_ddp=True, bucket_cap_mb=bucket, ddp_ns=1, gain=gain, at_most=None, least_gain=least
    )
    answer: Any = answer_of(typed_plans(NAME)["caramel"][0])
    answer = msgspec.structs.replace(answer, advice=advice)
    tried, refused = tuning._advised(answer)
    assert tried == sizes
    assert re.search(words, refused)


def test_a_variant_is_dropped_once_another_was_faster_in_every_turn_of_both() -> None:
    ahead, once, behind = [10, 20, 30, 40], [11, 19, 31, 41], [11, 21, 31, 41]
    times = {"ahead": ahead, "once ahead": once, "behind": behind, "equal": ahead}
    assert tuning._undecided(times) == ["ahead", "once ahead", "equal"]
    assert tuning._undecided({"alone": [5.0]}) == ["alone"]
    assert tuning._gains([100, 50, 10, 10], [110, 50]) == pytest.approx([1.1, 1.0])


def test_turns_rotate_until_one_variant_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan and one size are ahead alternately; the default is behind in each turn."""
    times = {"plan": 10, "DDP": 30, f"DDP{tuning._with(1)}": 10}
    order: list[str] = []

    def run(name: str) -> Any:
        order.append(name)
        lasts = times[name] + (order.count(name) % 2 if name == "plan" else 0.5)
        return SimpleNamespace(steps=[SimpleNamespace(step_ns=lasts)])

    def ddp(*_: Any, bucket_cap_mb: int | None = None, **__: Any) -> Any:
        return run("DDP" + tuning._with(bucket_cap_mb))

    monkeypatch.setattr(tuning, "run_plan", lambda *_, **__: run("plan"))
    monkeypatch.setattr(tuning, "run_ddp", ddp)
    model = torch.nn.Linear(1, 1)
    world: Any = SimpleNamespace(rank=1)
    sizes = {name: None if name == "DDP" else 1 for name in times if name != "plan"}
    optimizer = make_optimizer("sgd", model)
    found = tuning._tried(model, (), optimizer, b"plan", world, sizes, steps=1)
    plan, default, one = times
    assert order[:9] == [plan, default, one, default, one, plan, one, plan, default]
    together = 3 * tuning.FEWEST
    assert default not in order[together:]
    assert order[together : together + 4] == [one, plan, plan, one]
    assert [len(found[name]) for name in times] == [tuning.MOST, tuning.FEWEST, tuning.MOST]


@pytest.mark.parametrize(
    ("gains", "why"),
    [
        ([[1.1, 1.1, 1.2, 1.04, 0.9]], ""),
        ([[1.1, 1.1, 1.2, 0.9, 0.9], [1.1] * 5], "1.10 times as fast, but slower in 2 rounds"),
        ([[1.1] * 5, [1.02, 1.02, 1.02, 1.1, 1.1]], "2.00%, less than 3.00%, to gain"),
        ([[0.9, 0.9, 1.1]], "nothing to gain"),
    ],
)
def test_a_plan_is_followed_if_it_gains_in_the_median_and_in_all_turns_but_one(
    gains: list[list[float]], why: str
) -> None:
    assert tuning._objection(gains) == why


@pytest.mark.slow
@in_each_process(1)
def test_one_rank_has_nothing_to_plan() -> None:
    model, inputs = make_model(NAME), (make_inputs(NAME, 0, 0),)
    with planner.tune(model, inputs, make_optimizer("sgd", model)) as made:
        assert "one rank has nobody to communicate with" in made.reason
        assert made.model is model
        assert made.keep_ddp


@pytest.mark.slow
@in_each_process()
def test_a_model_that_fails_ends_all_ranks() -> None:
    hurried()
    model, inputs = make_model(NAME), (torch.zeros(4, 5),)
    with pytest.raises(MeasurementError, match="the model's forward pass failed"):
        planner.tune(model, inputs, make_optimizer("sgd", model), timeout_s=10)
