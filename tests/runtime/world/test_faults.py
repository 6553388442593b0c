"""Ranks that die, hang, leave or are cut off: all others end, with the reason, in time.

A launch fails by itself if a process does not end within `LIMIT_S`. What can be read after a fault
is of one step, and training goes on from the last checkpoint.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from planner.model.errors import CommunicationError, PlannerError
from planner.programs import ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.world.joining import join
from tests.runtime.faulty import (
    BAD_BATCH,
    BAD_STEP,
    LIMIT_S,
    PROGRAM,
    STEPS,
    TIMEOUT_S,
    Fault,
    Net,
    Spied,
    Twice,
    adam,
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
from tests.runtime.launching import launch, values

NOT_THERE = "rank {} does not answer: it was killed, has ended, hangs or is cut off"
NO_STORE = "the job's store cannot be reached: rank {}"
RAISED = "rank {} stopped: ValueError: no such picture"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "fault", "text", "batches"),
    [
        (4, Fault("kill", (1,)), NOT_THERE, {0}),
        (4, Fault("kill", (2,), "backward"), NOT_THERE, {0}),
        (4, Fault("kill", (1,), "transfer"), NOT_THERE, {BAD_BATCH}),
        (4, Fault("kill", (1, 2), "transfer"), NOT_THERE, {BAD_BATCH}),
        # Who is in no transfer at that moment names none.
        (3, Fault("kill", (0,), "backward"), NO_STORE, {None, 0, BAD_BATCH}),
        (3, Fault("kill", (0,), "transfer"), NO_STORE, {None, 0, BAD_BATCH}),
        (3, Fault("stop", (0,), "transfer"), NO_STORE, {BAD_BATCH}),
        (3, Fault("stop", (2,), "transfer"), NOT_THERE, {BAD_BATCH}),
        (3, Fault("hang", (1,)), "rank {} has not begun this transfer: it still computes or", {0}),
        (3, Fault("raise", (1,)), RAISED, {None}),
        (3, Fault("raise", (1,), "transfer"), RAISED, {BAD_BATCH}),
        (3, Fault("exit", (0,)), "rank {} has left the job", {0}),
        (3, Fault("exit", (1,)), "rank {} has left the job", {0}),
    ],
    ids=str,
)
def test_all_others_end_with_the_reason(
    size: int, fault: Fault, text: str, batches: set[int | None]
) -> None:
    """Where rank 0 holds the store, nobody reaches that any more."""
    meanwhile = end(fault.ranks[0]) if fault.what == "stop" else None
    outcomes = launch(train, size, fault, timeout_s=LIMIT_S, meanwhile=meanwhile)
    if (fault.what, fault.phase) == ("raise", "transfer"):
        struck = outcomes.pop(1)
        assert struck.error is not None
        assert "no such picture" in struck.error.text
    check(outcomes, fault, text, batches)


@pytest.mark.slow
def test_rank_0_is_killed_and_a_launcher_holds_the_store() -> None:
    fault = Fault("kill", (0,), "transfer")
    with store_of_a_launcher() as port:
        outcomes = launch(train, 3, fault, port, timeout_s=LIMIT_S)
    check(outcomes, fault, NOT_THERE, {BAD_BATCH})


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
            assert (NO_STORE.format(0) if rank == 0 else "rank 2") in error.text


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


def train_for(steps: Sequence[int], kind: type[nn.Module] = Net) -> dict[str, Tensor]:
    """Train for a number of steps that depends on the rank."""
    model = net(kind)
    with join(TIMEOUT_S) as world, GradientExecutor(model, PROGRAM, sgd(model), world) as executor:
        for step in range(steps[world.rank]):
            backward(model, world.rank, step)
            executor.step()
    return model.state_dict()


def test_a_layer_used_twice_is_summed_up_once() -> None:
    for weights in values(launch(train_for, 3, [STEPS] * 3, Twice, timeout_s=LIMIT_S)):
        assert close_to(weights, expected(3, Twice))


@pytest.mark.slow
@pytest.mark.parametrize("short", [0, 2])
def test_ranks_do_different_numbers_of_steps(short: int) -> None:
    steps = [STEPS] * 3
    steps[short] = BAD_STEP
    outcomes = launch(train_for, 3, steps, timeout_s=LIMIT_S)
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


def ended(read: Callable[[], object]) -> str:
    """Return how a call ended."""
    try:
        read()
    except Exception as error:  # noqa: BLE001 - the test compares its name
        return type(error).__name__
    return "read"


def read_after_a_fault() -> list[str]:
    """Fail while some parameters are updated and others not; tell how each look at them ended."""
    model, events = net(), list[str]()
    optimizer = sgd(model)
    with join(TIMEOUT_S) as world:
        batches = count()

        def struck() -> None:
            if next(batches) == len(PROGRAM.batches) + BAD_BATCH and world.rank == 1:
                strike("kill", world)

        executor = GradientExecutor(model, PROGRAM, optimizer, world, Spied(world, struck))
        for step in range(2):
            events.append(ended(model.state_dict))
            backward(model, world.rank, step)
            executor.step()
        looks: list[Callable[[], object]] = [model.state_dict, optimizer.state_dict]
        events += map(ended, [executor.finish, *looks])
        executor.close()
        events += map(ended, [*looks, lambda: model(torch.ones(1, 5))])
    return events


@pytest.mark.slow
def test_weights_of_different_steps_cannot_be_read() -> None:
    outcomes = launch(read_after_a_fault, 3, timeout_s=LIMIT_S)
    for rank in (0, 2):
        assert outcomes[rank].value == ["read"] * 2 + ["CommunicationError"] * 6


def train_with_checkpoints(file: Path, fault_at: int | None) -> int:
    """Train from the last checkpoint on; return the step it was of."""
    model = net()
    optimizer, begin = adam(model), 0
    if file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["step"]
    with join(TIMEOUT_S) as world, GradientExecutor(model, PROGRAM, optimizer, world) as executor:
        assert isinstance(model, Net)
        for step in range(begin, STEPS):
            if world.rank == 1 and step == fault_at:
                model.in_backward = lambda: strike("kill", world)
            backward(model, world.rank, step)
            executor.step()
            if world.rank == 0:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**states, "step": step + 1}, file.with_suffix(".new"))
                file.with_suffix(".new").replace(file)
    return begin


@pytest.mark.slow
def test_the_last_checkpoint_is_usable(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    outcomes = launch(train_with_checkpoints, 3, file, 3, timeout_s=LIMIT_S)
    assert [outcome.exit_code for outcome in outcomes] == [1, -signal.SIGKILL, 1]
    assert torch.load(file)["step"] == 3
    outcomes = launch(train_with_checkpoints, 3, file, None, timeout_s=LIMIT_S)
    assert [outcome.value for outcome in outcomes] == [3] * 3
    assert close_to(torch.load(file)["model"], expected(3, make=adam))


def end_after_a_fault(sharded: bool, way: str) -> tuple[str, bool]:
    """Take a last step in which a rank dies; return how it ended, and whether that was known."""
    model = net()
    assert isinstance(model, Net)
    with join(TIMEOUT_S) as world:
        shards = ShardProgram.pushes_first(PROGRAM.batches[::-1], PROGRAM.batches)
        executor: Executor = (
            ShardExecutor(model, shards, sgd(model), world)
            if sharded
            else GradientExecutor(model, PROGRAM, sgd(model), world)
        )
        known = False

        def end() -> None:
            nonlocal known
            with executor:
                for step in range(2):
                    if (world.rank, step) == (1, 1):
                        model.in_backward = lambda: strike("kill", world)
                    backward(model, world.rank, step)
                    executor.step()
                strike("hang", world)
                known = True
                if way == "raise":
                    raise ValueError("of the loop's own")
                if way == "told":
                    with pytest.raises(CommunicationError, match="rank 1 does not answer"):
                        executor.finish()
                if way in ("close", "told"):
                    executor.close()
                    executor.close()

        return ended(end), known


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    ("way", "heard"),
    [
        ("leave", "CommunicationError"),
        ("close", "CommunicationError"),
        ("told", "read"),
        ("raise", "ValueError"),
    ],
)
def test_whoever_ends_after_the_last_step_hears_of_a_fault_once(
    way: str, heard: str, sharded: bool
) -> None:
    outcomes = launch(end_after_a_fault, 3, sharded, way, timeout_s=LIMIT_S)
    for rank in (0, 2):
        assert outcomes[rank].value == (heard, True), outcomes[rank].error


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
