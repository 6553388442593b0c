"""What does not fit is refused where an executor is attached, and where ranks differ."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD, Optimizer

from planner.model.errors import DisagreementError, InvalidInputError, InvalidPlanError
from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.sliced import ELEMENTWISE, check_elementwise
from planner.runtime.executors.slices import check_slices
from planner.runtime.model.parameters import check_cover
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank
from tests.runtime.recipes import Mixed, momentum
from tests.runtime.reference import Perceptron, backward, make_optimizer
from tests.runtime.sharing import executor_of


class OfATrainer(Optimizer):
    """Passes on what it is asked, as Accelerate's does."""

    def __init__(self, model: nn.Module) -> None:
        self.inner = momentum(model)


def begun(model: nn.Module) -> Optimizer:
    """Return an optimiser with the state of a part of a parameter."""
    optimizer = momentum(model)
    step_alone(model, optimizer)
    optimizer.state[next(model.parameters())]["momentum_buffer"] = torch.zeros(1)
    return optimizer


def of_a_mesh(whole: bool) -> nn.Module:
    """Return a model whose weights are distributed tensors, or a part of which FSDP shards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_module

    model, mesh = Perceptron(), init_device_mesh("cpu", (1,))
    if whole:
        return distribute_module(model, mesh)
    fully_shard(model.second, mesh=mesh)
    return model


MORE = torch.zeros(1), torch.zeros(0)
EACH = tuple(Batch((Piece(name),)) for name, _ in Perceptron().named_parameters())
INCOMPLETE = ShardProgram.pushes_first(EACH, EACH[1:])
PULLED_FIRST = ShardProgram(ShardProgram.pushes_first(EACH, EACH).transfers[::-1])


class Refusal(NamedTuple):
    """The path of what does not fit, what is said of it, and what is attached."""

    path: str
    message: str
    make: Callable[[], nn.Module] = Perceptron
    optimizer: Callable[[nn.Module], Optimizer] = momentum
    program: ShardProgram | GradientProgram | None = GradientProgram(())
    """None: slices."""


REFUSED = [
    Refusal("model", "expected a module of Python", lambda: torch.jit.script(Perceptron())),
    Refusal("model", "least", lambda: Perceptron().requires_grad_(requires_grad=False)),
    Refusal("model.weight", "complex", lambda: nn.Linear(2, 2, dtype=torch.complex64)),
    Refusal("model.weight", "no shape yet", lambda: nn.LazyLinear(2)),
    Refusal("model.weight", "on the CPU", lambda: nn.Linear(2, 2, device="meta")),
    Refusal(
        "model.0",
        r"attach to the module inside \(\.module\)",
        lambda: nn.Sequential(DistributedDataParallel(Perceptron())),
    ),
    Refusal("model.second", "attach to the model as it was before", lambda: of_a_mesh(False)),
    Refusal("model.first.weight", "got a DTensor", lambda: of_a_mesh(True)),
    Refusal("model.second.weight", "expected torch.float32", Mixed, program=None),
    Refusal("optimizer", "OfATrainer wraps another one", optimizer=OfATrainer),
    Refusal(
        "optimizer",
        "does not update the model's first.weight",
        optimizer=lambda model: SGD([*model.parameters()][1:]),
    ),
    Refusal(
        "optimizer",
        "updates 1 parameter that the model",
        optimizer=lambda model: SGD([*model.parameters(), *map(nn.Parameter, MORE)]),
    ),
    Refusal("optimizer", "LBFGS", optimizer=lambda model: LBFGS(model.parameters())),
    Refusal(
        "optimizer", r"expected the state of whole .* shape \(1,\)", Perceptron, begun, INCOMPLETE
    ),
    Refusal("groups", "is not in the plan"),
    Refusal("push.batches", r"the model's \S+ is not in the plan", program=INCOMPLETE),
    Refusal("pull.batches[0]", r"pulls \S+ before all of it", program=PULLED_FIRST),
]


def attach(model: nn.Module, program: Any, optimizer: Optimizer, world: World) -> Executor:
    if program is None:
        return executor_of("slices", model, optimizer, world)
    kind: Any = ShardExecutor if isinstance(program, ShardProgram) else GradientExecutor
    made: Executor = kind(model, program, optimizer, world)
    return made


@in_each_rank(1)
def test_what_does_not_fit_is_refused(world: World) -> None:
    for path, message, make, optimizer_of, program in REFUSED:
        model = make()
        optimizer = optimizer_of(model)
        with pytest.raises(InvalidInputError, match=message) as error:
            attach(model, program, optimizer, world)
        assert error.value.path == path
        if not path.startswith("model"):
            assert not any(module._forward_hooks for module in model.modules())


class Odd(NamedTuple):
    """What is otherwise on rank 1, and on what ranks do not agree then."""

    what: str
    change: Callable[[Perceptron], object] = lambda _: None
    optimizer: str = "sgd"
    begin: Callable[[nn.Module, Optimizer], object] = lambda *_: None
    batches: tuple[Batch, ...] = EACH


def step_alone(model: nn.Module, optimizer: Optimizer) -> None:
    backward(model, "perceptron", 0, 0)
    optimizer.step()


def rename(model: Perceptron) -> None:
    model.end = model.last
    del model.last


DISAGREEMENTS = [
    Odd("the plan", batches=EACH[::-1]),
    Odd("the model's parameters", lambda model: setattr(model, "second", nn.Linear(24, 9))),
    Odd("the model's parameters", rename),
    Odd("the optimiser and its settings", optimizer="adam"),
    Odd(
        "the optimiser and its settings",
        begin=lambda _, optimizer: optimizer.param_groups[0].update(lr=0.2),
    ),
    Odd("the optimiser's state", begin=step_alone),
]


@in_each_rank(3)
def test_ranks_disagree(world: World) -> None:
    for odd in DISAGREEMENTS:
        _, change, kind, begin, batches = odd if world.rank == 1 else Odd("")
        model = Perceptron()
        change(model)
        optimizer = make_optimizer(kind, model)
        begin(model, optimizer)
        with pytest.raises(DisagreementError) as error:
            GradientExecutor(model, GradientProgram(batches), optimizer, world)
        assert error.value.ranks == (1,)
        words = f"the ranks do not agree on {odd.what}"
        assert str(error.value) == f"{words}: rank 1 differs from rank 0"


def test_batches_that_do_not_carry_everything_once() -> None:
    parameters = {name: nn.Parameter(torch.zeros(count)) for name, count in (("a", 4), ("b", 5))}
    a, b = Piece("a"), Piece("b")
    for pieces, size, path, message in (
        ([a], None, "groups", "the model's b is not in the plan, or not wholly"),
        ([a, Piece("b", 0, 8)], None, "groups", "the model's b is not in the plan, or not wholly"),
        ([a, Piece("b", 4)], None, "groups", "some bytes of b are not sent"),
        ([a, b, Piece("b", 8)], None, "groups", "some bytes of b are sent twice"),
        ([a, Piece("b", 0, 8), Piece("b", 4)], None, "groups", "some bytes of b are sent twice"),
        ([a, Piece("c")], None, "groups[0]", "the model has no trainable parameter c"),
        ([a, b], 64, "groups[0]", "64 bytes are planned for 'a, b', the model"),
        ([Piece("a", 0, 6)], None, "a", "cut inside an element of 4 bytes: plan with element_by"),
        ([Piece("a", 6)], None, "a", "cut inside an element of 4 bytes: plan with element_bytes"),
        ([Piece("a", 8, 20)], None, "a", "no bytes [8, 20) in a parameter of 16"),
        ([Piece("a", 8, 8)], None, "a", "no bytes [8, 8) in a parameter of 16"),
    ):
        with pytest.raises(InvalidPlanError) as error:
            check_cover([Batch(tuple(pieces), size)], parameters, "groups")
        assert error.value.path == path
        assert message in str(error.value)


def test_slices_that_do_not_fit() -> None:
    check_slices(SliceProgram(((0, 10), (10, 10)), ((1, 0), (1, 0))), 2, 10)
    for spans, last, path in (
        (((0, 5),), (1, 0), "slices"),
        (((0, 5), (5, 9)), (1, 0), "slices"),
        (((0, 11), (11, 10)), (1, 0), "slices[1]"),
        (((0, 5), (5, 10)), (1, 1), "pull_order[1]"),
    ):
        with pytest.raises(InvalidPlanError) as error:
            check_slices(SliceProgram(spans, ((0, 1), last)), 2, 10)
        assert error.value.path == path


def test_optimisers_that_need_whole_parameters_or_have_begun_on_slices_are_refused() -> None:
    class Own(SGD):
        """Somebody's own."""

    kinds: Any = [torch.optim.Adafactor, torch.optim.Muon, torch.optim.SparseAdam, Own]
    for kind in kinds:
        with pytest.raises(InvalidInputError, match=f"SGD, Adam, .* ASGD.*got {kind.__name__}$"):
            check_elementwise(kind([nn.Parameter(torch.zeros(2, 2))], lr=0.1))
    kinds = ELEMENTWISE
    for kind in kinds:
        parameter = nn.Parameter(torch.zeros(2, 2))
        optimizer = kind([parameter], lr=0.1, **({"momentum": 0.9} if kind is SGD else {}))
        check_elementwise(optimizer)
        parameter.grad = torch.ones(2, 2)
        optimizer.step()
        check_elementwise(optimizer)
        state = optimizer.state[parameter]
        key = next(key for key, value in state.items() if value.dim())
        state[key] = state[key].view(-1)
        with pytest.raises(InvalidInputError, match="the state of whole parameters"):
            check_elementwise(optimizer)
