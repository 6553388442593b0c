"""DDP with the batches of a plan: its buckets, their order, and the weights it ends with."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from planner.model.errors import (
    InvalidInputError,
    InvalidPlanError,
    NotApplicableError,
    PlannerError,
)
from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.runtime import ddp as module
from planner.runtime import follow_order
from planner.runtime.ddp import as_ddp, ddp_bucket_caps, ddp_buckets
from tests.runtime.launching import launch, values
from tests.runtime.reference import (
    STEPS,
    Weights,
    backward,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    weights_of,
)

Names = tuple[tuple[str, ...], ...]

CONSECUTIVE: Names = (
    ("last.bias",),
    ("second.bias", "last.weight"),
    ("second.weight", "norm.bias", "norm.weight", "first.bias"),
    ("first.weight",),
)
SCATTERED: Names = (
    ("last.weight", "first.bias"),
    ("second.weight",),
    ("norm.bias", "last.bias", "first.weight"),
    ("norm.weight", "second.bias"),
)
ACROSS: Names = (("c.bias", "c.weight"), ("b.bias", "b.weight"), ("a.bias", "a.weight"))


class Across(nn.Module):
    """Computes in another order than it is listed in."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.b(self.a(self.c(inputs)))
        return outputs


def planned(names: Names, **changes: Any) -> GradientProgram:
    batches = tuple(Batch(tuple(map(Piece, group))) for group in names)
    return replace(GradientProgram(batches), **changes)


def sets(groups: Sequence[Sequence[str]] | None) -> list[set[str]]:
    return [set(group) for group in groups or ()]


def train(
    name: str, names: Names, optimizer: str, options: dict[str, Any]
) -> tuple[list[list[list[str]]], list[list[str]], Weights, Weights]:
    """Return the buckets of each step, what DDP reports, and the weights."""
    plain = ddp_weights(name, optimizer)
    model = make_model(name)
    # All start from the weights of rank 0.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + distributed.get_rank())
    ddp = as_ddp(model, planned(names), **options)
    called = {parameter: name for name, parameter in model.named_parameters()}
    steps: list[list[list[str]]] = []

    def record(
        state: Any,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        steps[-1].append([called[parameter] for parameter in bucket.parameters()])
        return allreduce_hook(state, bucket)

    ddp.register_comm_hook(None, record)
    trained = looped(ddp, optimizer, name, begin=lambda: steps.append([]))
    reported = [list(bucket) for bucket in ddp_buckets(ddp) or ()]
    return steps, reported, trained, plain


def looped(
    ddp: DistributedDataParallel,
    optimizer: str = "sgd",
    name: str = "perceptron",
    begin: Callable[[], None] = lambda: None,
) -> Weights:
    updates = make_optimizer(optimizer, ddp.module)
    for step in range(STEPS):
        begin()
        backward(ddp, name, distributed.get_rank(), step)
        updates.step()
        updates.zero_grad()
    return weights_of(ddp.module)


def in_job(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a job; what uses the job's group is gone when the group is."""
    distributed.init_process_group("gloo")
    try:
        return function(*arguments)
    finally:
        distributed.destroy_process_group()


def train_all() -> list[Any]:
    return [train(*case) for case in cases(distributed.new_group())]


def cases(group: Any = None) -> list[tuple[str, Names, str, dict[str, Any]]]:
    return [
        ("perceptron", CONSECUTIVE, "sgd", {}),
        ("perceptron", CONSECUTIVE, "adam", {"gradient_as_bucket_view": True}),
        ("perceptron", CONSECUTIVE, "adam", {"process_group": group}),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_buckets_are_the_batches_and_weights_those_of_ddp(ranks: int) -> None:
    for value in values(launch(in_job, ranks, train_all)):
        for (_, names, _, _), done in zip(cases(), value, strict=True):
            steps, reported, weights, plain = done
            assert len(steps) == STEPS
            assert [sets(step) for step in steps[1:]] == [sets(names)] * (STEPS - 1)
            assert sets(reported) == sets(names)
            difference = largest_difference(weights, plain)
            assert difference == 0 if ranks == 2 else difference < 1e-5


LATE_FIRST = tuple(CONSECUTIVE[number] for number in (2, 0, 3, 1))
"""Batches that DDP would send in another order."""


def followed() -> Any:
    model, program = make_model("perceptron"), planned(LATE_FIRST)
    caps: Any = ddp_bucket_caps(planned(CONSECUTIVE), model)
    ddp = as_ddp(model, program)
    sent: list[int] = []

    def noted(flat: Tensor, **options: Any) -> Any:
        sent.append(flat.numel())
        return all_reduce(flat, **options)

    all_reduce = distributed.all_reduce
    with mock.patch.object(distributed, "all_reduce", noted):
        weights = looped(ddp)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    order = [sum(sizes[piece.parameter] for piece in batch.pieces) for batch in program.batches]
    # The same buckets: with three ranks the order of sums depends on where in one a gradient lies.
    plain = looped(DistributedDataParallel(make_model("perceptron"), bucket_cap_mb_list=caps))
    other = DistributedDataParallel(make_model("perceptron"))
    follow_order(other, program)
    with pytest.raises(InvalidPlanError, match=r"bucket 0 of DDP is no batch of the plan"):
        looped(other)
    return sent, order, weights, plain


@pytest.mark.parametrize("ranks", [2, 3])
def test_buckets_travel_in_the_order_of_the_plan_and_others_are_refused(ranks: int) -> None:
    for sent, order, weights, plain in values(launch(in_job, ranks, followed)):
        assert len(set(order)) == len(LATE_FIRST)
        assert sent[-len(order) * (STEPS - 1) :] == order * (STEPS - 1)
        assert all(torch.equal(weights[name], plain[name]) for name in plain)


def forward_across() -> tuple[str, str] | list[set[str]]:
    ddp = as_ddp(Across(), planned(ACROSS))
    try:
        for _ in range(4):
            ddp(torch.ones(2, 4)).sum().backward()
    except InvalidPlanError as error:
        return error.path, error.message
    return sets(ddp_buckets(ddp))


def test_an_order_that_ddp_does_not_expect_is_noticed_on_all_ranks() -> None:
    for path, message in values(launch(in_job, 2, forward_across)):
        assert path == "groups[0]"
        assert "in another order than it expects" in message


def test_limits_are_the_sizes_of_batches() -> None:
    model = make_model("perceptron")
    caps = ddp_bucket_caps(planned(CONSECUTIVE), model)
    sizes = [sum(model.get_parameter(name).numel() * 4 for name in group) for group in CONSECUTIVE]
    assert [int(cap * 2**20) for cap in caps] == sizes  # as DDP computes it


def test_pushes_of_a_sharded_program_are_buckets_too() -> None:
    model = make_model("perceptron")
    program = ShardProgram.pushes_first(pulls=(), pushes=planned(CONSECUTIVE).batches)
    assert ddp_bucket_caps(program, model) == ddp_bucket_caps(planned(CONSECUTIVE), model)


def test_frozen_parameters_are_in_no_bucket() -> None:
    model = make_model("perceptron")
    model.get_parameter("second.weight").requires_grad_(False)
    rest = tuple(tuple(name for name in group if name != "second.weight") for group in CONSECUTIVE)
    assert len(ddp_bucket_caps(planned(rest), model)) == len(rest)
    with pytest.raises(InvalidPlanError, match=r"no trainable parameter second\.weight"):
        ddp_bucket_caps(planned(CONSECUTIVE), model)


@pytest.mark.parametrize(
    ("pieces", "path"),
    [
        ([Piece("last.bias", 0, 8), Piece("last.bias", 8, 28)], "groups[0]"),
        ([Piece("last.bias", 0, None), Piece("last.bias", 28, None)], "groups[1]"),
    ],
)
def test_a_cut_parameter_has_no_bucket(pieces: list[Piece], path: str) -> None:
    batches = tuple(Batch((piece,)) for piece in pieces) + planned(CONSECUTIVE[1:]).batches
    with pytest.raises(NotApplicableError, match="expected whole parameters") as caught:
        ddp_bucket_caps(GradientProgram(batches), make_model("perceptron"))
    assert caught.value.path == path


def test_what_cannot_be_expressed_is_refused() -> None:
    model = make_model("perceptron")
    with pytest.raises(NotApplicableError, match=r"has norm\.bias, which is not among the next 3"):
        ddp_bucket_caps(planned(SCATTERED), model)
    with pytest.raises(InvalidPlanError, match=r"first\.weight is not in the plan"):
        as_ddp(model, planned(CONSECUTIVE[:-1]))
    with pytest.raises(NotApplicableError, match="got one of bigdl"):
        as_ddp(model, SliceProgram((), ()))
    for option in ({"bucket_cap_mb": 1}, {"find_unused_parameters": True}):
        with pytest.raises(InvalidInputError, match="expected") as caught:
            as_ddp(model, planned(CONSECUTIVE), **option)
        assert caught.value.path == next(iter(option))
    with pytest.raises(InvalidInputError, match=r"ddp: expected DistributedDataParallel, got Perc"):
        follow_order(model, planned(LATE_FIRST))  # type: ignore[arg-type]
    model.get_submodule("norm").double()
    with pytest.raises(NotApplicableError, match="one type of number"):
        as_ddp(model, planned(CONSECUTIVE))


def test_another_torch_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("perceptron")

    class Older(nn.Module):
        def __init__(self, module: nn.Module, bucket_cap_mb: float | None = None) -> None:
            """Take no list."""

    monkeypatch.setattr(module, "DistributedDataParallel", Older)
    with pytest.raises(PlannerError, match="has no bucket_cap_mb_list"):
        as_ddp(model, planned(CONSECUTIVE))
