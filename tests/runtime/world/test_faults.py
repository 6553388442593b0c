"""Ranks that die, hang, leave or are cut off: all others end, with the reason, in time.

A launch fails by itself if a process does not end within `LIMIT_S`. What can be read after a fault
is of one step.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import torch
from emulated_hosts import Layout
from emulated_network import cluster
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
    """What happens to which ranks, and in which phase of step `BAD_STEP`, or when attaching."""

    what: str
    ranks: tuple[int, ...]
    phase: str = "forward"
    held: bool = False  # a launcher holds the store
    script: bool = False  # processes end as those of a script


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


def train(fault: Fault, store: int) -> dict[str, Tensor]:
    """Train, while something happens to some ranks; return the weights."""
    if fault.held:
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(store)}
    model, batches = make_model(NAME), count()
    with join(TIMEOUT_S) as world:
        what, phase = (fault.what, fault.phase) if world.rank in fault.ranks else ("", "")
        if phase == "attach":
            strike(what, world)

        def struck() -> None:
            if phase == "transfer" and next(batches) == len(PROGRAM.batches) * BAD_STEP + BAD_BATCH:
                strike(what, world)

        plain = fault.what == "leave" or fault.phase == "attach"
        with attached(world, model, None if plain else struck) as executor:
            for step in range(BAD_STEP if what == "leave" else STEPS):
                if step == BAD_STEP:
                    during(phase, model, lambda: strike(what, world))
                backward(model, NAME, world.rank, step)
                executor.step()
    return model.state_dict()


def train_as_a_script(fault: Fault, store: int) -> None:
    """End as a script does, unlike the workers of `launch`, which leave threads as they are."""
    try:
        train(fault, store)
    except (PlannerError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.stdout.flush()
        ctypes.pythonapi.Py_Exit(3)


def check_weights(weights: dict[str, Tensor]) -> None:
    """Compare with `BAD_STEP` steps in one process, with the gradients of three ranks."""
    model = make_model(NAME)
    optimizer = make_optimizer("sgd", model)
    for step in range(BAD_STEP):
        optimizer.zero_grad()
        for rank in range(3):
            backward(model, NAME, rank, step)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= 3
        optimizer.step()
    torch.testing.assert_close(weights, dict(model.state_dict()), rtol=1e-4, atol=1e-6)


def check_struck(outcome: Outcome, fault: Fault) -> None:
    """Check how a rank ended to which something happened."""
    if fault.what == "leave":
        check_weights(outcome.value)
    elif fault.what in ("kill", "stop", "exit"):
        assert outcome.exit_code == (0 if fault.what == "exit" else -signal.SIGKILL)
    elif fault.script:
        assert outcome.exit_code == 3
    else:
        assert outcome.error is not None
        if fault.phase == "transfer":
            assert "no such picture" in outcome.error.text
        else:
            assert (outcome.error.type, outcome.error.text) == ("ValueError", "no such picture")


def check_other(outcome: Outcome, fault: Fault, text: str, batches: set[int | None]) -> None:
    """Check that another rank names those struck, the step, and one of the batches."""
    if fault.script:
        assert outcome.exit_code == 3, outcome.output
        assert f"CommunicationError: step {BAD_STEP}" in outcome.output
        assert f"rank {fault.ranks[0]}" in outcome.output
        return
    assert outcome.exit_code == 1, outcome.output
    error = outcome.error
    assert error is not None
    assert error.type == "CommunicationError", error.trace
    assert error.attributes["peers"] == fault.ranks, error.text
    if fault.phase != "attach":
        assert error.attributes["step"] == BAD_STEP, error.text
        assert error.attributes["batch"] in batches, error.text
        assert error.text.startswith(f"step {BAD_STEP}"), error.text
    for rank in fault.ranks:
        assert text.format(rank) in error.text
    assert "\n" not in error.text


NOT_THERE = "rank {} does not answer: it was killed, has ended, hangs or is cut off"
NO_STORE = "the job's store cannot be reached: rank {}"
RAISED = "rank {} stopped: ValueError: no such picture"
LEFT = "rank {} has left the job"
HUNG = "rank {} has not begun this transfer: it still computes or"
CUT = "interface eth0 of rank {} is down"


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "fault", "text", "batches"),
    [
        (3, Fault("kill", (2,), "backward"), NOT_THERE, {0}),
        (4, Fault("kill", (1, 2), "transfer"), NOT_THERE, {BAD_BATCH}),
        # Where rank 0 holds the store, nobody reaches that any more; and who is in no transfer at
        # that moment names none.
        (3, Fault("kill", (0,), "backward"), NO_STORE, {None, 0, BAD_BATCH}),
        (3, Fault("kill", (0,), "transfer", held=True), NOT_THERE, {BAD_BATCH}),
        (3, Fault("stop", (0,), "transfer"), NO_STORE, {BAD_BATCH}),
        (3, Fault("stop", (2,), "transfer"), NOT_THERE, {BAD_BATCH}),
        (3, Fault("stop", (0,), "attach"), NO_STORE, set()),
        (3, Fault("stop", (2,), "attach"), "rank {}", set()),
        (3, Fault("hang", (1,)), HUNG, {0}),
        (3, Fault("raise", (1,)), RAISED, {None}),
        (3, Fault("raise", (1,), "transfer"), RAISED, {BAD_BATCH}),
        (3, Fault("exit", (0,)), LEFT, {0}),
        (3, Fault("leave", (2,)), LEFT, {0}),
        (3, Fault("raise", (1,), "transfer", script=True), "", set()),
        (3, Fault("kill", (2,), "backward", script=True), "", set()),
        (3, Fault("stop", (0,), script=True), "", set()),
        pytest.param(
            *(3, Fault("cut", (0,), "transfer"), CUT, {BAD_BATCH}), marks=pytest.mark.emulated
        ),
    ],
    ids=str,
)
def test_all_others_end_with_the_reason(
    size: int, fault: Fault, text: str, batches: set[int | None], store: int
) -> None:
    meanwhile = end(fault.ranks[0]) if fault.what == "stop" else None
    worker: Any = train_as_a_script if fault.script else train
    machines: Any = cluster(Layout.flat(3), 50_000_000) if fault.what == "cut" else nullcontext()
    with machines as hosts:
        outcomes = launch(
            worker, size, fault, store, timeout_s=LIMIT_S, meanwhile=meanwhile, hosts=hosts
        )
    for outcome in outcomes:
        if outcome.rank in fault.ranks and fault.what not in ("hang", "cut"):
            check_struck(outcome, fault)
        else:
            check_other(outcome, fault, text, batches)


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


ENDS = {
    0: ("leave", "CommunicationError"),
    2: ("close", "CommunicationError"),
    3: ("told", "read"),
    4: ("raise", "ValueError"),
}
"""How each rank but the one that dies ends its loop, and what it hears then."""


def end_after_a_fault(sharded: bool) -> tuple[str, bool]:
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
                way, _ = ENDS[world.rank]
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
def test_whoever_ends_after_the_last_step_hears_of_a_fault_once(sharded: bool) -> None:
    outcomes = launch(end_after_a_fault, 5, sharded, timeout_s=LIMIT_S)
    for rank, (_, heard) in ENDS.items():
        assert outcomes[rank].value == (heard, True), outcomes[rank].error
