"""FSDP2 with the pull batches of a plan: what it gathers when, and the weights it ends with."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.programs import Batch, GradientProgram, Piece, ShardProgram
from planner.runtime.fsdp2 import as_fsdp2, fsdp2_groups
from tests.runtime.launching import launch
from tests.runtime.reference import (
    STEPS,
    Weights,
    backward,
    ddp_weights,
    largest_difference,
    make_inputs,
    make_model,
    make_optimizer,
)
from tests.runtime.test_ddp_export import in_job
from tests.thorough import THOROUGH

Names = tuple[tuple[str, ...], ...]

CHAIN: Names = (
    ("first.weight", "first.bias"),
    ("norm.weight", "norm.bias", "second.weight", "second.bias"),
    ("last.weight", "last.bias"),
)
OUT_OF_ORDER: Names = (
    ("last.weight", "last.bias"),
    ("first.weight", "first.bias", "second.weight", "second.bias"),
    ("norm.weight", "norm.bias"),
)
ATTENTION: Names = (
    ("embedding.weight",),
    ("attention.in_proj_weight", "attention.out_proj.weight", "norm.weight", "norm.bias"),
    ("inner.weight", "inner.bias", "outer.weight", "outer.bias"),
)
CASES: list[tuple[str, Names, str, dict[str, Any]]] = [
    ("perceptron", CHAIN, "sgd", {"reshard_after_forward": True}),
    ("perceptron", CHAIN, "adam", {"reshard_after_forward": False}),
    ("perceptron", OUT_OF_ORDER, "adam", {}),
    # The embedding is read again at the end, by no module of its own.
    ("transformer", ATTENTION, "sgd", {"reshard_after_forward": False}),
]


class Listed(nn.Module):
    """A list of parameters, a parameter of the model itself, and a layer inside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.linspace(0.1, 1, 6))
        self.rows = nn.ParameterList([nn.Parameter(torch.full((6,), 0.5))])
        self.outer = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.outer(inputs * self.own + self.rows[0])
        return outputs


LISTED: Names = (
    ("own", "rows.0"),
    ("outer.0.weight", "outer.0.bias"),
    ("outer.1.weight", "outer.1.bias"),
)


def program(names: Names) -> ShardProgram:
    batches = tuple(Batch(tuple(map(Piece, group))) for group in names)
    return ShardProgram.pushes_first(batches, batches[::-1])


class Recorder(TorchDispatchMode):
    """Notes sizes of all-gathers, and where matrices are multiplied."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[int | str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "allgather" in func.name():
            self.events.append(args[0].numel())
        elif func.name() == "aten::addmm":
            self.events.append("multiply")
        return func(*args, **(kwargs or {}))


def gathered(names: Sequence[str], model: nn.Module, ranks: int) -> int:
    """Return the elements of an all-gather: shards of the first dimension, of equal size."""
    shapes = [model.get_parameter(name).shape for name in names]
    return sum(-(-shape[0] // ranks) * ranks * shape[1:].numel() for shape in shapes)


def full(model: nn.Module) -> Weights:
    return {
        name: parameter.full_tensor().detach().clone()
        if isinstance(parameter, DTensor)
        else parameter
        for name, parameter in model.named_parameters()
    }


def train(
    name: str, names: Names, optimizer: str, options: dict[str, Any]
) -> tuple[list[int | str], int, int, Weights, Weights]:
    """Return what a forward pass does, how often it gathers, and the weights."""
    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    plain = ddp_weights(name, optimizer)
    model = make_model(name)
    sharded = as_fsdp2(model, program(names), init_device_mesh("cpu", (ranks,)), **options)
    assert sharded is model
    assert isinstance(model, FSDPModule)
    updates = make_optimizer(optimizer, model)
    for step in range(STEPS):
        backward(model, name, rank, step)
        updates.step()
        updates.zero_grad()
    from torch.distributed.tensor.debug import CommDebugMode  # takes a second to import

    with CommDebugMode() as counted:
        backward(model, name, rank, STEPS)
    weights = full(model)
    with torch.no_grad(), Recorder() as recorder:
        model(make_inputs(name, rank, 0))
    counts: Counter[str] = Counter()
    for op, times in counted.get_comm_counts().items():
        counts["gathers" if "gather" in str(op) else "reductions"] += times
    return recorder.events, counts["gathers"], counts["reductions"], weights, plain


def train_all(cases: list[tuple[str, Names, str, dict[str, Any]]]) -> list[Any]:
    return [train(*case) for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "cases"), [(2, CASES if THOROUGH else CASES[::2]), (3, CASES)])
def test_each_batch_is_gathered_at_once_and_weights_are_those_of_ddp(
    ranks: int, cases: list[tuple[str, Names, str, dict[str, Any]]]
) -> None:
    for outcome in launch(in_job, ranks, train_all, cases):
        assert outcome.error is None, outcome.error.trace
        for (name, names, _, options), done in zip(cases, outcome.value, strict=True):
            events, gathers, reductions, weights, plain = done
            sizes = [event for event in events if event != "multiply"]
            model = make_model(name)
            assert sizes == [gathered(group, model, ranks) for group in names]
            assert events[: len(names)] == sizes  # before any computation
            # What is given up after the forward pass is gathered again in the backward pass.
            twice = options.get("reshard_after_forward", True)
            assert gathers == len(names) * (2 if twice else 1)
            assert reductions == len(names)
            assert largest_difference(weights, plain) < 1e-5


def train_listed() -> tuple[list[int | str], list[float], list[float]]:
    torch.manual_seed(1)
    model, alone = Listed(), Listed()
    alone.load_state_dict(model.state_dict())
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    as_fsdp2(model, program(LISTED), mesh)
    inputs = torch.ones(2, 6)  # the same on all ranks, so one process computes the same
    for trained in (model, alone):
        updates = torch.optim.SGD(trained.parameters(), lr=0.1)
        for _ in range(3):
            trained(inputs).square().sum().backward()
            updates.step()
            updates.zero_grad()
    with torch.no_grad(), Recorder() as recorder:
        outputs = model(inputs)
    return recorder.events, outputs.flatten().tolist(), alone(inputs).flatten().tolist()


def test_parameters_of_the_model_itself_are_a_batch_like_others() -> None:
    for outcome in launch(in_job, 2, train_listed):
        assert outcome.error is None, outcome.error.trace
        events, outputs, alone = outcome.value
        sizes = [gathered(group, Listed(), 2) for group in LISTED]
        assert events == [*sizes, "multiply", "multiply"]
        assert outputs == pytest.approx(alone, abs=1e-6)


def test_groups_are_modules_inner_ones_first() -> None:
    groups = fsdp2_groups(program(LISTED), Listed())
    assert groups.groups == (("",), ("outer.0",), ("outer.1",))
    assert groups.shard_order[-1] == 0


def test_frozen_parameters_are_in_no_batch() -> None:
    model = make_model("perceptron")
    model.get_submodule("norm").requires_grad_(requires_grad=False)
    rest = (CHAIN[0], CHAIN[1][2:], CHAIN[2])
    assert fsdp2_groups(program(rest), model).groups == (("first",), ("second",), ("last",))


def test_what_cannot_be_expressed_is_refused() -> None:
    model = make_model("perceptron")
    split = (("first.weight",), ("first.bias", *CHAIN[1]), CHAIN[2])
    with pytest.raises(NotApplicableError, match="other parameters of first") as caught:
        as_fsdp2(model, program(split))
    assert caught.value.path == "batches[1]"
    with pytest.raises(InvalidPlanError, match=r"last\.weight is not in the plan"):
        as_fsdp2(model, program(CHAIN[:-1]))
    with pytest.raises(NotApplicableError, match="no other pulls"):
        as_fsdp2(model, GradientProgram(program(CHAIN).pulls))
    assert not isinstance(model, FSDPModule)
