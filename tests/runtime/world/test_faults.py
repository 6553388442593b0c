"""Ranks that die, hang, leave or are cut off: all others end, with the reason, in time.

A launch fails by itself if a process does not end within `LIMIT_S`. What can be read after a fault
is of one step, and training goes on from the last checkpoint.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from planner.model.errors import CommunicationError, PlannerError
from planner.programs import Batch, GradientProgram, Piece, ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.faulty import LIMIT_S, TIMEOUT_S, Spied, end, strike
from tests.runtime.launching import Outcome, launch
from tests.runtime.reference import backward, make_inputs, make_model, make_optimizer

STEPS = 4
BAD_STEP = 2
BAD_BATCH = 1
NAME = "perceptron"
PROGRAM = GradientProgram(
    tuple(
        Batch((Piece(f"{layer}.weight"), Piece(f"{layer}.bias")))
        for layer in ("last", "second", "norm", "first")
    )
)


@dataclass(frozen=True)
class Fault:
    """What happens to which ranks, and in which phase of step `BAD_STEP`."""

    what: str
    ranks: tuple[int, ...]
    phase: str = "forward"


def during(phase: str, model: nn.Module, act: Callable[[], object]) -> None:
    """Do something in the middle of the next forward or backward pass."""

    def before_last(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        inputs[0].register_hook(lambda _: act())

    if phase == "forward":
        model.get_submodule("second").register_forward_pre_hook(lambda *_: act())
    elif phase == "backward":
        model.get_submodule("last").register_forward_pre_hook(before_last)


def attached(
    world: World, model: nn.Module, before: Callable[[], object] | None = None
) -> GradientExecutor:
    """Return an executor; something may be done in the middle of each transfer."""
    spied = None if before is None else Spied(world, before)
    return GradientExecutor(model, PROGRAM, make_optimizer("sgd", model), world, spied)


def train(fault: Fault, store: int | None = None) -> None:
    """Train, while something happens to some ranks."""
    if store is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        os.environ["MASTER_PORT"] = str(store)
    model, batches = make_model(NAME), count()
    with join(TIMEOUT_S) as world:
        what, phase = (fault.what, fault.phase) if world.rank in fault.ranks else ("", "")

        def struck() -> None:
            if next(batches) == len(PROGRAM.batches) * BAD_STEP + BAD_BATCH:
                strike(what, world)

        spied = struck if phase == "transfer" else lambda: None
        with attached(world, model, spied) as executor:
            for step in range(STEPS):
                if step == BAD_STEP:
                    during(phase, model, lambda: strike(what, world))
                backward(model, NAME, world.rank, step)
                executor.step()


def expected(ranks: int, steps: int, kind: str = "sgd") -> dict[str, Tensor]:
    """Return the weights after training in one process, with the gradients of all ranks."""
    model = make_model(NAME)
    optimizer = make_optimizer(kind, model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(ranks):
            backward(model, NAME, rank, step)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= ranks
        optimizer.step()
    return model.state_dict()


def close_to(weights: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return weights.keys() == others.keys() and all(
        torch.allclose(value, others[name], rtol=1e-4, atol=1e-6) for name, value in weights.items()
    )


def failed(outcome: Outcome, kind: str = "CommunicationError") -> Any:
    """Return the error of a rank that ended by itself."""
    assert outcome.exit_code == 1, outcome.output
    assert outcome.error is not None
    assert outcome.error.type == kind, outcome.error.trace
    return outcome.error


def check(outcomes: Sequence[Outcome], fault: Fault, text: str, batches: set[int | None]) -> None:
    """Check that all ranks but the struck ones name them, the step, and one of the batches."""
    for outcome in outcomes:
        if outcome.rank in fault.ranks and fault.what in ("kill", "stop", "exit"):
            assert outcome.exit_code == (0 if fault.what == "exit" else -signal.SIGKILL)
            continue
        if outcome.rank in fault.ranks and fault.what == "raise" and fault.phase != "transfer":
            assert failed(outcome, "ValueError").text == "no such picture"
            continue
        error = failed(outcome)
        assert error.attributes["peers"] == fault.ranks, error.text
        assert error.attributes["step"] == BAD_STEP, error.text
        assert error.attributes["batch"] in batches, error.text
        assert error.text.startswith(f"step {BAD_STEP}"), error.text
        for rank in fault.ranks:
            assert text.format(rank) in error.text
        assert "\n" not in error.text


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
def test_rank_0_is_killed_and_a_launcher_holds_the_store(store: int) -> None:
    fault = Fault("kill", (0,), "transfer")
    outcomes = launch(train, 3, fault, store, timeout_s=LIMIT_S)
    check(outcomes, fault, NOT_THERE, {BAD_BATCH})


def stop_and_attach(rank: int) -> None:
    with join(TIMEOUT_S) as world:
        if world.rank == rank:
            strike("stop", world)
        attached(world, make_model(NAME))


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


def train_for(steps: Sequence[int]) -> dict[str, Tensor]:
    """Train for a number of steps that depends on the rank."""
    model = make_model(NAME)
    with join(TIMEOUT_S) as world, attached(world, model) as executor:
        for step in range(steps[world.rank]):
            backward(model, NAME, world.rank, step)
            executor.step()
    return model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("short", [0, 2])
def test_ranks_do_different_numbers_of_steps(short: int) -> None:
    steps = [STEPS] * 3
    steps[short] = BAD_STEP
    outcomes = launch(train_for, 3, steps, timeout_s=LIMIT_S)
    assert close_to(outcomes[short].value, expected(3, BAD_STEP))
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
    model, events, batches = make_model(NAME), list[str](), count()
    with join(TIMEOUT_S) as world:

        def struck() -> None:
            if next(batches) == len(PROGRAM.batches) + BAD_BATCH and world.rank == 1:
                strike("kill", world)

        executor = attached(world, model, struck)
        for step in range(2):
            events.append(ended(model.state_dict))
            backward(model, NAME, world.rank, step)
            executor.step()
        looks: list[Callable[[], object]] = [model.state_dict, executor.optimizer.state_dict]
        events += map(ended, [executor.finish, *looks])
        executor.close()
        events += map(ended, [*looks, lambda: model(make_inputs(NAME, 0, 0))])
    return events


@pytest.mark.slow
def test_weights_of_different_steps_cannot_be_read() -> None:
    outcomes = launch(read_after_a_fault, 3, timeout_s=LIMIT_S)
    for rank in (0, 2):
        assert outcomes[rank].value == ["read"] * 2 + ["CommunicationError"] * 6


def train_with_checkpoints(file: Path, fault_at: int | None) -> int:
    """Train from the last checkpoint on; return the step it was of."""
    model, begin = make_model(NAME), 0
    optimizer = make_optimizer("adam", model)
    if file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["step"]
    with join(TIMEOUT_S) as world, GradientExecutor(model, PROGRAM, optimizer, world) as executor:
        for step in range(begin, STEPS):
            if world.rank == 1 and step == fault_at:
                during("backward", model, lambda: strike("kill", world))
            backward(model, NAME, world.rank, step)
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
    assert close_to(torch.load(file)["model"], expected(3, STEPS, "adam"))


def end_after_a_fault(sharded: bool, way: str) -> tuple[str, bool]:
    """Take a last step in which a rank dies; return how it ended, and whether that was known."""
    model, known = make_model(NAME), False
    with join(TIMEOUT_S) as world:
        shards = ShardProgram.pushes_first(PROGRAM.batches[::-1], PROGRAM.batches)
        executor: Executor = (
            ShardExecutor(model, shards, make_optimizer("sgd", model), world)
            if sharded
            else attached(world, model)
        )

        def end() -> None:
            nonlocal known
            with executor:
                for step in range(2):
                    if (world.rank, step) == (1, 1):
                        during("backward", model, lambda: strike("kill", world))
                    backward(model, NAME, world.rank, step)
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
