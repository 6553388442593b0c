"""Ranks that never arrive or disagree, plans that do not fit: refused on every rank, and why."""

import os
import time

import pytest
import torch
from torch import nn

from planner.model.errors import InvalidPlanError
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.model.parameters import check_cover
from planner.runtime.world.joining import join
from tests.runtime.faulty import LIMIT_S, PROGRAM, TIMEOUT_S, adam, backward, failed, net, sgd
from tests.runtime.launching import launch


def arrive(ranks: int, absent: int) -> None:
    os.environ["WORLD_SIZE"] = str(ranks)
    if int(os.environ["RANK"]) == absent:
        return
    if os.environ["RANK"] == "1":
        time.sleep(TIMEOUT_S / 3)
    join(TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "absent", "text"),
    [
        (4, 3, "rank 3 did not arrive within 3 s"),
        (5, 3, "ranks 3, 4 did not arrive within 3 s"),
        (3, 0, "found nobody at"),
    ],
)
def test_a_rank_never_arrives(ranks: int, absent: int, text: str) -> None:
    outcomes = launch(arrive, 3, ranks, absent, timeout_s=LIMIT_S)
    for outcome in outcomes:
        if outcome.rank != absent:
            error = failed(outcome)
            assert text in error.text
            assert error.attributes["peers"] == ((0,) if absent == 0 else tuple(range(3, ranks)))


def build(case: str) -> None:
    """Attach with something that does not fit, on some ranks or on all; nobody waits for it."""
    with join() as world:
        odd = world.rank == 1
        model, program = net(), PROGRAM
        optimizer = sgd(model)
        if odd and case == "plan":
            program = GradientProgram(PROGRAM.batches[::-1])
        elif odd and case == "width":
            model = net(width=9)
            optimizer = sgd(model)
        elif odd and case == "name":
            model.end = model.last
            del model.last
        elif odd and case == "optimiser":
            optimizer = adam(model)
        elif odd and case == "rate":
            optimizer.param_groups[0]["lr"] = 0.2
        elif odd and case == "state":
            backward(model, 0, 0)
            optimizer.step()
        elif case == "absent":
            program = GradientProgram(PROGRAM.batches[1:])
        GradientExecutor(model, program, optimizer, world)


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("plan", "the plan"),
        ("width", "the model's parameters"),
        ("name", "the model's parameters"),
        ("optimiser", "the optimiser and its settings"),
        ("rate", "the optimiser and its settings"),
        ("state", "the optimiser's state"),
    ],
)
def test_ranks_disagree(case: str, what: str) -> None:
    for outcome in launch(build, 3, case, timeout_s=LIMIT_S):
        error = failed(outcome, "DisagreementError")
        assert error.attributes["ranks"] == (1,)
        assert error.text == f"the ranks do not agree on {what}: rank 1 differs from rank 0"


def test_a_plan_that_does_not_fit_is_refused_on_all_ranks() -> None:
    text = "groups: the model's last.weight is not in the plan, or not wholly"
    for outcome in launch(build, 3, "absent", timeout_s=LIMIT_S):
        assert text in failed(outcome, "InvalidPlanError").text


@pytest.mark.parametrize(
    ("pieces", "size", "path", "message"),
    [
        ([Piece("a")], None, "groups", "the model's b is not in the plan, or not wholly"),
        ([Piece("a"), Piece("b", 0, 8)], None, "groups", "the model's b is not in the plan, or"),
        ([Piece("a"), Piece("b", 4)], None, "groups", "some bytes of b are not sent"),
        ([Piece("a"), Piece("b"), Piece("b", 8)], None, "groups", "some bytes of b are sent twice"),
        ([Piece("a"), Piece("b", 0, 8), Piece("b", 4)], None, "groups", "of b are sent twice"),
        ([Piece("a"), Piece("c")], None, "groups[0]", "the model has no trainable parameter c"),
        ([Piece("a"), Piece("b")], 64, "groups[0]", "64 bytes are planned for 'a, b', the model"),
        ([Piece("a", 0, 6)], None, "a", "cut inside an element of 4 bytes: plan with element_by"),
        ([Piece("a", 6)], None, "a", "cut inside an element of 4 bytes: plan with element_bytes"),
        ([Piece("a", 8, 20)], None, "a", "no bytes [8, 20) in a parameter of 16"),
        ([Piece("a", 8, 8)], None, "a", "no bytes [8, 8) in a parameter of 16"),
    ],
)
def test_batches_that_do_not_carry_everything_once(
    pieces: list[Piece], size: int | None, path: str, message: str
) -> None:
    parameters = {name: nn.Parameter(torch.zeros(count)) for name, count in (("a", 4), ("b", 5))}
    with pytest.raises(InvalidPlanError) as error:
        check_cover([Batch(tuple(pieces), size)], parameters, "groups")
    assert error.value.path == path
    assert message in str(error.value)
