"""What gradient transfers refuse, and what is left when an executor is closed."""

import copy
import pickle
import time
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.collectives.ring import Ring
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.joining import join
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    CLASSES,
    Perceptron,
    backward,
    largest_difference,
    loss_of,
    make_inputs,
    make_model,
    make_optimizer,
    weights_of,
)


def one_batch_each(model: nn.Module) -> GradientProgram:
    return GradientProgram(tuple(Batch((Piece(name),)) for name in trainable(model)))


def attached(model: nn.Module, world: object) -> GradientExecutor:
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    return GradientExecutor(model, one_batch_each(model), optimizer, world)  # type: ignore[arg-type]


class Unused(Perceptron):
    """Has a layer that is not called from the second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(CLASSES, CLASSES, bias=False)
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        outputs = super().forward(inputs)
        return outputs if self.calls > 1 else outputs + self.other(outputs)


class Embedded(nn.Module):
    """Has a sparse gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 12, sparse=True)
        self.rest = Perceptron()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.rest(inputs + self.table(torch.tensor(2)))
        return outputs


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    return inputs @ weight


class Hidden(nn.Module):
    """Reads a parameter where nothing shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12, CLASSES))
        self.product = torch.jit.script(product)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.product(inputs, self.weight)
        return outputs


class HiddenBefore(Hidden):
    """Does so ahead of a layer whose gradient comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(CLASSES, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.tanh(super().forward(inputs)))
        return outputs


def nothing(executor: GradientExecutor) -> None: ...


def twice(executor: GradientExecutor) -> None:
    backward(executor.model, "perceptron", 0, 0)
    backward(executor.model, "perceptron", 0, 0)


def again(executor: GradientExecutor) -> None:
    loss = loss_of(executor.model(make_inputs("perceptron", 0, 0)), 0, 0)
    loss.backward(retain_graph=True)
    loss.backward()


def changed(executor: GradientExecutor) -> None:
    backward(executor.model, "perceptron", 0, 0)
    nn.utils.clip_grad_norm_(executor.model.parameters(), 1e-3)


def dropped(executor: GradientExecutor) -> None:
    backward(executor.model, "perceptron", 0, 0)
    executor.optimizer.zero_grad()


def step(executor: GradientExecutor) -> None:
    backward(executor.model, "perceptron", 0, 0)


def accumulated(executor: GradientExecutor) -> None:
    with executor.no_sync():
        step(executor)


Action = Callable[[GradientExecutor], None]

CASES: dict[str, tuple[type[nn.Module], tuple[Action, ...], str]] = {
    "no backward pass": (Perceptron, (step, step, nothing), "first.weight got no gradient"),
    "unused": (Unused, (step, step), "other.weight got no gradient"),
    "sparse": (Embedded, (step,), "the gradient of table.weight is sparse"),
    "twice": (Perceptron, (step, twice), "a second gradient for"),
    "again": (Perceptron, (step, again), "a second gradient for"),
    "changed": (Perceptron, (step, changed), "was changed after it was sent"),
    "dropped": (Perceptron, (step, dropped), "was changed after it was sent"),
    "read by a script": (Hidden, (step, step, step), "weight was read before it was updated"),
    "read by a script before": (HiddenBefore, (step, step, step), "weight was read before it was"),
    "accumulated": (Hidden, (step, step, accumulated), "weight was read before it was updated"),
}


def train(case: str) -> None:
    """Fail on rank 0; all others train as they should."""
    make, actions, message = CASES[case]
    if "was read before" in message:  # so no batch has arrived when it is
        begin = Ring.begin

        def late(self: Ring, flat: Tensor) -> Callable[[], object]:
            wait = begin(self, flat)

            def slowly() -> None:
                time.sleep(0.3)
                wait()

            return slowly

        Ring.begin = late  # type: ignore[method-assign]
    with join(timeout_s=20) as world:
        executor = attached(make(), world)
        for number, action in enumerate(actions):
            fine = world.rank and number == len(actions) - 1 and make is Perceptron
            (step if fine else action)(executor)
            executor.step()
        assert world.rank, case
        for _ in range(3):  # until a batch waits for rank 0
            step(executor)
            executor.step()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_rank_learns_what_is_wrong(case: str) -> None:
    for error in errors(launch(train, 2, case)):
        assert error.type == "CommunicationError", error.trace
        assert CASES[case][2] in error.text
        assert error.attributes["step"] == len(CASES[case][1]) - 1
        if "no gradient" in CASES[case][2]:  # each parameter has a batch of its own
            assert error.attributes["batch"] == (8 if case == "unused" else 0)
            (peer,) = error.attributes["peers"]
            assert peer == 0 or case == "unused"


def scripted() -> nn.Module:
    return torch.jit.script(Perceptron())


def partial(model: nn.Module) -> Optimizer:
    return SGD(list(model.parameters())[1:], lr=0.1)


def foreign(model: nn.Module) -> Optimizer:
    more = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(0))
    return SGD([*model.parameters(), *more], lr=0.1)


def plain(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.1)


def parallel() -> nn.Module:
    return nn.Sequential(DistributedDataParallel(Perceptron()))


def sharded() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = Perceptron()
    fully_shard(model.second, mesh=init_device_mesh("cpu", (1,)))
    return model


def distributed_weights() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module

    return distribute_module(Perceptron(), init_device_mesh("cpu", (1,)))


class OfATrainer(Optimizer):
    """Passes on what it is asked, as Accelerate's does."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner


def wrapped(model: nn.Module) -> Optimizer:
    return OfATrainer(plain(model))


def whole(model: nn.Module) -> Optimizer:
    return torch.optim.LBFGS(model.parameters())


REFUSED: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Optimizer], str, str]] = {
    "scripted": (scripted, plain, "model", "expected a module of Python"),
    "frozen": (lambda: Perceptron().requires_grad_(requires_grad=False), plain, "model", "least"),
    "complex": (lambda: nn.Linear(2, 2, dtype=torch.complex64), plain, "model.weight", "complex"),
    "lazy": (lambda: nn.LazyLinear(2), plain, "model.weight", "no shape yet"),
    "elsewhere": (lambda: nn.Linear(2, 2, device="meta"), plain, "model.weight", "on the CPU"),
    "parallel": (parallel, plain, "model.0", r"attach to the module inside \(\.module\)"),
    "sharded": (sharded, plain, "model.second", "attach to the model as it was before"),
    "DTensor": (distributed_weights, plain, "model.first.weight", "got a DTensor"),
    "of a trainer": (Perceptron, wrapped, "optimizer", "OfATrainer wraps another one"),
    "partial": (Perceptron, partial, "optimizer", "does not update the model's first.weight"),
    "foreign": (Perceptron, foreign, "optimizer", "updates 1 parameter that the model"),
    "whole": (Perceptron, whole, "optimizer", "LBFGS"),
}


def refuse() -> None:
    with join() as world:
        for make, optimizer, path, message in REFUSED.values():
            model = make()
            with pytest.raises(InvalidInputError, match=message) as error:
                GradientExecutor(model, GradientProgram(()), optimizer(model), world)
            assert error.value.path == path
        model = make_model("perceptron")
        with pytest.raises(InvalidPlanError, match="is not in the plan"):
            GradientExecutor(model, GradientProgram(()), plain(model), world)
        assert not any(module._forward_hooks for module in model.modules())


def test_models_and_optimisers_that_do_not_fit_are_refused() -> None:
    values(launch(refuse, 1))


def train_inside_ddp() -> None:
    with join() as world:
        model = make_model("perceptron")
        parallel = DistributedDataParallel(model)
        with attached(model, world):
            backward(parallel, "perceptron", world.rank, 0)


def test_a_model_that_ddp_calls_is_refused() -> None:
    for error in errors(launch(train_inside_ddp, 2, timeout_s=30)):
        assert error.type == "CommunicationError", error.trace
        assert "DistributedDataParallel, which sends gradients too, calls" in error.text


def train_and_close() -> None:
    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("adam", model)
        executor = GradientExecutor(model, one_batch_each(model), optimizer, world)
        assert model(make_inputs("perceptron", 0, 0)).grad_fn is not None
        for number in range(3):
            backward(model, "perceptron", world.rank, number)
            sent = [weakref.ref(parameter.grad) for parameter in model.parameters()]
            executor.step()
            assert all(parameter.grad is None for parameter in model.parameters())
        assert any(state["step"] == 2 for state in optimizer.state.values())
        assert {int(state["step"]) for state in optimizer.state_dict()["state"].values()} == {3}
        assert not executor.gate.pending
        end = time.monotonic() + 10
        while any(
            gradient() is not None for gradient in sent
        ):  # the channel lets go of them in its own time
            assert time.monotonic() < end
            time.sleep(0.01)
        executor.close()
        executor.close()

        assert_plain(model)
        twin: nn.Module = pickle.loads(pickle.dumps(copy.deepcopy(model)))
        assert largest_difference(weights_of(twin), weights_of(model)) == 0
        state = optimizer.state_dict()
        for trained in (model, twin):
            updates = make_optimizer("adam", trained)
            updates.load_state_dict(copy.deepcopy(state))
            backward(trained, "perceptron", 0, 3)
            updates.step()
        assert largest_difference(weights_of(twin), weights_of(model)) == 0


def assert_plain(model: nn.Module) -> None:
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
        assert not module._forward_hooks_always_called
        assert not module._state_dict_pre_hooks
        assert not module._load_state_dict_pre_hooks
    for parameter in model.parameters():
        assert not getattr(parameter, "_post_accumulate_grad_hooks", None)


def test_a_closed_executor_leaves_a_plain_model() -> None:
    values(launch(train_and_close, 2))
