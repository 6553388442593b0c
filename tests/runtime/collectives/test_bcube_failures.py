"""What BML's ranks say when they disagree, when a plan is wrong, and when one of them is lost."""

import os
import signal
import time
from itertools import count

import msgspec
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from planner.model.errors import CommunicationError
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.collectives.interpreter import BcubeAllReduce
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from tests.runtime.collectives.test_bcube import TIMEOUT_S, Net, data, optimizer_of, planned, values
from tests.runtime.launching import launch

LONG_S = 12.0


def disagree(kind: str) -> None:
    world = join(TIMEOUT_S)
    odd = world.rank == 2
    try:
        if kind == "network":
            BcubeAllReduce(world, *((4, 1) if odd else (2, 2)))
        else:
            plan = planned(2, 2, "nic", method="trees" if odd else "detour")
            BcubeAllReduce(world, 2, 2, plan)
    finally:
        world.leave()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["network", "plan"])
def test_disagreement_is_found_before_the_first_transfer(kind: str) -> None:
    for outcome in launch(disagree, 4, kind):
        assert outcome.error is not None
        assert outcome.error.type == "DisagreementError"
        assert outcome.error.attributes["ranks"] == (2,)


def wrong_plan() -> None:
    world = join(TIMEOUT_S)
    plan = msgspec.json.decode(planned(2, 1, "nothing"))
    if world.rank:
        plan["plan"]["plan"]["dead"] = [0]
    try:
        BcubeAllReduce(world, 2, 1, plan)
    finally:
        world.leave()


@pytest.mark.slow
def test_a_wrong_plan_on_one_rank_ends_all() -> None:
    first, second = launch(wrong_plan, 2)
    assert second.error is not None
    assert second.error.type == "InvalidPlanError"
    assert first.error is not None
    assert first.error.type == "CommunicationError"
    assert "rank 1 stopped" in first.error.text


def sum_for_ever(bcube: BcubeAllReduce, tensor: Tensor) -> None:
    while True:
        bcube.all_reduce(tensor)


def lose(how: str, timeout_s: float) -> tuple[str, tuple[int, ...], float, str]:
    world = join(timeout_s)
    bcube = BcubeAllReduce(world, 2, 2)
    tensor = torch.ones(300_000)
    bcube.all_reduce(tensor)
    if world.rank == 3:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(2 * timeout_s)  # away, though its watch answers
        return "", (), 0, ""
    begin = time.monotonic()
    with pytest.raises(CommunicationError) as failed:
        sum_for_ever(bcube, tensor)
    took = time.monotonic() - begin
    with pytest.raises(CommunicationError):
        bcube.all_reduce(tensor)
    bcube.close()
    world.leave()
    return str(failed.value), failed.value.peers, took, bcube.name


@pytest.mark.slow
def test_a_killed_rank_is_named_on_all_others() -> None:
    outcomes = launch(lose, 4, "killed", LONG_S)
    assert outcomes[3].exit_code == -signal.SIGKILL
    for text, peers, took, _ in values(outcomes[:3]):
        assert peers == (3,)
        assert "rank 3 does not answer" in text
        assert "level" in text
        assert took < LONG_S  # long before the time-out


@pytest.mark.slow
def test_a_rank_that_stays_away_is_named_with_the_level() -> None:
    outcomes = launch(lose, 4, "away", 3.0)
    for text, peers, _, _ in values(outcomes[:3]):
        assert "level" in text
        assert len(peers) == 1


def train_until_killed(executor: GradientExecutor, model: Net, rank: int) -> None:
    for step in count():
        if step == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = data(rank, step)
        nn.functional.mse_loss(model(inputs), targets).backward()
        executor.step()


def fails_while_training() -> tuple[str, tuple[int, ...]]:
    world = join(TIMEOUT_S / 3)  # a roll call takes half of it
    bcube = BcubeAllReduce(world, 2, 2)
    model = Net()
    names = [name for name, _ in model.named_parameters()]
    program = GradientProgram((Batch(tuple(map(Piece, names))),))
    optimizer = optimizer_of("sgd", model)
    executor = GradientExecutor(model, program, optimizer, world, all_reduce=bcube)
    with pytest.raises(CommunicationError) as failed:
        train_until_killed(executor, model, world.rank)
    executor.close()
    bcube.close()
    world.leave()
    return str(failed.value), failed.value.peers


@pytest.mark.slow
def test_a_rank_killed_in_training_is_named() -> None:
    outcomes = launch(fails_while_training, 4)
    for rank in (0, 2, 3):
        text, peers = values([outcomes[rank]])[0]
        assert peers == (1,)
        assert "rank 1 does not answer" in text
