"""Compiled models train as DDP trains plain ones, whatever is compiled, when, and with what."""

import shutil
import warnings
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from operator import add, mul
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from planner.model.errors import CommunicationError
from planner.runtime.executors.base import Executor
from planner.runtime.model.parameter_guard import uncompiled
from planner.runtime.model.parameters import plain_name
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_process
from tests.runtime.recipes import Plain, Shared
from tests.runtime.reference import (
    STEPS,
    Weights,
    largest_difference,
    loss_of,
    make_inputs,
    make_optimizer,
    weights_of,
)
from tests.runtime.sharing import KINDS, executor_of
from tests.thorough import THOROUGH

Call = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, int], Tensor]
Compile = partial[Any]
"""`torch.compile` by a backend."""


def decorated() -> nn.Module:
    """Return one whose forward pass is compiled by a decorator."""

    class Decorated(Shared):
        forward = torch.compile(Shared.forward, backend="eager")

    return Decorated()


def make(kind: Callable[[], nn.Module] = Shared) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return kind()


class Way(NamedTuple):
    """A way to compile: what is done to the model before an executor is attached, and after."""

    before: Callable[[nn.Module, Compile], Any] = lambda model, _: model
    """Returns what is attached."""
    after: Callable[[nn.Module, Compile], Call] = lambda model, _: model
    """Returns what is called, given what was attached."""
    whole: Callable[[Compile, Step], Step] = lambda _, step: step
    """Returns what takes a step."""
    kind: Callable[[], nn.Module] = Shared


def wrapped(model: nn.Module, compiled: Compile) -> Any:
    return compiled(model, fullgraph=True)


def in_place(model: nn.Module, compiled: Compile, part: str = "", **options: bool) -> nn.Module:
    model.get_submodule(part).compile(**compiled.keywords, **options)
    return model


def part_wrapped(model: nn.Module, compiled: Compile) -> nn.Module:
    model.second = compiled(model.get_submodule("second"))
    return model


def function(model: nn.Module, compiled: Compile) -> Any:
    return compiled(lambda inputs: model(2 * inputs / 2))


FUNCTIONS: dict[nn.Module, Call] = {}


def function_before(model: nn.Module, compiled: Compile) -> nn.Module:
    """Call the function, too, so that nothing has to be compiled later on."""
    FUNCTIONS[model] = function(model, compiled)
    FUNCTIONS[model](make_inputs("perceptron", 0, 0))
    return model


def piecewise(model: nn.Module, compiled: Compile) -> Call:
    """Read a weight in a function that is no module's, and then in one."""
    weight = model.get_parameter("first.weight")
    read = compiled(lambda inputs: inputs @ weight.T)
    return lambda inputs: model(read(inputs))


WAYS = {
    "WrappedBefore": Way(before=wrapped),
    "WrappedAfter": Way(after=wrapped),
    "InPlaceBefore": Way(before=partial(in_place, fullgraph=True)),
    "InPlaceAfter": Way(after=in_place),
    "PartBefore": Way(before=part_wrapped),
    "PartAfter": Way(after=partial(in_place, part="second")),
    "Function": Way(after=function),
    "FunctionBefore": Way(before=function_before, after=lambda model, _: FUNCTIONS[model]),
    "Piecewise": Way(after=piecewise),
    "WholeStep": Way(whole=lambda compiled, step: compiled(step)),
    "InForward": Way(kind=decorated),
}


def executor_on(kind: str, model: nn.Module, world: World) -> Executor:
    return executor_of(kind, model, make_optimizer("sgd", model), world)


def train(
    call: Call,
    rank: int,
    end: Callable[[], object],
    whole: Callable[[Step], Step] = lambda step: step,
) -> list[float]:
    def step(inputs: Tensor, number: int) -> Tensor:
        loss = loss_of(call(inputs), rank, number)
        loss.backward()
        end()
        return loss.detach()

    taken = whole(step)
    return [taken(make_inputs("perceptron", rank, n), n).item() for n in range(STEPS)]


@cache
def expected(rank: int, *, piecewise: bool) -> tuple[list[float], Weights]:
    model = make()
    loop = Plain(model, make_optimizer("sgd", model))
    call: Call = loop.forward
    if piecewise:
        weight = model.get_parameter("first.weight")
        call = lambda inputs: loop.forward(inputs @ weight.T)  # noqa: E731
    return train(call, rank, loop.step), weights_of(model)


def after_reset(model: nn.Module) -> Call:
    """Compile a function for the first time, as far as Dynamo knows, in the third step."""
    weight, steps = model.get_parameter("first.weight"), count(1)

    def read(inputs: Tensor) -> Tensor:
        return inputs @ weight.T

    def call(inputs: Tensor) -> Tensor:
        step = next(steps)
        if step < 3:
            return torch.as_tensor(model(read(inputs)))
        if step == 3:
            torch._dynamo.reset()
        return torch.as_tensor(model(torch.compile(read, backend="eager")(inputs)))

    return call


@in_each_process(1)
def test_what_slips_through_ends_with_a_sentence() -> None:
    words = "a function was compiled, and may have read parameters before"
    with (
        pytest.raises(CommunicationError, match=words) as error,
        join() as world,
        executor_on("gradients", make(), world) as executor,
    ):
        train(after_reset(executor.model), world.rank, executor.step)
    assert error.value.step == 2


CASES = [
    (way, executor, ("eager", "aot_eager")[(number + place) % 2])
    for number, way in enumerate(WAYS)
    for place, executor in enumerate(KINDS)
    if THOROUGH or place == number % 3
]
"""A way, an executor and a backend: in a thorough run each way with each executor."""

INDUCED = [("WrappedBefore", "gradients", "inductor")]
"""What is compiled to machine code as well, in all these ways in a thorough run."""

if THOROUGH:
    more = {"FunctionBefore": "slices", "WrappedAfter": "shards", "PartAfter": "shards"}
    INDUCED += [(way, executor, "inductor") for way, executor in more.items()]
if not any(map(shutil.which, ("g++", "clang++", "c++"))):
    INDUCED = []


@pytest.mark.slow  # the first compilation to machine code takes half a minute
@in_each_process(timeout_s=300)
def test_compiled_models_train_as_ddp_does() -> None:
    """All in one job: what compiles takes seconds to import.

    By default rank 0 compiles by the backend named, and all others by the cheapest.
    """
    with join(200) as world:  # while rank 0 compiles
        for name, executor, backend in CASES + INDUCED:
            losses, weights = expected(world.rank, piecewise=name == "Piecewise")
            torch._dynamo.reset()  # else what was compiled before would be known of
            own = backend if world.rank == 0 or THOROUGH else "eager"
            way, compiled = WAYS[name], partial(torch.compile, backend=own)
            model = make(way.kind)
            attached = executor_on(executor, way.before(model, compiled), world)
            with attached, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of compilers about the other
                call, whole = way.after(attached.model, compiled), partial(way.whole, compiled)
                ours = train(call, world.rank, attached.step, whole)
            trained = {plain_name(key): value for key, value in weights_of(model).items()}
            off = [abs(loss - other) for loss, other in zip(ours, losses, strict=True)]
            assert max(*off, largest_difference(trained, weights)) < 1e-5, (name, executor, backend)
            kinds = [event.kind for event in attached.trace.events]
            assert kinds.count("forward") == STEPS
            assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("known", [True, False])
def test_uncompiled_functions_and_what_they_call_stay_out_of_all_graphs(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def recording(graph: torch.fx.GraphModule, _: object) -> Call:
        graphs.append(graph)
        return graph.forward

    def called(value: Tensor) -> Tensor:
        return value + 1

    def hook(value: Tensor) -> Tensor:
        return called(value)

    with monkeypatch.context() as patched:
        if not known:  # as in a torch without this private function
            patched.delattr("torch._C._dynamo.eval_frame.set_code_exec_strategy")
        outside = uncompiled(hook)
    assert (outside is hook) == known
    torch._dynamo.reset()
    doubled = torch.compile(lambda value: outside(2 * value), backend=recording)
    assert doubled(torch.ones(1)) == 3
    operations = [node.target for graph in graphs for node in graph.graph.nodes]
    assert mul in operations
    assert add not in operations
