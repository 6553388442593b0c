"""What executing a plan costs beside the network: processor time and memory, against DDP.

    python benchmarks/runtime_overhead.py [--quick]

Ranks are processes of this machine that talk over loopback, each with its threads on a processor of
its own where there are enough. Time: a model of many small layers, of which a plan's hooks, copies
and updates are a large part, is trained plainly, under DDP with buckets of a size, and by executors
whose batches have that size; the three take turns in one job, step by step. What is printed is the
processor time of a step, of all threads of rank 0, over that of plain training: medians of the
rounds' ratios.

Hidden: the same small layers with more and more samples, so that computation grows and what is sent
does not, over links nobody waits for. What is printed is the time of a step under DDP, and how much
longer one takes as attached, in ms and as a share: medians of the rounds' differences.

Memory: a model of a few large layers is trained for three steps in jobs of its own, and what a
rank's resident memory grew by at most (``VmHWM`` of Linux; the median of the ranks), the model
included, is divided by the bytes of its parameters.
"""

import argparse
import gc
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tables import head, row
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer

from planner.families.bigdl.problem import Exchange
from planner.programs import Batch, GradientProgram, Piece, ShardProgram, SliceProgram
from planner.runtime import World, join
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor

LAYERS, WIDTH = 500, 64
LARGE_LAYERS, LARGE_WIDTH = 16, 1024
BATCHES = 8
WARMUP = 4

OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "SGD": lambda model: SGD(model.parameters(), lr=1e-3),
    "Adam": lambda model: Adam(model.parameters(), lr=1e-3),
}
KINDS = ("plain", "DDP", "caramel", "ibatch", "bigdl")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, of two ranks at most")
    quick = parser.parse_args().quick
    head(("ranks", "batches", "DDP over plain", "attached over plain", "attached over DDP"))
    for ranks in (1, 2):
        for batches in (2, 25, LAYERS):
            ddp, ours, both = on_ranks(ranks, overhead, batches, 5 if quick else 40)[0]
            row((ranks, batches, f"{ddp:.2f}", f"{ours:.2f}", f"{both:.2f}"))
    sizes = (2,) if quick else (2, 4)
    print()
    head(("optimiser", "ranks", *KINDS))
    for optimizer in OPTIMIZERS:
        for ranks in sizes:
            peaks = [median(on_ranks(ranks, peak, kind, optimizer)) for kind in KINDS]
            row((optimizer, ranks, *(f"{one:.2f}" for one in peaks)))
    print()
    head(("samples", "step under DDP (ms)", "attached longer (ms)", "attached longer"))
    for samples in (8, 512) if quick else (8, 128, 512, 2048):
        ddp_s, longer_s = on_ranks(2, hidden, samples, 5 if quick else 40)[0]
        row((samples, f"{1e3 * ddp_s:.1f}", f"{1e3 * longer_s:.2f}", f"{longer_s / ddp_s:.1%}"))


def on_ranks(size: int, worker: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run ``worker(world, *arguments)`` in several processes; return what each one returned."""
    context = multiprocessing.get_context("fork")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pipes, processes = [], []
    for rank in range(size):
        receiver, sender = context.Pipe(duplex=False)
        job = (rank, size, port, sender, worker, arguments)
        processes.append(context.Process(target=_work, args=job, daemon=True))
        processes[-1].start()
        sender.close()
        pipes.append(receiver)
    try:
        return [receiver.recv() for receiver in pipes]
    except EOFError:
        raise SystemExit("a rank stopped") from None
    finally:
        for process in processes:
            process.join(10)
            process.kill()


def _work(
    rank: int,
    size: int,
    port: int,
    sender: Connection,
    worker: Callable[..., Any],
    arguments: Sequence[Any],
) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    torch.set_num_threads(1)
    processors = sorted(os.sched_getaffinity(0))
    if size <= len(processors):
        os.sched_setaffinity(0, {processors[rank]})
    with join() as world:
        sender.send(worker(world, *arguments))


def layers(count: int, width: int) -> nn.Module:
    """Return linear layers, one behind the other."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def batches_of(model: nn.Module, count: int) -> tuple[Batch, ...]:
    """Return the parameters in `count` batches, in the order of the backward pass."""
    names = [name for name, _ in model.named_parameters()][::-1]
    each = -(-len(names) // count)
    return tuple(
        Batch(tuple(map(Piece, names[start : start + each])))
        for start in range(0, len(names), each)
    )


def overhead(world: World, batches: int, rounds: int) -> tuple[float, float, float]:
    """Return medians of ratios: DDP and executor over plain, executor over DDP."""
    rows = _turns(world, batches, rounds, 8, time.process_time)
    pairs = (1, 0), (2, 0), (2, 1)
    one, two, three = (median(row[a] / row[b] for row in rows) for a, b in pairs)
    return one, two, three


def hidden(world: World, samples: int, rounds: int) -> tuple[float, float]:
    """Return medians: of a step under DDP, and of how much longer an attached one takes, in s."""
    rows = _turns(world, BATCHES, rounds, samples, time.perf_counter)
    return median(row[1] for row in rows), median(row[2] - row[1] for row in rows)


def _turns(
    world: World, batches: int, rounds: int, samples: int, clock: Callable[[], float]
) -> list[list[float]]:
    """Return what steps take by turns: plain, under DDP and attached, on this rank."""
    inputs = torch.randn(samples, WIDTH)
    plain, wrapped, planned = (layers(LAYERS, WIDTH) for _ in range(3))
    size = sum(parameter.numel() * parameter.element_size() for parameter in plain.parameters())
    ddp = DistributedDataParallel(
        wrapped, process_group=world.group, bucket_cap_mb=size / batches / 2**20 * 0.99
    )
    program = GradientProgram(batches_of(planned, batches))
    optimizer = OPTIMIZERS["SGD"]
    executor = GradientExecutor(planned, program, optimizer(planned), world)

    def by(model: nn.Module, updates: Optimizer) -> Callable[[], None]:
        def step() -> None:
            updates.zero_grad()
            model(inputs).sum().backward()
            updates.step()

        return step

    def attached() -> None:
        planned(inputs).sum().backward()
        executor.step()

    ways = by(plain, optimizer(plain)), by(ddp, optimizer(wrapped)), attached
    rows = []
    for turn in range(WARMUP + rounds):
        row = []
        for way in ways:
            start = clock()
            way()
            row.append(clock() - start)
        if turn >= WARMUP:
            rows.append(row)
    executor.close()
    return rows


def peak(world: World, kind: str, optimizer: str) -> float:
    """Return the most memory that training took, in bytes per byte of parameters."""
    train(world, kind, optimizer, LARGE_LAYERS, 8)  # loads whatever is loaded at its first use
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _memory("VmRSS")
    size = train(world, kind, optimizer, LARGE_LAYERS, LARGE_WIDTH)
    return (_memory("VmHWM") - before) / size


def train(world: World, kind: str, optimizer: str, count: int, width: int) -> int:
    """Train linear layers for three steps; return the size of their parameters in bytes."""
    model = layers(count, width)
    updates = OPTIMIZERS[optimizer](model)
    forward: nn.Module = model
    step: Callable[[], Any] = updates.step
    executor = None
    if kind == "DDP":
        forward = DistributedDataParallel(model, process_group=world.group)
    elif kind != "plain":
        executor = executor_of(kind, model, updates, world)
        step = executor.step
    for _ in range(3):
        if executor is None:
            updates.zero_grad()
        forward(torch.randn(8, width)).sum().backward()
        step()
    if executor is not None:
        executor.close()
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def executor_of(kind: str, model: nn.Module, updates: Optimizer, world: World) -> Executor:
    """Return an executor of a plan of `BATCHES` batches, or of one slice a rank."""
    pushes = batches_of(model, BATCHES)
    if kind == "caramel":
        return GradientExecutor(model, GradientProgram(pushes), updates, world)
    if kind == "ibatch":
        return ShardExecutor(model, ShardProgram.pushes_first(pushes[::-1], pushes), updates, world)
    plan = Exchange(
        sum(parameter.numel() for parameter in model.parameters()), world.size, "rotated"
    )
    ranks = range(world.size)
    program = SliceProgram(tuple(map(plan.slice, ranks)), tuple(map(plan.pull_order, ranks)))
    return SliceExecutor(model, program, updates, world)


def _memory(field: str) -> int:
    """Return a field of what Linux says about this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(field))
    return int(found.split()[1]) * 1024


if __name__ == "__main__":
    main()
