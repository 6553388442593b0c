"""Ranks that die, hang, leave or are cut off: all others end, with the reason, in time.

A launch fails by itself if a process does not end within `LIMIT_S`.
"""

import ctypes
import signal
import sys

import pytest
from torch import Tensor

from planner.model.errors import PlannerError
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from tests.runtime.faulty import (
    BAD_BATCH,
    BAD_STEP,
    LIMIT_S,
    PROGRAM,
    STEPS,
    TIMEOUT_S,
    Fault,
    backward,
    check,
    close_to,
    end,
    expected,
    failed,
    net,
    sgd,
    store_of_a_launcher,
    strike,
    train,
)
from tests.runtime.launching import launch

NOT_THERE = "rank {} does not answer: it was killed, has ended, hangs or is cut off"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "ranks", "batches"),
    [
        ("forward", (1,), {0}),
        ("backward", (2,), {0}),
        ("transfer", (1,), {BAD_BATCH}),
        ("transfer", (1, 2), {BAD_BATCH}),
    ],
)
def test_a_rank_is_killed(phase: str, ranks: tuple[int, ...], batches: set[int | None]) -> None:
    fault = Fault("kill", ranks, phase)
    check(launch(train, 4, fault, timeout_s=LIMIT_S), fault, NOT_THERE, batches)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["backward", "transfer"])
def test_the_rank_that_holds_the_store_is_killed(phase: str) -> None:
    fault = Fault("kill", (0,), phase)
    # Who is in no transfer at that moment names none.
    batches = {None, 0, BAD_BATCH}
    text = "the job's store cannot be reached: rank {}"
    check(launch(train, 3, fault, timeout_s=LIMIT_S), fault, text, batches)


@pytest.mark.slow
def test_rank_0_is_killed_and_a_launcher_holds_the_store() -> None:
    fault = Fault("kill", (0,), "transfer")
    with store_of_a_launcher() as port:
        outcomes = launch(train, 3, fault, port, timeout_s=LIMIT_S)
    check(outcomes, fault, NOT_THERE, {BAD_BATCH})


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_process_is_stopped(rank: int) -> None:
    fault = Fault("stop", (rank,), "transfer")
    outcomes = launch(train, 3, fault, timeout_s=LIMIT_S, meanwhile=end(rank))
    text = NOT_THERE if rank else "the job's store cannot be reached: rank {}"
    check(outcomes, fault, text, {BAD_BATCH})


def stop_and_attach(rank: int) -> None:
    model = net()
    with join(TIMEOUT_S) as world:
        if world.rank == rank:
            strike("stop", world)
        GradientExecutor(model, PROGRAM, sgd(model), world)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_process_is_stopped_before_the_first_step(rank: int) -> None:
    outcomes = launch(stop_and_attach, 3, rank, timeout_s=LIMIT_S, meanwhile=end(rank))
    for outcome in outcomes:
        if outcome.rank != rank:
            error = failed(outcome)
            assert error.attributes["peers"] == (rank,)
            assert ("the job's store cannot be reached" if rank == 0 else "rank 2") in error.text


@pytest.mark.slow
@pytest.mark.emulated
@pytest.mark.parametrize("rank", [0, 1])
def test_a_link_is_cut(rank: int) -> None:
    from emulated_hosts import Layout
    from emulated_network import cluster

    fault = Fault("cut", (rank,), "transfer")
    with cluster(Layout.flat(3), 50_000_000) as hosts:
        outcomes = launch(train, 3, fault, timeout_s=LIMIT_S, hosts=hosts)
    check(outcomes, fault, "interface eth0 of rank {} is down", {BAD_BATCH})


@pytest.mark.slow
def test_a_rank_hangs_in_its_own_code() -> None:
    fault = Fault("hang", (1,))
    check(
        launch(train, 3, fault, timeout_s=LIMIT_S),
        fault,
        "rank {} has not begun this transfer: it still computes or hangs",
        {0},
    )


def test_an_exception_reaches_all_ranks() -> None:
    text = "rank {} stopped: ValueError: no such picture"
    fault = Fault("raise", (1,))
    check(launch(train, 3, fault, timeout_s=LIMIT_S), fault, text, {None})


def test_an_exception_in_a_transfer_reaches_all_ranks() -> None:
    fault = Fault("raise", (1,), "transfer")
    outcomes = launch(train, 3, fault, timeout_s=LIMIT_S)
    text = "rank {} stopped: ValueError: no such picture"
    check([outcomes[0], outcomes[2]], fault, text, {BAD_BATCH})
    assert outcomes[1].error is not None
    assert "no such picture" in outcomes[1].error.text


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_exits_early(rank: int) -> None:
    fault = Fault("exit", (rank,))
    check(launch(train, 3, fault, timeout_s=LIMIT_S), fault, "rank {} has left the job", {0})


def train_for(steps: tuple[int, ...]) -> dict[str, Tensor]:
    model = net()
    with join(TIMEOUT_S) as world, GradientExecutor(model, PROGRAM, sgd(model), world) as executor:
        for step in range(steps[world.rank]):
            backward(model, world.rank, step)
            executor.step()
    return model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("short", [0, 2])
def test_ranks_do_different_numbers_of_steps(short: int) -> None:
    steps = [STEPS] * 3
    steps[short] = BAD_STEP
    outcomes = launch(train_for, 3, tuple(steps), timeout_s=LIMIT_S)
    assert close_to(outcomes[short].value, expected(3, steps=BAD_STEP))
    others = [outcome for outcome in outcomes if outcome.rank != short]
    check(others, Fault("leave", (short,)), "rank {} has left the job", {0})


def train_and_wind_up(fault: Fault) -> None:
    """End as a script does, unlike the workers of `launch`, which leave threads as they are."""
    try:
        train(fault)
    except (PlannerError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.stdout.flush()
        ctypes.pythonapi.Py_Exit(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "phase", "rank"),
    [("raise", "forward", 1), ("raise", "transfer", 1), ("kill", "backward", 2), ("stop", "", 0)],
)
def test_the_interpreter_ends_by_itself(what: str, phase: str, rank: int) -> None:
    fault = Fault(what, (rank,), phase or "forward")
    meanwhile = end(rank) if what == "stop" else None
    outcomes = launch(train_and_wind_up, 3, fault, timeout_s=LIMIT_S, meanwhile=meanwhile)
    for outcome in outcomes:
        dies = outcome.rank == rank and what != "raise"
        assert outcome.exit_code == (-signal.SIGKILL if dies else 3), outcome.output
        if outcome.rank != rank:
            assert f"CommunicationError: step {BAD_STEP}" in outcome.output
            assert f"rank {rank}" in outcome.output
