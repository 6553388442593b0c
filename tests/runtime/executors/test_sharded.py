"""Executors that update a part of the weights on each rank: what travels when, what is refused."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from planner.programs import Batch, Piece, ShardProgram, SliceProgram
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.shards import ShardExecutor, cells_of, messages_of, slice_of
from planner.runtime.executors.sliced import SlicedOptimizer, flat_values
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import Elements
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank
from tests.runtime.launching import launch
from tests.runtime.reference import (
    OPTIMIZERS,
    away_from_ddp,
    make_model,
    make_optimizer,
    take_steps,
)
from tests.runtime.sharing import Order, any_batches, attached, pulled_early, slices

NAME = "perceptron"

NUMBERS = {
    name: nn.Parameter(torch.arange(first, stop, dtype=torch.float32))
    for name, first, stop in (("a", 0, 30), ("b", 30, 31), ("c", 31, 38))
}
"""Parameters in which each number occurs once."""


def spots(batch: Batch, cells: Any, ranks: int, least: int) -> Iterator[tuple[int, float]]:
    """Yield the row in which each element of a batch lies, when values are put into messages."""
    for message in messages_of(batch, NUMBERS, cells, ranks, least):
        matrix = torch.full((ranks, message.width), -1.0)
        for columns in message.columns:
            for place, part in columns.parts(matrix, columns.cell.parameter.detach()):
                assert (place == -1).all()
                place.copy_(part)
        for row, numbers in enumerate(matrix.tolist()):
            yield from ((row, number) for number in numbers if number >= 0)


@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 200))
def test_every_piece_brings_each_rank_its_own_elements(
    draw: Random, ranks: int, least: int
) -> None:
    pulls, pushes = (any_batches(draw, NUMBERS) for _ in range(2))
    cells = cells_of(pulls + pushes, NUMBERS)
    owner: dict[float, int] = {}
    for several in cells.values():
        for cell in several:
            for rank in range(ranks):
                for value in slice_of(cell, rank, ranks).of(cell.parameter.detach()).tolist():
                    assert owner.setdefault(value, rank) == rank
    assert sorted(owner) == list(range(38))
    for batches in (pulls, pushes):
        for batch in batches:
            carried = [
                element
                for name, start, stop in batch.pieces
                for element in NUMBERS[name].tolist()[start // 4 : (stop or 0) // 4]
            ]
            lying = sorted((value, row) for row, value in spots(batch, cells, ranks, least))
            assert lying == sorted((value, owner[value]) for value in carried)


# ---
# In which order transfers happen, and who is to blame.


def hold_pulls(executor: ShardExecutor) -> None:
    """Let each pull of the first step begin when the training loop waits for it or a later one."""
    begun: list[threading.Event] = []

    def held(work: Callable[[], object]) -> Callable[[], object]:
        begun.append(threading.Event())
        permit = begun[-1]
        return lambda: permit.wait(30) and work()

    for ticket in executor._tickets:
        if ticket.direction == "pull":
            ticket.work = held(ticket.work)
    wait = executor.channel.wait

    def let_go(ticket: Ticket) -> None:
        for permit in begun[: ticket.batch + 1]:
            permit.set()
        wait(ticket)

    executor.channel.wait = let_go  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("early", "updates", "finished"), [(False, 1, (1, 2, 3, 4)), (True, 4, (2, 2, 3, 4))]
)
@in_each_rank(3)
def test_order_and_place_of_what_travels(
    world: World, early: bool, updates: int, finished: tuple[int, ...]
) -> None:
    """Reading a layer finishes what has arrived: early, the second one comes before the first."""
    model = make_model(NAME)
    optimizer = make_optimizer("adam", model)
    parts = ("weight", "bias")
    layers = {name: [f"{name}.{part}" for part in parts] for name, _ in model.named_children()}
    pulls = tuple(Batch(tuple(map(Piece, names))) for names in layers.values())
    plan = ShardProgram.pushes_first(pulls, (*pulls[1::-1], *pulls[2:]))
    plan = pulled_early(plan) if early else plan
    executor = ShardExecutor(model, plan, optimizer, world)
    hold_pulls(executor)
    pending: list[set[str]] = []
    for name in layers:
        model.get_submodule(name).register_forward_hook(
            lambda *_: pending.append({executor.names[one] for one in executor.gate.pending})
        )
    take_steps(executor, range(2))
    moments = sum(state["exp_avg"].numel() for state in optimizer.state.values())
    executor.close()

    planned = []
    for step in range(2):
        counted, last = Counter[str](), ""
        for direction, _ in plan.transfers:
            if (last, direction) == ("push", "pull"):
                planned.append(("update", "", step, counted["pull"]))
            planned.append(("transfer", direction, step, counted[direction]))
            counted[direction] += 1
            last = direction
    happened = [
        (event.kind, event.direction, event.step, event.batch)
        for event in executor.trace.events
        if event.kind in ("transfer", "update")
    ]
    assert happened == planned
    assert [kind for kind, *_ in happened].count("update") == 2 * updates
    left = [{name for names in list(layers.values())[done:] for name in names} for done in finished]
    assert pending == [set()] * 4 + left
    elements = sum(parameter.numel() for parameter in model.parameters())
    assert sum(map(int, world.gather("elements", str(moments)))) == elements
    assert moments < elements / 2


def watch(name: str, before: Callable[[int, torch.Tensor], object]) -> None:
    """Do something before each send or receive of gloo's, given the peer and the message."""
    gloo: Any = distributed.ProcessGroupGloo
    call = getattr(gloo, name)

    def watched(group: Any, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        before(peer, tensors[0])
        return call(group, tensors, peer, tag)

    setattr(gloo, name, watched)


@pytest.mark.slow
@in_each_rank(4)
def test_order_of_pulls(world: World) -> None:
    rank, size, asked = world.rank, world.size, list[tuple[int, int]]()
    watch("recv", lambda peer, message: asked.append((peer, message.numel())))
    orders: tuple[Order, ...] = ("rotated", "same")
    for order in orders:
        model = make_model(NAME)
        optimizer = make_optimizer("adam", model)
        plan = slices(model, size, order)
        executor = SliceExecutor(model, plan, optimizer, world)
        asked.clear()
        take_steps(executor, [0])
        moments = sum(state["exp_avg"].numel() for state in optimizer.state.values())
        executor.close()
        sizes = [stop - start for start, stop in plan.slices]
        others = [other for other in plan.pull_order[rank] if other != rank]
        if order == "rotated":
            assert others == [(rank + turn) % size for turn in range(1, size)]
        gradients = [(other, sizes[rank]) for other in others]
        assert asked == gradients + [(other, sizes[other]) for other in others]
        transfers = [event for event in executor.trace.events if event.kind == "transfer"]
        turns = [(way, turn) for way in ("push", "pull") for turn in range(size)]
        assert [(event.direction, event.batch) for event in transfers] == turns
        assert moments == sizes[rank]
        assert sum(sizes) == sum(parameter.numel() for parameter in model.parameters())


def lose_a_connection() -> None:
    def broken(peer: int, _: torch.Tensor) -> None:
        if (os.environ["RANK"], peer) == ("0", 2):
            raise RuntimeError("the cable is cut")

    watch("recv", broken)
    with join(timeout_s=8) as world:
        take_steps(attached(world, "slices"), [0])


def test_the_other_end_of_a_broken_transfer_is_named() -> None:
    for outcome in launch(lose_a_connection, 4):
        assert outcome.error is not None
        assert "the cable is cut" in outcome.error.text
        attributes = outcome.error.attributes
        assert (attributes["step"], attributes["batch"], attributes["peers"]) == (0, 2, (2,))


@pytest.mark.slow
@in_each_rank(3)
def test_a_rank_serves_the_others_to_the_end(world: World) -> None:
    """One owns everything, and still has to send when it needs nothing more itself."""
    watch("send", lambda *_: time.sleep(0.1))
    model = make_model(NAME)
    elements = sum(parameter.numel() for parameter in model.parameters())
    plan = SliceProgram(((0, 0), (0, 0), (0, elements)), ((0, 2, 1), (1, 0, 2), (0, 1, 2)))
    with SliceExecutor(model, plan, make_optimizer("sgd", model), world) as executor:
        take_steps(executor, [0])
    assert away_from_ddp(model, steps=1) <= 1e-6
    world.agree("the weights", repr([weight.tolist() for weight in model.parameters()]))


# ---
# Slices are updated beside a training loop that already sets up its next step.

SIZE = 6
SLICES = ((0, 2), (3, SIZE))


def begun(name: str) -> tuple[nn.Parameter, Optimizer, LambdaLR]:
    parameter = nn.Parameter(torch.arange(float(SIZE)))
    optimizer = OPTIMIZERS[name](iter([parameter]))
    return parameter, optimizer, LambdaLR(optimizer, lambda step: 0.5**step)


def gradient(step: int) -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_the_loop_does_meanwhile_changes_no_update(name: str) -> None:
    expected, plain, schedule = begun(name)
    for step in range(3):
        expected.grad = gradient(step)
        plain.step()
        schedule.step()

    parameter, optimizer, schedule = begun(name)
    sliced = SlicedOptimizer(optimizer, [Elements(parameter, *span) for span in SLICES])
    called: list[Any] = []

    def meanwhile(stepping: Optimizer, *_: Any) -> None:
        called.append([group["lr"] for group in stepping.param_groups])
        optimizer.param_groups[0]["lr"] = 100.0
        optimizer.zero_grad()

    optimizer.register_step_pre_hook(meanwhile)
    for step in range(3):
        sliced.remember({parameter: flat_values(parameter)})
        schedule.step()  # which warns of an optimiser that was not called
        for number in (1, 0):
            gradients = {number: gradient(step)[slice(*SLICES[number])]}
            thread = threading.Thread(target=sliced.step, args=(gradients,))
            thread.start()
            thread.join()
        optimizer.param_groups[0]["lr"] = schedule.get_last_lr()[0]
        optimizer.load_state_dict(optimizer.state_dict())  # as after a checkpoint
    rate = plain.param_groups[0]["initial_lr"]
    assert called == [[rate * 0.5**step] for step in range(3) for _ in SLICES]
    for start, stop in SLICES:
        assert torch.equal(parameter[start:stop], expected[start:stop])
    assert parameter[2] == 2
    sliced.restore()
    assert optimizer.param_groups[0]["params"] == [parameter]
    assert not optimizer.state
