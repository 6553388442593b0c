"""Gradient transfers are lazy; what executors hold and do; how messages lie in memory."""

import gc
import sys
import threading
import warnings
from collections import Counter
from itertools import count, pairwise
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import planner.runtime
from planner.model.errors import CommunicationError
from planner.programs import Batch, GradientProgram, Piece, ShardProgram
from planner.runtime.executors.base import Executor
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.messages import lay_out, means_of, messages_of
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.world.world import World
from tests.runtime.executors.test_training import by_any_program
from tests.runtime.faulty import Spied
from tests.runtime.jobs import in_each_rank
from tests.runtime.reference import backward, make_model, make_optimizer, take_steps
from tests.runtime.sharing import any_batches, executor_of


@in_each_rank()
def test_the_forward_pass_begins_before_the_last_batch(world: World) -> None:
    """A step's last batch goes only when the next step has computed all layers but the last."""
    model = make_model("perceptron")
    batches = tuple(
        Batch((Piece(f"{layer}.weight"), Piece(f"{layer}.bias")))
        for layer in ("first", "norm", "second", "last")
    )
    go, calls = threading.Event(), count(1)

    def hold() -> None:
        if next(calls) % len(batches) == 0:
            assert go.wait(5)
            go.clear()

    updates, held = make_optimizer("sgd", model), Spied(world, hold)
    executor = GradientExecutor(model, GradientProgram(batches), updates, world, held)

    def computed(*_: object) -> None:
        if executor.gate.pending:
            go.set()

    model.get_submodule("second").register_forward_hook(computed)
    go.set()  # for the first step, which waits
    take_steps(executor, range(3))
    go.set()
    executor.close()
    assert next(calls) == 3 * len(batches) + 1
    happened = executor.trace.events
    (second,) = (event for event in happened if (event.kind, event.step) == ("forward", 2))
    transfers = [event for event in happened if (event.kind, event.step) == ("transfer", 1)]
    assert [event.batch for event in transfers] == [0, 1, 2, 3]
    assert second.start_ns < transfers[-1].end_ns < second.end_ns
    # What has arrived is updated at once.
    updated = [event.batch for event in happened if (event.kind, event.step) == ("update", 1)]
    assert updated == sorted(set(updated))
    assert len(updated) > 1
    assert updated[-1] == 3


@in_each_rank()
def test_a_barrier_holds_the_forward_pass_back(world: World) -> None:
    model = make_model("perceptron")
    updates = make_optimizer("sgd", model)
    executor = by_any_program(0, world, model, updates, barrier=True)
    for step in range(3):
        backward(model, "perceptron", world.rank, step)
        executor.step()
        assert not executor.gate.pending
    executor.close()
    happened = executor.trace.events
    ends = [(one.step, one.end_ns) for one in happened if one.kind in ("transfer", "update")]
    begins = [(one.step, one.start_ns) for one in happened if one.kind == "forward"]
    assert {step for step, _ in ends} == {0, 1, 2}
    assert all(end <= begin for step, end in ends for later, begin in begins if later > step)


WIDTH = 1024


def held() -> int:
    """Return the bytes of all storages that tensors of this process have."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of objects that dislike to be looked at
        tensors = [tensor for tensor in gc.get_objects() if isinstance(tensor, Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def attached(width: int, model: nn.Module, updates: Optimizer, world: World) -> Executor:
    """Attach a model by batches with this number of parameters, or by slices if it is 0."""
    if not width:
        return executor_of("slices", model, updates, world)
    pieces = [Piece(name) for name, _ in model.named_parameters()]
    starts = range(0, len(pieces), width)
    batches = tuple(Batch(tuple(pieces[start : start + width])) for start in starts)
    return ShardExecutor(model, ShardProgram.pushes_first(batches, batches), updates, world)


def share_held(world: World, width: int) -> float:
    """Return the memory held after a backward pass under Adam, as a multiple of the parameters."""
    before = held()
    model: nn.Module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    size = sum(parameter.nbytes for parameter in model.parameters())
    executor = attached(width, model, torch.optim.Adam(model.parameters()), world)
    for step in range(3):
        model(torch.ones(1, WIDTH)).sum().backward()
        if step == 2:
            share = (held() - before) / size
        executor.step()
    executor.close()
    return share


@pytest.mark.slow
@in_each_rank()
def test_shards_save_memory(world: World) -> None:
    """DDP holds 5: parameters, gradients, buckets, and a state of two numbers for each."""
    # Parameters, gradients, state and mean of 1/N, and room for two messages.
    for width, most in ((2, 2 + 3 / 2 + 2 / 8), (8, 2 + 3 / 2 + 2 / 8), (0, 2 + 5 / 2)):
        assert 2 < share_held(world, width) < most + 0.05


def each_layer(size: int) -> tuple[nn.Module, GradientProgram]:
    """Return a model of as many layers, and a batch for each."""
    batches = (Batch((Piece(f"{n}.weight"), Piece(f"{n}.bias"))) for n in range(size))
    layers = (nn.Linear(4, 4) for _ in range(size))
    return nn.Sequential(*layers), GradientProgram(tuple(batches))


def train_step(executor: Executor) -> None:
    executor.model(torch.ones(2, 4)).sum().backward()
    executor.step()


def counted_steps(optimizer: Optimizer) -> list[None]:
    steps: list[None] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(None))
    return steps


RUNTIME = str(Path(planner.runtime.__file__).parent)


def count_work(world: World, size: int) -> tuple[int, int]:
    """Train with a batch and a group for each layer; return instructions of ours, and updates."""
    counted, counting = 0, False

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal counted
        if not frame.f_code.co_filename.startswith(RUNTIME):
            return None
        frame.f_trace_opcodes = True
        counted += counting and event == "opcode"
        return trace

    threading.settrace(trace)
    model, program = each_layer(size)
    optimizer = SGD([{"params": [*layer.parameters()]} for layer in model.children()], lr=0.1)
    updates = counted_steps(optimizer)
    permits = threading.Semaphore(0)  # each message waits for somebody who waits for it

    def hold() -> None:
        assert permits.acquire(timeout=30)

    executor = GradientExecutor(model, program, optimizer, world, Spied(world, hold))
    wait = executor.channel.wait

    def let_go(ticket: Ticket) -> None:
        permits.release()
        wait(ticket)

    executor.channel.wait = let_go  # type: ignore[method-assign]
    for _ in range(2):
        train_step(executor)
    updates.clear()
    counting = True
    sys.settrace(trace)
    train_step(executor)
    sys.settrace(None)
    counting = False
    counts = counted, len(updates)
    executor.close()
    return counts


@in_each_rank(1)
def test_work_grows_with_the_number_of_layers_and_not_faster(world: World) -> None:
    few, many = (count_work(world, size) for size in (15, 90))
    assert (few[1], many[1]) == (15, 90)  # each batch came alone: there is nothing slower
    assert few[0] > 0
    assert many[0] < 1.5 * 6 * few[0]


@in_each_rank()
def test_all_that_has_arrived_is_updated_by_one_call(world: World) -> None:
    model, program = each_layer(10)
    optimizer = SGD(model.parameters(), lr=0.1)
    updates = counted_steps(optimizer)
    executor = GradientExecutor(model, program, optimizer, world)
    for _ in range(2):
        train_step(executor)
    while sum(event.kind == "transfer" for event in executor.trace.events) < 20:
        pass
    updates.clear()
    model(torch.ones(2, 4))
    count = len(updates)
    executor.close()
    assert count == 1


@in_each_rank(1)
def test_a_known_failure_ends_the_backward_pass(world: World) -> None:
    """A gradient that completes a transfer stops a job that another rank has left."""
    model, program = each_layer(10)
    executor = GradientExecutor(model, program, SGD(model.parameters(), lr=0.1), world)
    loss = model(torch.ones(2, 4)).sum()
    failed = CommunicationError("rank 1 has left")
    executor.channel._error = failed
    with pytest.raises(CommunicationError) as caught:
        loss.backward()
    assert caught.value is failed
    assert model.get_parameter("0.weight").grad is None
    executor.close()


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from([torch.float32, torch.float64])),
        min_size=1,
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
def test_every_mean_is_found_where_its_pieces_were_summed_up(
    kinds: list[tuple[int, torch.dtype]], draw: Random
) -> None:
    """Messages hold their pieces once, and share no memory."""
    parameters = {
        f"p{number}": nn.Parameter(torch.zeros(size, dtype=dtype))
        for number, (size, dtype) in enumerate(kinds)
    }
    batches = any_batches(draw, parameters)
    spans = list[tuple[int, int]]()
    for batch, stretches in zip(batches, lay_out(batches, parameters), strict=True):
        assert Counter(
            (name, elements.start) for stretch in stretches for name, elements in stretch.pieces
        ) == Counter(
            (piece.parameter, piece.start // parameters[piece.parameter].element_size())
            for piece in batch.pieces
        )
        for stretch in stretches:
            assert len(stretch) == len(stretch.flat)
            start = stretch.flat.data_ptr()
            spans.append((start, start + stretch.flat.nbytes))
    spans.sort()
    assert all(former[1] <= latter[0] for former, latter in pairwise(spans))

    messages = messages_of(batches, parameters, 2)
    gradients = [torch.rand_like(parameter) for parameter in parameters.values()]
    with torch.no_grad():
        for message in messages:
            for flat, filling in message.packing([(gradient, 0) for gradient in gradients]):
                assert [0, *filling][-1] == flat.numel()
                flat.mul_(2)  # as if another rank had sent the same
    for mean, gradient in zip(means_of(messages, parameters.values()), gradients, strict=True):
        assert torch.equal(mean(), gradient)


def test_a_parameter_cut_at_the_borders_of_batches_needs_no_copy() -> None:
    parameters = {name: nn.Parameter(torch.zeros(4)) for name in "abc"}
    several = [
        Batch((Piece("b", 8, 16), Piece("c"))),
        Batch((Piece("b", 4, 8),)),
        Batch((Piece("b", 0, 4), Piece("a"))),
    ]
    means = means_of(messages_of(several, parameters, 2), parameters.values())
    first, second = means[1](), means[1]()
    first.fill_(1)
    assert second.tolist() == [1] * 4
