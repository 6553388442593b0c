"""Sharded training by a plan of batches, held against plain DDP."""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from planner.model.errors import InvalidInputError
from planner.programs import Batch, Piece, ShardProgram
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.sliced import ELEMENTWISE, check_elementwise
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import backward, make_model, make_optimizer, take_steps
from tests.runtime.sharing import (
    DIVIDED,
    Attach,
    Pair,
    check,
    compare,
    compare_models,
    jobs,
    pulled_early,
    resume,
)

SIZES = {"one": [], "each": [1] * 100, "uneven": [1, 3, 2]}
"""Of batches; what is left is one more."""


def batches(model: nn.Module, sizes: Iterable[int]) -> tuple[Batch, ...]:
    names = [name for name, _ in model.named_parameters()]
    groups = []
    for size in sizes:
        groups.append(names[:size])
        names = names[size:]
    return tuple(Batch(tuple(map(Piece, some))) for some in [*groups, names] if some)


def program(model: nn.Module, pull: str, push: str) -> ShardProgram:
    return ShardProgram.pushes_first(batches(model, SIZES[pull]), batches(model, SIZES[push])[::-1])


def attach(
    world: World, pull: str, push: str, model: nn.Module, optimizer: Optimizer
) -> ShardExecutor:
    return ShardExecutor(model, pulled_early(program(model, pull, push)), optimizer, world)


def train(recipes: list[str]) -> dict[str, Pair]:
    ways = ("uneven", "each"), ("one", "uneven"), ("each", "one")
    with join() as world:
        pairs: dict[str, Pair] = {}
        for start, (pull, push) in enumerate(ways):
            pairs |= compare(partial(attach, world, pull, push), recipes[start::3])
        if recipes == DIVIDED["shards"]:
            same: dict[str, Attach] = {how: partial(attach, world, how, how) for how in SIZES}
            pairs |= compare_models(same, world.rank)
            for name in "tiny", "mixed", "frozen":
                pairs[f"{name}, each"] = compare(same["each"], [name])[name]
            pairs["resumed"] = resume(same["uneven"], world.rank)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(("size", "recipes"), jobs("shards"))
def test_weights_are_those_of_ddp(size: int, recipes: list[str]) -> None:
    check(values(launch(train, size, recipes, timeout_s=150)))


Happened = tuple[str, str, int, int]
"""What kind of event, its direction, its step and its batch."""


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


def watch_order(early: bool) -> tuple[list[Happened], list[Happened], list[set[str]], list[int]]:
    """Train two steps; return what was planned, what happened, what was pending, and the state."""
    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("adam", model)
        layers = dict(model.named_children())
        pulls = tuple(
            Batch(tuple(Piece(f"{name}.{kind}") for kind in ("weight", "bias"))) for name in layers
        )
        pushes = (*pulls[1::-1], *pulls[2:])
        plan = ShardProgram.pushes_first(pulls, pushes)
        plan = pulled_early(plan) if early else plan
        executor = ShardExecutor(model, plan, optimizer, world)
        hold_pulls(executor)
        pending: list[set[str]] = []
        for layer in layers.values():
            layer.register_forward_hook(
                lambda *_: pending.append(
                    {executor.names[parameter] for parameter in executor.gate.pending}
                )
            )
        take_steps(executor, "perceptron", world.rank, range(2))
        moments = [state["exp_avg"].numel() for state in optimizer.state.values()]
        executor.close()
        happened: list[Happened] = [
            (event.kind, event.direction, event.step, event.batch)
            for event in executor.trace.events
            if event.kind in ("transfer", "update")
        ]
    planned: list[Happened] = []
    for step in range(2):
        counted, last = Counter[str](), ""
        for direction, _ in plan.transfers:
            if (last, direction) == ("push", "pull"):
                planned.append(("update", "", step, counted["pull"]))
            planned.append(("transfer", direction, step, counted[direction]))
            counted[direction] += 1
            last = direction
    return planned, happened, pending, moments


@pytest.mark.parametrize(
    ("early", "updates", "finished"), [(False, 1, (1, 2, 3, 4)), (True, 4, (2, 2, 3, 4))]
)
def test_order_and_place_of_what_travels(
    early: bool, updates: int, finished: tuple[int, ...]
) -> None:
    """Reading a layer finishes what has arrived: early, the second one comes before the first."""
    results = values(launch(watch_order, 3, early))
    layers = list(dict(make_model("perceptron").named_children()))
    for planned, happened, pending, _ in results:
        assert happened == planned
        assert [kind for kind, *_ in happened].count("update") == 2 * updates
        left = [
            {f"{name}.{kind}" for name in layers[done:] for kind in ("weight", "bias")}
            for done in finished
        ]
        assert pending == [set()] * 4 + left
    elements = sum(parameter.numel() for parameter in make_model("perceptron").parameters())
    assert sum(sum(moments) for *_, moments in results) == elements
    assert max(sum(moments) for *_, moments in results) < elements / 2


def die_between_pulls(_: object = None) -> None:
    with join(3) as world:
        model = make_model("perceptron")
        plan = pulled_early(program(model, "each", "each"))
        executor = ShardExecutor(model, plan, make_optimizer("sgd", model), world)
        for step in range(3):
            backward(model, "perceptron", world.rank, step)
            executor.step()
            if (step, world.rank) == (1, 1):
                executor.channel.wait(executor.awaited[2])
                os.kill(os.getpid(), signal.SIGKILL)
        executor.close()


@pytest.mark.slow
def test_who_dies_between_pulls_is_named() -> None:
    first, killed, last = launch(die_between_pulls, 3, timeout_s=30)
    assert killed.exit_code == -signal.SIGKILL
    for outcome in (first, last):
        assert outcome.error is not None
        assert re.match(r"step [12], batch \d+: rank 1 does not answer", outcome.error.text)


def misuse(kind: str) -> None:
    """Do what ends a job."""
    with join() as world:
        model = make_model("perceptron")
        optimizer = make_optimizer("sgd", model)
        plan = program(model, "uneven", "uneven")
        if kind == "incomplete":
            plan = ShardProgram.pushes_first(plan.pulls, plan.pushes[1:])
        if kind == "pulled first":
            plan = ShardProgram(plan.transfers[::-1])
        if kind == "begun":
            backward(model, "perceptron", 0, 0)
            optimizer.step()
            optimizer.state[next(model.parameters())]["momentum_buffer"] = torch.zeros(1)
        executor = ShardExecutor(model, plan, optimizer, world)
        for step in range(3):
            backward(model, "perceptron", world.rank, step)
            if step == 1 and world.rank == 1:
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            executor.step()
        executor.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("incomplete", "InvalidPlanError", r"push\.batches: the model's \S+ is not in the plan"),
        ("pulled first", "InvalidPlanError", r"pull\.batches\[0\]: pulls \S+ before all of it"),
        ("begun", "InvalidInputError", r"optimizer: expected the state of whole .* shape \(1,\)"),
        ("changed", "CommunicationError", r"step 1.*rank 1 stopped: the gradient of \S+ was chang"),
    ],
)
def test_misuse_is_noticed(kind: str, error: str, message: str) -> None:
    for one in errors(launch(misuse, 2, kind)):
        assert one.type == error
        assert re.search(message, one.text)


class Doubled(torch.optim.SGD):
    """Somebody's own."""


@pytest.mark.parametrize(
    "kind", [torch.optim.Adafactor, torch.optim.Muon, torch.optim.SparseAdam, Doubled]
)
def test_optimisers_that_need_whole_parameters_are_refused(kind: type[Optimizer]) -> None:
    with pytest.raises(InvalidInputError, match=f"SGD, Adam, .* ASGD.*got {kind.__name__}$"):
        check_elementwise(kind([nn.Parameter(torch.zeros(2, 2))], lr=0.1))  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_optimisers_that_have_begun_on_slices_are_refused(kind: type[Optimizer]) -> None:
    parameter = nn.Parameter(torch.zeros(2, 2))
    options: dict[str, Any] = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind([parameter], lr=0.1, **options)  # type: ignore[call-arg]
    check_elementwise(optimizer)
    parameter.grad = torch.ones(2, 2)
    optimizer.step()
    check_elementwise(optimizer)
    state = optimizer.state[parameter]
    key = next(key for key, value in state.items() if value.dim())
    state[key] = state[key].view(-1)
    with pytest.raises(InvalidInputError, match="the state of whole parameters"):
        check_elementwise(optimizer)
