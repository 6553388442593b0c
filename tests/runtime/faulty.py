"""Training in which ranks die, hang, raise and leave: what the tests of faults share."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import SGD, Adam, Optimizer

from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.collectives.ring import Ring
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import Outcome, free_port, running
from tests.runtime.recipes import of

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
        hidden.register_hook(lambda _: self.in_backward())
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
        super().__init__(world.group)
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
        threading.Event().wait()  # another thread may be who is told, and that takes its time
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


sgd, adam = of(SGD, lr=0.1, momentum=0.9), of(Adam, lr=0.001)


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
        what, phase = (fault.what, fault.phase) if fault and world.rank in fault.ranks else ("", "")
        batches = itertools.count()

        def struck() -> None:
            if next(batches) == len(PROGRAM.batches) * BAD_STEP + BAD_BATCH:
                strike(what, world)

        spied = Spied(world, struck if phase == "transfer" else lambda: None)
        with GradientExecutor(model, PROGRAM, sgd(model), world, spied) as executor:
            for step in range(STEPS):
                if step == BAD_STEP:
                    setattr(model, f"in_{phase}", lambda: strike(what, world))
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

    def wait(processes: Sequence[int]) -> None:
        limit = time.monotonic() + LIMIT_S
        others = [process for other, process in enumerate(processes) if other != rank]
        while any(map(running, others)) and time.monotonic() < limit:
            time.sleep(0.05)
        os.kill(processes[rank], signal.SIGKILL)

    return wait
