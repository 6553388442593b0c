"""Ranks that never arrive or disagree, plans that do not fit: refused on every rank, and why."""

import os
import time

import pytest

pytest.importorskip("torch")


from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.executors.gradients import GradientExecutor
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
        elif case == "unknown":
            program = GradientProgram((*PROGRAM.batches, Batch((Piece("lost.weight"),))))
        elif case == "size":
            last = Batch(PROGRAM.batches[0].pieces, 64)
            program = GradientProgram((last, *PROGRAM.batches[1:]))
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


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("absent", "groups: the model's last.weight is not in the plan, or not wholly"),
        ("unknown", "groups[3]: the model has no trainable parameter lost.weight"),
        ("size", "groups[0]: 64 bytes are planned"),
    ],
)
def test_a_plan_does_not_fit_the_model(case: str, text: str) -> None:
    for outcome in launch(build, 3, case, timeout_s=LIMIT_S):
        assert text in failed(outcome, "InvalidPlanError").text


def train_skipping(ranks: tuple[int, ...]) -> None:
    with join(TIMEOUT_S) as world:
        model = net(skip_middle=world.rank in ranks)
        with GradientExecutor(model, PROGRAM, sgd(model), world) as executor:
            backward(model, world.rank, 0)
            executor.step()


@pytest.mark.parametrize("ranks", [(1,), (0, 1, 2)])
def test_a_parameter_gets_no_gradient(ranks: tuple[int, ...]) -> None:
    for outcome in launch(train_skipping, 3, ranks, timeout_s=LIMIT_S):
        error = failed(outcome)
        assert error.attributes["step"] == 0
        assert error.attributes["batch"] == 1
        (peer,) = error.attributes["peers"]
        assert peer in ranks
        assert f"step 0, batch 1: rank {peer} stopped: middle.weight got no gradient" in error.text
