"""Batches that are ready on all ranks, and do not wait for those that are not."""

import os
import signal
import time
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.executors.channel import Overtaking
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch
from tests.runtime.sharing import values

STEPS = 4
WIDTH = 4
HALF = 2 * WIDTH * WIDTH
PLANNED = GradientProgram(
    (
        Batch((Piece("branches.0.weight", 0, HALF), Piece("branches.0.bias"))),
        Batch((Piece("branches.1.weight"), Piece("branches.1.bias"))),
        Batch((Piece("branches.2.weight"), Piece("branches.2.bias"))),
        Batch((Piece("branches.3.weight"), Piece("branches.3.bias"))),
        Batch((Piece("branches.0.weight", HALF, None),)),
    )
)


class Branches(nn.Module):
    """Layers beside each other, whose gradients come in the order given; one waits before."""

    def __init__(self, order: Sequence[int] = range(4)) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.order = order
        self.before_last: Callable[[], object] = lambda: None

    def forward(self, inputs: Tensor) -> Tensor:
        total = torch.zeros(())
        for place in reversed(self.order):
            output = torch.tanh(self.branches[place](inputs))
            if place == self.order[-1]:
                output.register_hook(lambda _: self.before_last())
            total = total + output.sum()
        return total


def branches(order: Sequence[int] = range(4)) -> Branches:
    torch.manual_seed(5)
    return Branches(order)


def inputs(rank: int, step: int) -> Tensor:
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(10 * step + rank))


def by_ddp(world: World, order: Sequence[int]) -> list[Tensor]:
    model = branches(order)
    wrapped = DistributedDataParallel(model, process_group=world.group)
    optimizer = SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(inputs(world.rank, step)).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def train(
    late: tuple[int, int], strict: bool | None, batches: Sequence[int], first: int
) -> tuple[list[list[int]], bool]:
    """Have each rank compute one gradient only once some batches have left, from a step on."""
    with join() as world:
        late_here = late[world.rank]
        order = [*(place for place in range(4) if place != late_here), late_here]
        model = branches(order)
        optimizer = SGD(model.parameters(), lr=0.1)
        executor = GradientExecutor(model, PLANNED, optimizer, world, strict_order=strict)

        def until_sent() -> None:
            end = time.monotonic() + 20
            while executor.steps >= first and time.monotonic() < end:
                begun = [ticket.batch for ticket in executor.channel.begun]
                if set(batches) <= set(begun):
                    return
                time.sleep(0.01)
            if strict is None:
                time.sleep(3)  # long against what comes before the first step

        model.before_last = until_sent
        for step in range(STEPS):
            model(inputs(world.rank, step)).backward()
            executor.step()
        executor.finish()
        orders = [
            [event.batch for event in executor.trace.events if event[:2] == ("transfer", step)]
            for step in range(STEPS)
        ]
        executor.close()
        expected = by_ddp(world, order)
        same = all(map(torch.equal, model.parameters(), expected))
    return orders, same


@pytest.mark.parametrize("strict", [False, pytest.param(None, marks=pytest.mark.slow)])
def test_the_network_does_not_idle_while_one_gradient_is_late(strict: bool | None) -> None:
    first = 0 if strict is False else 1
    (orders, same), (others, _) = values(launch(train, 2, (0, 0), strict, (1, 2, 3), first))
    assert orders == others
    assert same
    for order in orders[first:]:
        assert set(order[:3]) == {1, 2, 3}
        assert sorted(order) == [0, 1, 2, 3, 4]
    if strict is None:
        assert orders[0] == [0, 1, 2, 3, 4]


def test_ranks_may_be_late_with_different_gradients() -> None:
    (orders, same), (others, also) = values(launch(train, 2, (0, 1), False, (2, 3), 0))
    assert orders == others
    assert same
    assert also
    for order in orders:
        assert set(order[:2]) == {2, 3}
        assert sorted(order) == [0, 1, 2, 3, 4]


def test_a_strict_order_is_that_of_the_plan() -> None:
    (orders, same), _ = values(launch(train, 2, (0, 1), True, (), STEPS))
    assert orders == [[0, 1, 2, 3, 4]] * STEPS
    assert same


def stop_while_agreeing(how: str) -> None:
    with join(timeout_s=3) as world:
        model = branches()
        optimizer = SGD(model.parameters(), lr=0.1)
        executor = GradientExecutor(model, PLANNED, optimizer, world, strict_order=False)
        for step in range(STEPS):
            loss = model(inputs(world.rank, step))
            if (world.rank, step) == (1, 1):  # the other one waits for its vote
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "hang":
                    time.sleep(8)
                raise ValueError(how)
            loss.backward()
            executor.step()
        executor.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", "rank 1 does not answer"),
        ("hang", "rank 1 has not begun this transfer"),
        ("raise", "rank 1 stopped: ValueError: raise"),
    ],
)
def test_faults_while_ranks_agree_are_told_as_ever(how: str, says: str) -> None:
    outcome = launch(stop_while_agreeing, 2, how, timeout_s=40)[0]
    assert outcome.error is not None
    assert outcome.error.type == "CommunicationError"
    assert outcome.error.text.startswith("step 1"), outcome.error
    assert says in outcome.error.text


def vote(own: Sequence[bool], others: Sequence[int], firm: Sequence[bool]) -> list[int]:
    def add(rows: Tensor) -> None:
        rows += torch.tensor(others)

    return Overtaking(add, 3, always=True).vote(own, firm)


def test_what_is_ready_on_all_ranks_is_chosen_in_the_order_of_the_plan() -> None:
    soft = [False] * 4
    assert vote([True, True, False, True], [1, 2, 2, 2], soft) == [1, 3]
    assert vote([True, False, False, True], [1, 2, 2, 0], soft) == []
    assert vote([True] * 4, [2] * 4, soft) == [0, 1, 2, 3]


def test_nothing_overtakes_a_batch_for_which_the_plan_waits() -> None:
    assert vote([True, False, True], [2, 2, 2], [False, True, False]) == [0]
    assert vote([False, True, True], [2, 2, 2], [True, False, False]) == []
    assert vote([True, True, True], [2, 2, 2], [True, True, True]) == [0, 1, 2]
