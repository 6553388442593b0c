"""How much an executor does beside the network, counted; no clock is asked."""

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

import planner.runtime
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch, values

RUNTIME = str(Path(planner.runtime.__file__).parent)


class OneByOne:
    """Sums up each message only when somebody waits for it."""

    name = "one by one"

    def __init__(self, ring: AllReduce) -> None:
        self._ring = ring
        self.permits = threading.Semaphore(0)

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        assert self.permits.acquire(timeout=30)
        self._ring(flat, depth)


class Counter:
    """Counts the instructions that the interpreter carries out in the runtime's own code."""

    def __init__(self) -> None:
        self.count = 0
        self.counting = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(RUNTIME):
            return None
        frame.f_trace_opcodes = True
        self.count += self.counting and event == "opcode"
        return self


def layers(count: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))


def each_layer(model: nn.Module) -> GradientProgram:
    names = [name for name, _ in model.named_children()]
    pieces = [(Piece(f"{name}.weight"), Piece(f"{name}.bias")) for name in names]
    return GradientProgram(tuple(map(Batch, pieces)))


def train_step(model: nn.Module, executor: GradientExecutor) -> None:
    model(torch.ones(2, 4)).sum().backward()
    executor.step()


def count_work(count: int) -> tuple[int, int]:
    """Train with a batch and a group for each layer; return instructions, and updates."""
    counter = Counter()
    threading.settrace(counter)
    with join() as world:
        model = layers(count)
        optimizer = SGD(
            [{"params": list(layer.parameters())} for layer in model.children()], lr=0.1
        )
        updates: list[None] = []
        optimizer.register_step_post_hook(lambda *_: updates.append(None))
        held = OneByOne(Ring(world.group))
        executor = GradientExecutor(model, each_layer(model), optimizer, world, held)
        wait = executor.channel.wait

        def let_go(ticket: Ticket) -> None:
            held.permits.release()
            wait(ticket)

        executor.channel.wait = let_go  # type: ignore[method-assign]
        for _ in range(2):
            train_step(model, executor)
        updates.clear()
        counter.counting = True
        sys.settrace(counter)
        train_step(model, executor)
        sys.settrace(None)
        counter.counting = False
        counts = counter.count, len(updates)
        executor.close()
    return counts


def test_work_grows_with_the_number_of_layers_and_not_faster() -> None:
    few, many = (values(launch(count_work, 1, count))[0] for count in (15, 90))
    assert (few[1], many[1]) == (15, 90)  # each batch came alone: there is nothing slower
    assert few[0] > 0
    assert many[0] < 1.5 * 6 * few[0]


def count_updates(world: World) -> int:
    model = layers(10)
    optimizer = SGD(model.parameters(), lr=0.1)
    updates: list[None] = []
    optimizer.register_step_post_hook(lambda *_: updates.append(None))
    executor = GradientExecutor(model, each_layer(model), optimizer, world)
    for _ in range(2):
        train_step(model, executor)
    while sum(event.kind == "transfer" for event in executor.trace.events) < 20:
        pass
    updates.clear()
    model(torch.ones(2, 4))
    count = len(updates)
    executor.close()
    return count


def update_together() -> int:
    with join() as world:
        return count_updates(world)


def test_all_that_has_arrived_is_updated_by_one_call() -> None:
    assert values(launch(update_together, 2)) == [1, 1]
