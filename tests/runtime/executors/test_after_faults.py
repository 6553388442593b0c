"""What can be read after a fault, and that training goes on from the last checkpoint."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from planner.model.errors import CommunicationError
from planner.programs import ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.world.joining import join
from tests.runtime.faulty import (
    BAD_BATCH,
    LIMIT_S,
    PROGRAM,
    STEPS,
    TIMEOUT_S,
    Net,
    Spied,
    Twice,
    adam,
    backward,
    close_to,
    expected,
    net,
    sgd,
    strike,
)
from tests.runtime.launching import launch


def train_twice() -> dict[str, Tensor]:
    model = net(Twice)
    with join(TIMEOUT_S) as world, GradientExecutor(model, PROGRAM, sgd(model), world) as executor:
        for step in range(STEPS):
            backward(model, world.rank, step)
            executor.step()
    return model.state_dict()


def test_a_layer_used_twice_is_summed_up_once() -> None:
    outcomes = launch(train_twice, 3, timeout_s=LIMIT_S)
    assert all(close_to(outcome.value, expected(3, Twice)) for outcome in outcomes)


def read_after_a_fault() -> list[str]:
    """Fail while some parameters are updated and others not; tell how each look at them ended."""
    model, events = net(), []
    optimizer = sgd(model)

    def look(read: Callable[[], object]) -> None:
        try:
            read()
        except Exception as error:  # noqa: BLE001 - the test compares its name
            events.append(type(error).__name__)
        else:
            events.append("read")

    with join(TIMEOUT_S) as world:
        batch = -1

        def struck() -> None:
            nonlocal batch
            batch += 1
            if world.rank == 1 and batch == len(PROGRAM.batches) + BAD_BATCH:
                strike("kill", world)

        executor = GradientExecutor(model, PROGRAM, optimizer, world, Spied(world, struck))
        for step in range(2):
            look(model.state_dict)
            backward(model, world.rank, step)
            executor.step()
        look(executor.finish)
        look(model.state_dict)
        look(optimizer.state_dict)
        executor.close()
        look(model.state_dict)
        look(optimizer.state_dict)
        look(lambda: model(torch.ones(1, 5)))
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


def end_after_a_fault(sharded: bool, way: str) -> list[str]:
    """Take a last step in which a rank dies, and end once it is known here."""
    model, events = net(), []
    with join(TIMEOUT_S) as world:
        executor: Executor
        if sharded:
            program = ShardProgram.pushes_first(PROGRAM.batches[::-1], PROGRAM.batches)
            executor = ShardExecutor(model, program, sgd(model), world)
        else:
            executor = GradientExecutor(model, PROGRAM, sgd(model), world)

        def end(error: str | None = None) -> None:
            with executor:
                for step in range(2):
                    if (world.rank, step) == (1, 1):
                        assert isinstance(model, Net)
                        model.in_backward = lambda: strike("kill", world)
                    backward(model, world.rank, step)
                    executor.step()
                strike("hang", world)
                events.append("known")
                if error:
                    raise ValueError(error)
                if way == "told":
                    with pytest.raises(CommunicationError, match="rank 1 does not answer"):
                        executor.finish()
                if way in ("close", "told"):
                    executor.close()
                    executor.close()

        try:
            end("of the loop's own" if way == "raise" else None)
        except Exception as error:  # noqa: BLE001 - the test compares its name
            events.append(type(error).__name__)
    return events


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    ("way", "heard"),
    [
        ("leave", ["CommunicationError"]),
        ("close", ["CommunicationError"]),
        ("told", []),
        ("raise", ["ValueError"]),
    ],
)
def test_whoever_ends_after_the_last_step_hears_of_a_fault_once(
    way: str, heard: list[str], sharded: bool
) -> None:
    outcomes = launch(end_after_a_fault, 3, sharded, way, timeout_s=LIMIT_S)
    for rank in (0, 2):
        assert outcomes[rank].value == ["known", *heard], outcomes[rank].error
