"""Whatever the plan and the way of training, weights are those of DDP; and transfers are lazy."""

import random
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import planner
from planner.programs import Batch, GradientProgram, Piece, program_of
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.trace import Event
from planner.runtime.model.parameters import trainable
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch, values
from tests.runtime.recipes import RECIPES, SLOW, Plain, Recipe, follow, made
from tests.runtime.reference import (
    MODELS,
    OPTIMIZERS,
    STEPS,
    Weights,
    backward,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    measured,
    take_steps,
    weights_of,
)
from tests.thorough import THOROUGH

METHODS = ("auto", "ddp", "mg_wfbp", "caramel", "bytescheduler")


def random_program(model: nn.Module, seed: int) -> GradientProgram:
    """Return any plan: parameters cut anywhere, grouped anyhow, in any order."""
    draw = random.Random(seed)
    pieces = []
    for name, parameter in trainable(model).items():
        width = parameter.element_size()
        cuts = {0, parameter.numel(), *(draw.randrange(parameter.numel()) for _ in range(2))}
        marks = sorted(cuts) if draw.random() < 0.5 else [0, parameter.numel()]
        pieces += [Piece(name, width * start, width * stop) for start, stop in pairwise(marks)]
    draw.shuffle(pieces)
    marks = sorted({0, len(pieces), *(draw.randrange(len(pieces)) for _ in range(4))})
    batches = tuple(
        Batch(tuple(pieces[start:stop]), depth=draw.randint(1, 8))
        for start, stop in pairwise(marks)
    )
    return GradientProgram(batches, barrier=draw.random() < 0.3)


def executed(name: str, optimizer: str, program: GradientProgram, world: World) -> Weights:
    """Train as planned; return the weights."""
    model = make_model(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(world.rank)  # which has to become what rank 0 has
    executor = GradientExecutor(model, program, make_optimizer(optimizer, model), world)
    take_steps(executor, name, world.rank)
    executor.close()
    return weights_of(model)


def follow_random_plans(seeds: Sequence[int], models: Sequence[str]) -> dict[str, float]:
    """Return by how much weights differ from DDP's, for each model and optimiser.

    By default each model has one optimiser, with two ranks another than with three.
    """
    differences = {}
    with join() as world:
        for number, name in enumerate(models):
            for place, optimizer in enumerate(OPTIMIZERS):
                if not THOROUGH and (number + world.size) % 2 != place:
                    continue
                expected = ddp_weights(name, optimizer)
                differences[f"{name} {optimizer}"] = max(
                    largest_difference(executed(name, optimizer, program, world), expected)
                    for program in (random_program(make_model(name), seed) for seed in seeds)
                )
    return differences


def follow_plans(name: str, plans: Sequence[bytes]) -> list[float]:
    with join() as world:
        expected = ddp_weights(name)
        return [
            largest_difference(executed(name, "sgd", program, world), expected)
            for plan in plans
            if isinstance(program := program_of(plan), GradientProgram)
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "seeds", "models", "tolerance"),
    [
        (2, range(5 if THOROUGH else 2), list(MODELS), 0),
        (3, range(5 if THOROUGH else 1), list(MODELS), 1e-6),
        # So many ranks change the ring alone, whatever the model.
        (9, range(1), ["transformer"], 1e-6),
    ],
)
def test_any_plan_trains_as_ddp_does(
    size: int, seeds: Sequence[int], models: Sequence[str], tolerance: float
) -> None:
    for value in values(launch(follow_random_plans, size, seeds, models, timeout_s=300)):
        assert len(value) == len(models) * (len(OPTIMIZERS) if THOROUGH else 1)
        assert max(value.values()) <= tolerance, value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["perceptron", "transformer"])
def test_solved_plans_train_as_ddp_does(name: str) -> None:
    profile = measured(name)
    graph = profile.graph
    assert graph is not None
    request = {
        "problem": "caramel",
        "ops": [
            {"name": op.name, "ns": op.duration_ns, "pass": op.phase, "after": list(op.after)}
            for op in graph.ops
        ],
        "parameters": [
            {
                "name": parameter.name,
                "bytes": parameter.size_bytes,
                "updated_by": list(parameter.updated_by),
                "read_by": list(parameter.read_by),
            }
            for parameter in graph.parameters
        ],
        "network": {"startup_ns": 20_000, "ns_per_byte": 100},
        "element_bytes": 4,
    }
    plans = [planner.solve(request | {"method": method}) for method in METHODS]
    for value in values(launch(follow_plans, 2, name, plans)):
        assert value == [0] * len(METHODS)


class Planned:
    """An executor as the recipes want it."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, world: World) -> None:
        program = random_program(model, 3)
        lazy = GradientProgram(program.batches, barrier=False)
        self.executor = GradientExecutor(model, lazy, optimizer, world)
        self.forward: Callable[[Tensor], Tensor] = model
        self.model = model

    def no_sync(self) -> AbstractContextManager[None]:
        return self.executor.no_sync()

    def clip(self, norm: float) -> None:
        self.executor.synchronise()
        self.executor.synchronise()  # changes nothing
        nn.utils.clip_grad_norm_(self.model.parameters(), norm)

    def step(self) -> None:
        self.executor.step()


def follow_recipes(recipes: Sequence[str]) -> dict[str, float]:
    differences = {}
    with join() as world:
        for name in recipes:
            recipe = (RECIPES | SLOW)[name]
            expected = _expected(recipe)
            model, optimizer = made(recipe)
            loop = Planned(model, optimizer, world)
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                differences[name] = largest_difference(
                    follow(recipe, model, optimizer, loop), expected
                )
            loop.executor.close()
            if recipe.between is None:
                kinds = [event.kind for event in loop.executor.trace.events]
                assert kinds.count("forward") == STEPS * recipe.passes
            assert not torch.overrides._get_current_function_mode_stack()
    return differences


def _expected(recipe: Recipe) -> Weights:
    model, optimizer = made(recipe)
    return follow(recipe, model, optimizer, Plain(model, optimizer))


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipes", [list(RECIPES), pytest.param(list(SLOW), marks=pytest.mark.slow)]
)
def test_any_way_of_training_gives_what_ddp_gives(recipes: Sequence[str]) -> None:
    for value in values(launch(follow_recipes, 2, recipes, timeout_s=120)):
        assert value == dict.fromkeys(recipes, 0)


class Held:
    """Sums up, but the last batch of a step only when it is let go."""

    name = "held"

    def __init__(self, ring: AllReduce, batches: int) -> None:
        self._ring = ring
        self._batches = batches
        self._calls = 0
        self.go = threading.Event()
        self.let_go: list[bool] = []

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        self._calls += 1
        if self._calls % self._batches == 0:
            self.let_go.append(self.go.wait(5))
            self.go.clear()
        self._ring(flat, depth)


def train_while_held() -> tuple[list[bool], list[Event]]:
    """Let a step's last batch go only when the next step has computed all layers but the last."""
    with join() as world:
        model = make_model("perceptron")
        batches = tuple(
            Batch((Piece(f"{layer}.weight"), Piece(f"{layer}.bias")))
            for layer in ("first", "norm", "second", "last")
        )
        held = Held(Ring(world.group), len(batches))
        program = GradientProgram(batches)
        optimizer = make_optimizer("sgd", model)
        executor = GradientExecutor(model, program, optimizer, world, held)

        def computed(*_: object) -> None:
            if executor.gate.pending:
                held.go.set()

        model.get_submodule("second").register_forward_hook(computed)
        held.go.set()  # for the first step, which waits
        take_steps(executor, "perceptron", world.rank, range(3))
        held.go.set()
        executor.close()
        return held.let_go, list(executor.trace.events)


def test_the_forward_pass_begins_before_the_last_batch() -> None:
    for let_go, events in values(launch(train_while_held, 2)):
        assert let_go == [True] * 3
        (second,) = (event for event in events if (event.kind, event.step) == ("forward", 2))
        transfers = [event for event in events if (event.kind, event.step) == ("transfer", 1)]
        assert [event.batch for event in transfers] == [0, 1, 2, 3]
        assert second.start_ns < transfers[-1].end_ns < second.end_ns
        updates = [event for event in events if (event.kind, event.step) == ("update", 1)]
        order = [event.batch for event in updates]  # what has arrived is updated at once
        assert order == sorted(set(order))
        assert len(order) > 1
        assert order[-1] == 3


def train_with_a_barrier() -> list[Event]:
    with join() as world:
        model = make_model("perceptron")
        program = random_program(model, 0)
        barrier = GradientProgram(program.batches, barrier=True)
        executor = GradientExecutor(model, barrier, make_optimizer("sgd", model), world)
        for step in range(3):
            backward(model, "perceptron", world.rank, step)
            executor.step()
            assert not executor.gate.pending
        executor.close()
        return list(executor.trace.events)


def test_a_barrier_holds_the_forward_pass_back() -> None:
    for value in values(launch(train_with_a_barrier, 2)):
        for step in (0, 1, 2):
            ends = [
                event.end_ns
                for event in value
                if event.step == step and event.kind in ("transfer", "update")
            ]
            assert ends
            for event in value:
                if event.kind == "forward" and event.step > step:
                    assert event.start_ns >= max(ends)
