"""Processor time of gradient transfers by bytes and by messages: our executor's against DDP's.

    python benchmarks/runtime_processor.py [--quick]

Ranks are processes of this machine that talk over loopback, so that nothing is shaped. A model of
a few large parameters, or of many small ones, each a message of its own, is trained plainly, by
torch's DDP with a bucket for each, and by our executor, with gloo's ring or with programs that our
interpreter follows. They take turns in one job, a few steps at a time. Counted is the processor
time of all threads of rank 0, without that of plain training in the same round: for the large ones
by megabyte, for the small ones by message. Ratios are medians of the rounds' own.

The threads: `ours` is Python (the model, hooks, copies, updates, additions of the interpreter),
`gloo` runs the steps of its ring, and `network` moves its bytes, the kernel's TCP included. Of the
last one most is spent waiting for a lock, without sleeping, where there are fewer cores than
threads; it depends on the load of the machine, the other two hardly.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from runtime_overhead import on_ranks
from tables import head, row
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from planner.families.collectives.exchange import halving_doubling_program
from planner.families.collectives.ring import ring_program
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime import AllReduce, BcubeAllReduce, Interpreter, World
from planner.runtime.executors.gradients import GradientExecutor

STEPS = 3
WARMUP = 2
LARGE = 8, 2**20
SMALL = 64, 2**10
PLAIN, DDP = "plain", "DDP"
THREADS = {"pt_gloo_runloop": "gloo", "gloo_tcp_loop": "network"}
"""What Linux calls gloo's threads; all others are ours, but for the store's."""
WAYS: dict[str, Callable[[World], AllReduce | None]] = {
    "executor, gloo's ring": lambda _: None,
    "executor, ring": lambda world: Interpreter(world, ring_program(world.size)),
    "executor, halving-doubling": lambda world: Interpreter(
        world, halving_doubling_program(world.size)
    ),
    "executor, BML": lambda world: BcubeAllReduce(world, 2, world.size.bit_length() - 1),
}


class Spent(NamedTuple):
    """Processor time of one step, in ns: of the process, and by thread."""

    whole: int
    threads: Counter[str]


class Sums(nn.Module):
    """Parameters whose gradients cost next to nothing."""

    def __init__(self, count: int, elements: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(elements) for _ in range(count))

    def forward(self) -> Tensor:
        """Add up all of them."""
        return torch.stack([weight.sum() for weight in self.weights]).sum()


def main() -> None:
    """Print a table: every way by what a megabyte takes, and what a small message does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, of two ranks")
    quick = parser.parse_args().quick
    head(("ranks", "how", *COLUMNS["ms a megabyte"], *COLUMNS["µs a message"]))
    for ranks in (2,) if quick else (2, 4):
        cells: dict[str, list[str]] = {name: [] for name in (DDP, *WAYS)}
        for (count, elements), divisor in (
            (LARGE, 4.0 * LARGE[0] * LARGE[1]),  # ns by byte are ms by megabyte
            (SMALL, 1e3 * SMALL[0]),
        ):
            times = on_ranks(ranks, spent, count, elements, 3 if quick else 15)[0]
            for name, row_of in cells.items():
                rounds = zip(times[name], times[DDP], times[PLAIN], strict=True)
                pairs = [(_less(one, plain), _less(ddp, plain)) for one, ddp, plain in rounds]
                shown = [median(one.whole for one, _ in pairs)]
                shown += [median(one.threads[of] for one, _ in pairs) for of in KINDS]
                row_of += [f"{value / divisor:.2f}" for value in shown]
                row_of.append(f"{median(one.whole / ddp.whole for one, ddp in pairs):.2f}")
        for name, row_of in cells.items():
            row((ranks, name, *row_of))


KINDS = ("ours", "gloo", "network")
COLUMNS = {
    what: (what, *(f"{kind}, {what}" for kind in KINDS), f"over DDP, {what}")
    for what in ("ms a megabyte", "µs a message")
}


def _less(one: Spent, other: Spent) -> Spent:
    threads = Counter({name: one.threads[name] - other.threads[name] for name in KINDS})
    return Spent(one.whole - other.whole, threads)


def spent(world: World, count: int, elements: int, rounds: int) -> dict[str, list[Spent]]:
    """Return what a step takes in each round, by way."""
    ways: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    executors = []
    for name in (PLAIN, DDP, *WAYS):
        model = Sums(count, elements)
        optimizer = SGD(model.parameters(), lr=1e-3)
        if name in WAYS:
            names = [one for one, _ in model.named_parameters()][::-1]
            program = GradientProgram(tuple(Batch((Piece(one),)) for one in names))
            summing = WAYS[name](world)
            executor = GradientExecutor(model, program, optimizer, world, summing)
            executors.append(executor)
            ways[name] = _attached(model, executor), executor.finish
        else:
            wrapped: nn.Module = model
            if name == DDP:
                size = elements * 4 / 2**20 * 0.99
                wrapped = DistributedDataParallel(
                    model, process_group=world.group, bucket_cap_mb=size
                )
            ways[name] = _plain(wrapped, optimizer), _nothing
    found: dict[str, list[Spent]] = {name: [] for name in ways}
    for turn in range(WARMUP + rounds):
        for name, (step, finish) in ways.items():
            distributed.barrier(group=world.group)
            before = _times()
            for _ in range(STEPS):
                step()
            finish()
            after = _times()
            if turn >= WARMUP:
                found[name].append(_between(before, after))
    distributed.barrier(group=world.group)
    for executor in executors:
        executor.close()
    return found


def _plain(model: nn.Module, optimizer: SGD) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return step


def _attached(model: nn.Module, executor: GradientExecutor) -> Callable[[], None]:
    def step() -> None:
        model().backward()
        executor.step()

    return step


def _nothing() -> None:
    """Finish nothing: all is done."""


def _times() -> dict[int, tuple[str, int]]:
    """Return what Linux says each thread has run for, in ns, with its kind."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            ran = int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
        found[int(task.name)] = THREADS.get(name, "ours"), ran
    return found


def _between(before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]]) -> Spent:
    threads: Counter[str] = Counter()
    for task, (kind, ran) in after.items():
        threads[kind] += (ran - before.get(task, (kind, 0))[1]) // STEPS
    return Spent(threads.total(), threads)


if __name__ == "__main__":
    main()
