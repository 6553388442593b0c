"""Trial runs: training steps under a plan or plain DDP, with the measurements of all ranks."""

import copy
import gc
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from planner.model.machine import Load, affinity
from planner.profiling.calls import errors_of
from planner.profiling.samples import loss_of
from planner.programs import Plan, UnitProgram
from planner.runtime.attaching import attach
from planner.runtime.executors.trace import Event
from planner.runtime.measuring.measured import StepTime, mean_steps
from planner.runtime.world.world import World
from planner.solving.diagnostics import MeasurementConditions

Progress = Callable[[int, int], None]


class Trial(NamedTuple):
    """The measurements of a run."""

    events: tuple[tuple[Event, ...], ...]  # of each rank, warm-up included
    warmup: int  # first steps that do not count

    @property
    def steps(self) -> tuple[StepTime, ...]:
        """The times of each step that counts, as means over the ranks."""
        return mean_steps(self.events, self.warmup)


def run_plan(
    model: nn.Module,
    inputs: tuple[Any, ...],
    plan: Plan | list[Plan] | tuple[Plan, ...],
    optimizer: Optimizer,
    world: World,
    *,
    steps: int,
    warmup: int = 2,
    progress: Progress | None = None,
) -> Trial:
    """Run training steps under a plan. Every rank has to call it.

    Parameters
    ----------
    model, plan, optimizer, world
        See `planner.runtime.attach`.
    inputs : tuple
        Positional arguments of the model's forward pass, the same in each step.
    steps, warmup : int
        Steps that count, and steps before them.
    progress : callable, optional
        Called after each step with the number done and the total.

    Raises
    ------
    MeasurementError
        If the model raises an error; the other ranks then end with a `CommunicationError`.
    """
    with attach(model, plan, optimizer, world) as executor:
        for done in range(warmup + steps):
            with errors_of("forward"):
                loss = loss_of(model(*inputs))
            with errors_of("backward"):
                loss.backward()
            executor.step()
            if progress is not None:
                progress(done + 1, warmup + steps)
    return Trial(_gathered(world, executor.trace.events), warmup)


def run_ddp(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    world: World,
    *,
    steps: int,
    warmup: int = 3,
    progress: Progress | None = None,
    **options: Any,
) -> Trial:
    """Run training steps under `DistributedDataParallel`; `options` are its own.

    DDP's buckets are final from the second step on, so use a warm-up.
    """
    wrapped = DistributedDataParallel(model, process_group=world.group, **options)
    events = timed_steps(wrapped, inputs, optimizer, world, warmup + steps, progress)
    return Trial(_gathered(world, events), warmup)


def run_fsdp2(
    model: nn.Module,
    inputs: tuple[Any, ...],
    program: UnitProgram,
    make: Callable[[Iterator[nn.Parameter]], Optimizer],
    world: World,
    *,
    steps: int,
    warmup: int = 2,
    progress: Progress | None = None,
    default: bool = False,
) -> Trial:
    """Run training steps of a copy of the model, which FSDP2 shards in the units of a plan.

    With `default` FSDP2 prefetches and frees the units as it does by itself. `make` makes the
    optimiser of the sharded parameters.
    """
    from torch.distributed.device_mesh import init_device_mesh

    from planner.runtime.fsdp2 import as_fsdp2, as_units

    shape = (program.replicas, program.shards)[program.replicas == 1 :]
    with world.refusing():
        mesh = init_device_mesh("cpu", shape) if prod(shape) == world.size else None
        sharded = (as_units if default else as_fsdp2)(copy.deepcopy(model), program, mesh)
    made = make(sharded.parameters())
    try:
        events = timed_steps(sharded, inputs, made, world, warmup + steps, progress)
        return Trial(_gathered(world, events), warmup)
    finally:
        del sharded, made
        gc.collect()  # FSDP2's hooks and the copy refer to each other


def timed_steps(
    wrapped: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    world: World,
    steps: int,
    progress: Progress | None = None,
) -> list[Event]:
    """Run training steps of a model that communicates by itself; return their events."""
    events: list[Event] = []
    end = time.monotonic_ns()
    for step in range(steps):
        start = end
        with world.transferring(step):
            optimizer.zero_grad()
            loss = loss_of(wrapped(*inputs))
            middle = time.monotonic_ns()
            loss.backward()
            after = time.monotonic_ns()
            optimizer.step()
        end = time.monotonic_ns()
        events += [
            Event("forward", step, -1, start, middle),
            Event("backward", step, -1, middle, after),
            Event("step", step, -1, start, end),
        ]
        if progress is not None:
            progress(step + 1, steps)
    return events


def _gathered(world: World, events: Iterable[Event]) -> tuple[tuple[Event, ...], ...]:
    texts = world.gather("what was measured", json.dumps(list(events)))
    return tuple(tuple(Event(*row) for row in json.loads(text)) for text in texts)


def circumstances(world: World, before: Load) -> tuple[MeasurementConditions, tuple[int, ...]]:
    """Return the load on rank 0's machine since `before`, and the threads of each rank.

    Every rank has to call it; the load is known to rank 0 alone.
    """
    now = Load.now()
    own = platform.node(), torch.get_num_threads(), now.own_s - before.own_s, sorted(affinity())
    ranks = [json.loads(text) for text in world.gather("the load", json.dumps(own))]
    return load_of(ranks, before, now), tuple(threads for _, threads, *_ in ranks)


def load_of(ranks: Sequence[Any], before: Load, now: Load) -> MeasurementConditions:
    """Return the load on the first rank's machine.

    `ranks` hold for each its machine, threads, processor time (s) and allowed processors.
    """
    here = [rank for rank in ranks if rank[0] == ranks[0][0]]
    return MeasurementConditions(
        threads=sum(threads for _, threads, _, _ in here),
        processors=len({number for *_, allowed in here for number in allowed}),
        others=now.others(before, sum(own_s for _, _, own_s, _ in here)),
    )
