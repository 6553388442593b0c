"""Compiled models train as DDP trains plain ones, whatever is compiled, when, and with what."""

import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import plain_name, trainable
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch
from tests.runtime.recipes import Plain
from tests.runtime.reference import (
    CLASSES,
    STEPS,
    Weights,
    largest_difference,
    loss_of,
    make_inputs,
    make_optimizer,
    weights_of,
)
from tests.thorough import THOROUGH

Call = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, int], Tensor]


class Twice(nn.Module):
    """Reads the weights of its first two layers again behind a third one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.second = nn.Linear(12, 12)
        self.third = nn.Linear(12, 12)
        self.last = nn.Linear(12, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(inputs))))
        hidden = functional.linear(self.third(hidden), self.first.weight.T)
        outputs: Tensor = self.last(torch.tanh(hidden))
        return outputs


def decorated() -> nn.Module:
    """Return one whose forward pass is compiled by a decorator."""

    class Decorated(Twice):
        forward = torch.compile(Twice.forward, backend="eager")

    return Decorated()


def make(kind: Callable[[], nn.Module] = Twice) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return kind()


class Way:
    """A way to compile: what is done to the model before an executor is attached, and after."""

    kind: Callable[[], nn.Module] = Twice

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.steps = 0

    def before(self, model: nn.Module) -> nn.Module:
        """Return what is attached."""
        return model

    def after(self, model: nn.Module) -> Call:
        """Return what is called, given what was attached."""
        return model

    def whole(self, step: Step) -> Step:
        """Return what takes a step."""
        return step


class WrappedBefore(Way):
    def before(self, model: nn.Module) -> nn.Module:
        return torch.compile(model, backend=self.backend, fullgraph=True)  # type: ignore[return-value]


class WrappedAfter(Way):
    def after(self, model: nn.Module) -> Call:
        return torch.compile(model, backend=self.backend, fullgraph=True)


class InPlaceBefore(Way):
    def before(self, model: nn.Module) -> nn.Module:
        model.compile(backend=self.backend, fullgraph=True)
        return model


class InPlaceAfter(Way):
    def after(self, model: nn.Module) -> Call:
        model.compile(backend=self.backend)
        return model


class PartBefore(Way):
    def before(self, model: nn.Module) -> nn.Module:
        model.second = torch.compile(model.get_submodule("second"), backend=self.backend)  # type: ignore[assignment]
        return model


class PartAfter(Way):
    def after(self, model: nn.Module) -> Call:
        model.get_submodule("second").compile(backend=self.backend)
        return model


class Function(Way):
    def after(self, model: nn.Module) -> Call:
        return torch.compile(lambda inputs: model(2 * inputs / 2), backend=self.backend)


class FunctionBefore(Way):
    """Calls the function, too, so that nothing has to be compiled later on."""

    def before(self, model: nn.Module) -> nn.Module:
        self.function = torch.compile(lambda inputs: model(2 * inputs / 2), backend=self.backend)
        self.function(make_inputs("perceptron", 0, 0))
        return model

    def after(self, model: nn.Module) -> Call:
        return self.function


class Piecewise(Way):
    """Reads a weight in a function that is no module's, and then in one."""

    def after(self, model: nn.Module) -> Call:
        weight = model.get_parameter("first.weight")
        read = torch.compile(lambda inputs: inputs @ weight.T, backend=self.backend)
        return lambda inputs: model(read(inputs))


class WholeStep(Way):
    def whole(self, step: Step) -> Step:
        return torch.compile(step, backend=self.backend)


class InForward(Way):
    kind = staticmethod(decorated)


WAYS = {
    kind.__name__: kind
    for kind in (
        WrappedBefore,
        WrappedAfter,
        InPlaceBefore,
        InPlaceAfter,
        PartBefore,
        PartAfter,
        Function,
        FunctionBefore,
        Piecewise,
        WholeStep,
        InForward,
    )
}


def by_gradients(model: nn.Module, world: World) -> Executor:
    names = [[name] for name in trainable(model)]
    names = [*names[:2], names[2] + names[3], *names[4:]]
    program = GradientProgram(tuple(Batch(tuple(map(Piece, some))) for some in reversed(names)))
    return GradientExecutor(model, program, make_optimizer("sgd", model), world)


def by_shards(model: nn.Module, world: World) -> Executor:
    batches = tuple(Batch((Piece(name),)) for name in trainable(model))
    program = ShardProgram.pushes_first(batches, batches[::-1])
    return ShardExecutor(model, program, make_optimizer("sgd", model), world)


def by_slices(model: nn.Module, world: World) -> Executor:
    total = sum(parameter.numel() for parameter in model.parameters())
    bounds = [total * rank // world.size for rank in range(world.size + 1)]
    orders = [
        tuple((rank + turn) % world.size for turn in range(world.size))
        for rank in range(world.size)
    ]
    program = SliceProgram(tuple(pairwise(bounds)), tuple(orders))
    return SliceExecutor(model, program, make_optimizer("sgd", model), world)


EXECUTORS = {"gradients": by_gradients, "shards": by_shards, "slices": by_slices}


def train(call: Call, rank: int, end: Callable[[], object], way: Way | None = None) -> list[float]:
    def step(inputs: Tensor, number: int) -> Tensor:
        loss = loss_of(call(inputs), rank, number)
        loss.backward()
        end()
        return loss.detach()

    whole: Step = way.whole(step) if way else step
    return [whole(make_inputs("perceptron", rank, n), n).item() for n in range(STEPS)]


@cache
def expected(rank: int, *, piecewise: bool) -> tuple[list[float], Weights]:
    model = make()
    loop = Plain(model, make_optimizer("sgd", model))
    call: Call = loop.forward
    if piecewise:
        weight = model.get_parameter("first.weight")
        call = lambda inputs: loop.forward(inputs @ weight.T)  # noqa: E731
    return train(call, rank, loop.step), weights_of(model)


Case = tuple[str, str, str]
"""A way, an executor, and a backend."""


def differences(cases: Sequence[Case]) -> dict[Case, float]:
    """Return by how much losses and weights differ from DDP's.

    By default rank 0 compiles by the backend named, and all others by the cheapest.
    """
    apart = {}
    with join(200) as world:  # while rank 0 compiles
        for name, executor, backend in cases:
            losses, weights = expected(world.rank, piecewise=name == "Piecewise")
            torch._dynamo.reset()  # else what was compiled before would be known of
            way = WAYS[name](backend if world.rank == 0 or THOROUGH else "eager")
            model = make(way.kind)
            attached = EXECUTORS[executor](way.before(model), world)
            with attached, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of compilers about the other
                ours = train(way.after(attached.model), world.rank, attached.step, way)
            trained = {plain_name(key): value for key, value in weights_of(model).items()}
            off = [abs(loss - other) for loss, other in zip(ours, losses, strict=True)]
            apart[name, executor, backend] = max(*off, largest_difference(trained, weights))
            kinds = [event.kind for event in attached.trace.events]
            assert kinds.count("forward") == STEPS
            assert not torch.overrides._get_current_function_mode_stack()
    return apart


class AfterReset(Way):
    """Compiles a function for the first time, as far as Dynamo knows, in the third step."""

    def after(self, model: nn.Module) -> Call:
        weight = model.get_parameter("first.weight")

        def read(inputs: Tensor) -> Tensor:
            return inputs @ weight.T

        def call(inputs: Tensor) -> Tensor:
            self.steps += 1
            if self.steps < 3:
                return torch.as_tensor(model(read(inputs)))
            if self.steps == 3:
                torch._dynamo.reset()
            return torch.as_tensor(model(torch.compile(read, backend="eager")(inputs)))

        return call


def train_behind_our_back() -> None:
    with join() as world, by_gradients(make(), world) as executor:
        train(AfterReset("eager").after(executor.model), world.rank, executor.step)


def test_what_slips_through_ends_with_a_sentence() -> None:
    (outcome,) = launch(train_behind_our_back, 1)
    assert outcome.error is not None
    assert outcome.error.type == "CommunicationError", outcome.error.trace
    assert "a function was compiled, and may have read parameters before" in outcome.error.text
    assert outcome.error.attributes["step"] == 2


CASES = [
    (way, executor, ("eager", "aot_eager")[(number + place) % 2])
    for number, way in enumerate(WAYS)
    for place, executor in enumerate(EXECUTORS)
]
"""Each way with each executor; each of both with either backend."""

FEW = [case for case in CASES if case[0] in ("WrappedBefore", "FunctionBefore")]

OTHERS = [case for case in CASES if case not in FEW]
IN_TURN = [case for place, case in enumerate(OTHERS) if place % 3 == place // 3 % 3]
"""Each of the other ways with one executor."""


INDUCED = [("WrappedBefore", "gradients", "inductor")]
"""What is compiled to machine code as well, in all these ways in a thorough run."""

if THOROUGH:
    more = {"FunctionBefore": "slices", "WrappedAfter": "shards", "PartAfter": "shards"}
    INDUCED += [(way, executor, "inductor") for way, executor in more.items()]

COMPILER = any(map(shutil.which, ("g++", "clang++", "c++")))


@pytest.mark.slow  # the first compilation to machine code takes half a minute
def test_compiled_models_train_as_ddp_does() -> None:
    """All in one job: what compiles takes seconds to import."""
    cases = [*FEW, *(OTHERS if THOROUGH else IN_TURN), *(INDUCED if COMPILER else [])]
    for outcome in launch(differences, 2, cases, timeout_s=300):
        assert outcome.error is None, outcome.error.trace
        assert outcome.value.keys() == set(cases)
        assert max(outcome.value.values()) < 1e-5, outcome.value
