"""Ranks that die, hang, leave, disagree or are cut off: all others end, with the reason, in time.

A launch fails by itself if a process does not end within `LIMIT_S`.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, distributed, nn
from torch.optim import SGD, Adam, Optimizer

from planner.errors import PlannerError
from planner.runtime.collectives import Ring
from planner.runtime.gradients import GradientExecutor
from planner.runtime.programs import Batch, GradientProgram, Piece
from planner.runtime.world import World, join
from tests.runtime.launching import Outcome, free_port, launch

TIMEOUT_S = 3.0
LIMIT_S = TIMEOUT_S + 25  # for the steps before and a roll call, on a busy machine
STEPS = 4
BAD_STEP = 2
BAD_BATCH = 1

PROGRAM = GradientProgram(
    tuple(
        Batch((Piece(f"{layer}.weight"), Piece(f"{layer}.bias")))
        for layer in ("last", "middle", "first")
    )
)


class Net(nn.Module):
    """Three layers; something can be done in the middle of either pass."""

    def __init__(self, width: int = 8, *, skip_middle: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(5, width)
        self.middle = nn.Linear(width, width)
        self.last = nn.Linear(width, 3)
        self.skip_middle = skip_middle
        self.in_forward: Callable[[], object] = lambda: None
        self.in_backward: Callable[[], object] = lambda: None

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(inputs))
        self.in_forward()
        if not self.skip_middle:
            hidden = torch.tanh(self.middle(hidden))
        hidden.register_hook(lambda _: self.in_backward())  # type: ignore[no-untyped-call]
        outputs: Tensor = self.last(hidden)
        return outputs


class Twice(nn.Module):
    """A layer that is used two times."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.middle = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.middle(torch.tanh(self.first(inputs))))
        outputs: Tensor = self.last(torch.tanh(self.middle(hidden)))
        return outputs


class Spied(Ring):
    """Gloo's ring, with something done in the middle of a transfer."""

    def __init__(self, world: World, before: Callable[[], object]) -> None:
        super().__init__(world)
        self._before = before

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        half = flat.numel() // 2
        super().__call__(flat[:half], depth)
        self._before()
        super().__call__(flat[half:], depth)


@dataclass(frozen=True)
class Fault:
    """What happens to which ranks, and in which phase of step `BAD_STEP`."""

    what: str
    ranks: tuple[int, ...]
    phase: str = "forward"


def strike(what: str, world: World) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "raise":
        raise ValueError("no such picture")
    elif what == "exit":
        sys.exit(0)
    elif what == "cut":
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
    elif what == "hang":
        while world.watch.error is None:
            time.sleep(0.05)


def net(kind: type[nn.Module] = Net, **options: Any) -> nn.Module:
    torch.manual_seed(7)
    return kind(**options)


def backward(model: nn.Module, rank: int, step: int, factor: float = 1.0) -> None:
    torch.manual_seed(100 * step + rank)
    loss = factor * model(torch.randn(6, 5)).square().mean()
    loss.backward()


def sgd(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model: nn.Module) -> Optimizer:
    return Adam(model.parameters())


def expected(
    ranks: int,
    kind: type[nn.Module] = Net,
    steps: int = STEPS,
    make: Callable[[nn.Module], Optimizer] = sgd,
) -> dict[str, Tensor]:
    """Return the weights after training in one process, with the gradients of all ranks."""
    model = net(kind)
    optimizer = make(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(ranks):
            backward(model, rank, step, 1 / ranks)
        optimizer.step()
    return model.state_dict()


def close_to(weights: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return weights.keys() == others.keys() and all(
        torch.allclose(value, others[name], rtol=1e-4, atol=1e-6) for name, value in weights.items()
    )


def train(fault: Fault | None = None, store: int | None = None) -> dict[str, Tensor]:
    """Train, while something happens to some ranks."""
    if store is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        os.environ["MASTER_PORT"] = str(store)
    model = net()
    assert isinstance(model, Net)
    with join(TIMEOUT_S) as world:
        here = fault is not None and world.rank in fault.ranks
        batch = -1

        def struck() -> None:
            nonlocal batch
            batch += 1
            if here and fault and batch == len(PROGRAM.batches) * BAD_STEP + BAD_BATCH:
                strike(fault.what, world)

        spied = Spied(world, struck if fault and fault.phase == "transfer" else lambda: None)
        with GradientExecutor(model, PROGRAM, sgd(model), world, spied) as executor:
            for step in range(STEPS):
                if here and fault and step == BAD_STEP:
                    setattr(model, f"in_{fault.phase}", lambda: strike(fault.what, world))
                backward(model, world.rank, step)
                executor.step()
    return model.state_dict()


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


@contextmanager
def store_of_a_launcher() -> Iterator[int]:
    port = free_port()
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", port, None, True, wait_for_workers=False
    )
    yield port
    del store


def end(rank: int) -> Callable[[Sequence[int]], None]:
    """Return what kills a rank once the others have ended, since it cannot end itself."""

    def running(process: int) -> bool:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in "ZX"

    def wait(processes: Sequence[int]) -> None:
        limit = time.monotonic() + LIMIT_S
        others = [process for one, process in enumerate(processes) if one != rank]
        while any(map(running, others)) and time.monotonic() < limit:
            time.sleep(0.05)
        os.kill(processes[rank], signal.SIGKILL)

    return wait


NOT_THERE = "rank {} does not answer: it was killed, has ended, hangs or is cut off"


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


@pytest.mark.parametrize("phase", ["backward", "transfer"])
def test_the_rank_that_holds_the_store_is_killed(phase: str) -> None:
    fault = Fault("kill", (0,), phase)
    # Who is in no transfer at that moment names none.
    batches = {None, 0, BAD_BATCH}
    text = "the job's store cannot be reached: rank {}"
    check(launch(train, 3, fault, timeout_s=LIMIT_S), fault, text, batches)


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
    # What the stopped process had sent before may have been enough for one more.
    check(outcomes, fault, text, {BAD_BATCH, BAD_BATCH + 1})


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
    from emulated_cluster import Layout, cluster

    fault = Fault("cut", (rank,), "transfer")
    with cluster(Layout.flat(3), 50_000_000) as hosts:
        outcomes = launch(train, 3, fault, timeout_s=LIMIT_S, hosts=hosts)
    check(outcomes, fault, "interface eth0 of rank {} is down", {BAD_BATCH})


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


@pytest.mark.parametrize("short", [0, 2])
def test_ranks_do_different_numbers_of_steps(short: int) -> None:
    steps = [STEPS] * 3
    steps[short] = BAD_STEP
    outcomes = launch(train_for, 3, tuple(steps), timeout_s=LIMIT_S)
    assert close_to(outcomes[short].value, expected(3, steps=BAD_STEP))
    others = [outcome for outcome in outcomes if outcome.rank != short]
    check(others, Fault("leave", (short,)), "rank {} has left the job", {0})


def test_without_faults_all_end_with_the_right_weights() -> None:
    with store_of_a_launcher() as port:
        outcomes = launch(train, 3, None, port, timeout_s=LIMIT_S)
    outcomes += launch(train, 3, timeout_s=LIMIT_S)
    assert [outcome.exit_code for outcome in outcomes] == [0] * 6
    assert all(close_to(outcome.value, expected(3)) for outcome in outcomes)


def arrive(ranks: int, absent: int) -> None:
    os.environ["WORLD_SIZE"] = str(ranks)
    if int(os.environ["RANK"]) == absent:
        return
    if os.environ["RANK"] == "1":
        time.sleep(TIMEOUT_S / 3)
    join(TIMEOUT_S)


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
    """Attach with something that does not fit, on some ranks or on all."""
    with join(TIMEOUT_S) as world:
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
    model, said = net(), []
    optimizer = sgd(model)

    def look(read: Callable[[], object]) -> None:
        try:
            read()
        except Exception as error:  # noqa: BLE001 - the test compares its name
            said.append(type(error).__name__)
        else:
            said.append("read")

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
    return said


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


def test_the_last_checkpoint_is_usable(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    outcomes = launch(train_with_checkpoints, 3, file, 3, timeout_s=LIMIT_S)
    assert [outcome.exit_code for outcome in outcomes] == [1, -signal.SIGKILL, 1]
    assert torch.load(file)["step"] == 3
    outcomes = launch(train_with_checkpoints, 3, file, None, timeout_s=LIMIT_S)
    assert [outcome.value for outcome in outcomes] == [3] * 3
    assert close_to(torch.load(file)["model"], expected(3, make=adam))


def train_and_wind_up(fault: Fault) -> None:
    """End as a script does, unlike the workers of `launch`, which leave threads as they are."""
    try:
        train(fault)
    except (PlannerError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.stdout.flush()
        ctypes.pythonapi.Py_Exit(3)


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
