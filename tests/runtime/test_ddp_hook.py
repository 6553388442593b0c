"""Hooks of DDP: the order in which buckets travel, what is noted, and the weights at the end."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime import audit, follow_order
from planner.runtime.ddp import as_ddp, ddp_bucket_caps
from tests.runtime.launching import launch
from tests.runtime.reference import (
    STEPS,
    backward,
    ddp_weights,
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
    ddp = DistributedDataParallel(model, bucket_cap_mb_list=caps)
    seen = follow_order(ddp, program)
    weights = trained(ddp)
    orders = [[row.batch for row in seen.of(step)] for step in seen.steps]
    figures = seen.share_as_planned(2), seen.out_of_order(2), min(r.arrived_ns for r in seen.rows)
    # The same buckets: with three ranks the order of sums depends on where in one a gradient lies.
    plain = trained(DistributedDataParallel(make_model("perceptron"), bucket_cap_mb_list=caps))
    return orders, figures, weights, plain


@pytest.mark.parametrize("ranks", [2, 3])
def test_buckets_travel_in_the_order_of_the_plan_and_weights_are_those_of_ddp(ranks: int) -> None:
    for outcome in launch(in_job, ranks, followed):
        assert outcome.error is None, outcome.error.trace
        orders, (share, swapped, arrived_ns), weights, plain = outcome.value
        assert orders[1:] == [[0, 1, 2, 3]] * (STEPS - 1)
        assert (share, swapped) == (1.0, 0)
        assert arrived_ns > 0
        assert all(torch.equal(weights[name], plain[name]) for name in plain)


def audited() -> Any:
    ddp = as_ddp(make_model("perceptron"), planned((0, 1, 2, 3)))
    seen = audit(ddp, planned(LATE_FIRST))
    seen.keep = 1
    weights = trained(ddp)
    orders = {step: [row.batch for row in seen.of(step)] for step in seen.steps}
    return (
        orders,
        seen.out_of_order(2),
        seen.share_as_planned(2),
        weights,
        ddp_weights("perceptron"),
    )


def test_an_audit_changes_nothing_and_says_what_travelled_the_other_way_round() -> None:
    for outcome in launch(in_job, 2, audited):
        assert outcome.error is None, outcome.error.trace
        orders, swapped, share, weights, plain = outcome.value
        assert orders == {1: [1, 3, 0, 2], 2: [1, 3, 0, 2]}  # their numbers in the plan
        assert (swapped, share) == (3, 1.0)
        assert all(torch.equal(weights[name], plain[name]) for name in plain)


def other_buckets(in_order: bool) -> Any:
    ddp = DistributedDataParallel(make_model("perceptron"))
    seen = (follow_order if in_order else audit)(ddp, planned(LATE_FIRST))
    trained(ddp)
    return [row.batch for row in seen.of(1)], seen.share_as_planned(1)


def followed_in_other_buckets() -> Any:
    with pytest.raises(InvalidPlanError, match=r"bucket 0 of DDP is no batch of the plan"):
        other_buckets(in_order=True)


def test_other_buckets_than_the_plan_has_are_refused_or_noted() -> None:
    for outcome in launch(in_job, 2, other_buckets, False):
        assert outcome.value == ([None], 0.0), outcome.error
    for outcome in launch(in_job, 2, followed_in_other_buckets):
        assert outcome.error is None, outcome.error.trace


def test_a_model_that_is_not_under_ddp_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"ddp: expected DistributedDataParallel, got Perc"):
        audit(make_model("perceptron"), planned(LATE_FIRST))  # type: ignore[arg-type]
