"""Hooks of DDP: the order in which buckets travel, and the weights at the end."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime import follow_order
from planner.runtime.ddp import as_ddp, ddp_bucket_caps
from tests.runtime.launching import launch
from tests.runtime.reference import (
    STEPS,
    backward,
    make_model,
    make_optimizer,
    weights_of,
)

NAMES = (
    ("last.bias", "last.weight"),
    ("second.bias", "second.weight"),
    ("norm.bias", "norm.weight", "first.bias"),
    ("first.weight",),
)
"""Consecutive in DDP's own order."""
LATE_FIRST = (2, 0, 3, 1)
"""In which order they travel."""


def planned(order: tuple[int, ...], names: tuple[tuple[str, ...], ...] = NAMES) -> Any:
    return GradientProgram(tuple(Batch(tuple(map(Piece, names[number]))) for number in order))


def trained(ddp: DistributedDataParallel) -> Any:
    updates = make_optimizer("sgd", ddp.module)
    for step in range(STEPS):
        backward(ddp, "perceptron", distributed.get_rank(), step)
        updates.step()
        updates.zero_grad()
    return weights_of(ddp.module)


def in_job(function: Any, *arguments: Any) -> Any:
    distributed.init_process_group("gloo")
    try:
        return function(*arguments)
    finally:
        distributed.destroy_process_group()


def followed() -> Any:
    model, program = make_model("perceptron"), planned(LATE_FIRST)
    caps: Any = ddp_bucket_caps(planned((0, 1, 2, 3)), model)
    ddp = as_ddp(model, program)
    sent: list[int] = []

    def noted(flat: Tensor, **options: Any) -> Any:
        sent.append(flat.numel())
        return all_reduce(flat, **options)

    all_reduce = distributed.all_reduce
    distributed.all_reduce = noted  # type: ignore[assignment]
    try:
        weights = trained(ddp)
    finally:
        distributed.all_reduce = all_reduce
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    order = [sum(sizes[piece.parameter] for piece in batch.pieces) for batch in program.batches]
    # The same buckets: with three ranks the order of sums depends on where in one a gradient lies.
    plain = trained(DistributedDataParallel(make_model("perceptron"), bucket_cap_mb_list=caps))
    return sent, order, weights, plain


@pytest.mark.parametrize("ranks", [2, 3])
def test_buckets_travel_in_the_order_of_the_plan_and_weights_are_those_of_ddp(ranks: int) -> None:
    for outcome in launch(in_job, ranks, followed):
        assert outcome.error is None, outcome.error.trace
        sent, order, weights, plain = outcome.value
        assert len(set(order)) == len(NAMES)
        assert sent[-len(order) * (STEPS - 1) :] == order * (STEPS - 1)
        assert all(torch.equal(weights[name], plain[name]) for name in plain)


def followed_in_other_buckets() -> Any:
    ddp = DistributedDataParallel(make_model("perceptron"))
    follow_order(ddp, planned(LATE_FIRST))
    with pytest.raises(InvalidPlanError, match=r"bucket 0 of DDP is no batch of the plan"):
        trained(ddp)


def test_other_buckets_than_the_plan_has_are_refused() -> None:
    for outcome in launch(in_job, 2, followed_in_other_buckets):
        assert outcome.error is None, outcome.error.trace


def test_a_model_that_is_not_under_ddp_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"ddp: expected DistributedDataParallel, got Perc"):
        follow_order(make_model("perceptron"), planned(LATE_FIRST))  # type: ignore[arg-type]
