"""Jobs on an emulated cluster: what every host runs, and variants of a step that take turns."""

import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any

import msgspec
import torch
from emulated_hosts import Host, Layout
from emulated_network import cluster
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from planner import Profile, TableCost
from planner.jsonio.graphs import documents_of
from planner.model.fitting import Sweep, fit_network
from planner.profiling import measure
from planner.profiling.samples import loss_of
from planner.runtime import AllReduce, World, attach
from planner.runtime.executors.trace import Event
from planner.runtime.measuring.measured import StepTime, mean_time, steps_of
from planner.runtime.measuring.trial import timed_steps

Times = dict[str, tuple[tuple[StepTime, ...], ...]]

_RATE = 1e-3

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

_HEAP_BYTES = 3 * 2**29
"""Of `take_memory`. A host of 15 variants of a model of 11 MiB had 1.4 GiB, torch included, and the
largest has 24 MiB. From 2 GiB on it would be given back: M_TRIM_THRESHOLD has 31 bits."""


Trained = tuple[nn.Module, tuple[Tensor, ...]]
"""A model, and what its forward pass takes."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a training step.

    Parameters
    ----------
    name : str
        As in the tables.
    plan : object
        A plan, or a list of plans; None for torch's own DistributedDataParallel.
    predicted_ns : int or None
        What a step is predicted to last.
    options : dict
        Of DistributedDataParallel.
    all_reduce : AllReduce or None
        How gradients are summed up, if not by gloo's ring.
    wrap : callable or None
        Makes a model one that communicates by itself; DistributedDataParallel if None, and no plan.
    """

    name: str
    plan: Any
    predicted_ns: int | None
    options: dict[str, Any] = field(default_factory=dict)
    all_reduce: AllReduce | None = None
    wrap: Callable[[nn.Module], nn.Module] | None = None


SHARED = (
    "torch._dynamo.convert_frame",  # which the first optimiser loads
    "torch.distributed.fsdp",
    "planner.families.caramel.exact_split",
)
"""What takes long to load, and every host would load for itself."""


def on_hosts(
    layout: Layout, rate: int, worker: Callable[..., Any], *arguments: Any, timeout_s: float
) -> Any:
    """Run ``worker(*arguments)`` on every host of a new cluster; return what rank 0 returned.

    Parameters
    ----------
    layout : Layout
        The cluster.
    rate : int
        Of its links, in bits a second.
    worker, arguments
        What to run, in a fork of this process: it may be any function.
    timeout_s : float
        When to give up.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    for name in SHARED:
        import_module(name)
    gc.collect()
    gc.freeze()  # else the first collection of each host looks at all of torch's objects
    with cluster(layout, rate) as hosts:
        processes = [
            context.Process(target=_work, args=(host, sender, worker, arguments), daemon=True)
            for host in hosts
        ]
        try:
            for process in processes:
                process.start()
            sender.close()
            ready = wait([receiver, *(process.sentinel for process in processes)], timeout_s)
            if receiver not in ready and not receiver.poll(5):
                raise SystemExit("a host stopped" if ready else f"no result in {timeout_s} s")
            try:
                result = receiver.recv()
            except EOFError:
                raise SystemExit("a host stopped") from None
            for process in processes:
                process.join(10)
        finally:
            for process in processes:
                process.kill()
                process.join()
    return result


def keep_memory() -> None:
    """Let this process keep the memory that it frees, as MALLOC_TRIM_THRESHOLD_ and so on do.

    Otherwise steps take thousands of page faults or none, by where in memory their tensors lie.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def take_memory() -> None:
    """Let this process, which keeps memory, have what it will need, before anything is timed.

    A virtual machine returns its free memory to its host, and may wait seconds to get some back: a
    step that needs more than the steps before it then stands still.
    """
    b"1" * _HEAP_BYTES  # written, and freed


def _work(
    host: Host, sender: Connection, worker: Callable[..., Any], arguments: Sequence[Any]
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(host.environment())
    host.enter()
    keep_memory()
    torch.set_num_threads(1)
    try:
        result = worker(*arguments)
    except Exception:  # whatever it is, this host stops
        sys.stderr.write(f"host {host.index}: {traceback.format_exc()}")
        sys.exit(1)
    if host.index == 0:
        sender.send(result)


def profiled(trained: Trained, name: str, repetitions: int) -> Profile:
    """Return the profile of a model, measured on this host while all others do the same."""
    return measure(
        *trained,
        name=name,
        source="benchmarks",
        warmup=1,
        repetitions=repetitions,
        optimizer=updates_of,
    )


def updates_of(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return the optimiser of all steps."""
    return torch.optim.SGD(parameters, lr=_RATE)


def table_of(sweep: Sweep) -> list[list[int]]:
    """Return the cost table of a sweep as requests take it."""
    cost = fit_network(sweep).cost("table")
    assert isinstance(cost, TableCost)
    return [list(point) for point in cost.points]


def caramel_request(
    profile: Profile, table: list[list[int]], method: str, **network: Any
) -> dict[str, Any]:
    """Return what to ask `planner.solve` for a plan of gradients.

    Parameters
    ----------
    profile : Profile
        The model.
    table : list of [int, int]
        Bytes and ns of all-reduces.
    method : str
        Of `caramel`.
    **network
        Further fields of the network.
    """
    ops, parameters = documents_of(profile.dataflow())
    order = {} if profile.op_order is None else {"op_order": profile.op_order}
    return {
        "problem": "caramel",
        "method": method,
        "ops": msgspec.to_builtins(ops),
        "parameters": msgspec.to_builtins(parameters),
        "network": {"table": table, **network},
        "element_bytes": 4,
        "workers": 1,
        **order,
    }


class _Planned:
    """Training steps as an executor does them."""

    def __init__(self, world: World, trained: Trained, variant: Variant) -> None:
        model, self._inputs = trained
        optimizer = updates_of(model.parameters())
        self._model = model
        self._executor = attach(
            model, variant.plan, optimizer, world, all_reduce=variant.all_reduce
        )

    def run(self, steps: int) -> tuple[Event, ...]:
        self._executor.trace.clear()
        for _ in range(steps):
            loss_of(self._model(*self._inputs)).backward()
            self._executor.step()
        self._executor.finish()
        return self._executor.trace.events

    def close(self) -> None:
        self._executor.close()


class _Plain:
    """Training steps as torch's DistributedDataParallel does them, or another wrapper."""

    def __init__(self, world: World, trained: Trained, variant: Variant) -> None:
        model, self._inputs = trained
        self._world = world
        if variant.wrap is None:
            wrapped: nn.Module = DistributedDataParallel(
                model, process_group=world.group, **variant.options
            )
        else:
            wrapped = variant.wrap(model)
        self._model = wrapped
        self._optimizer = updates_of(wrapped.parameters())

    def run(self, steps: int) -> tuple[Event, ...]:
        return tuple(timed_steps(self._model, self._inputs, self._optimizer, self._world, steps))

    def close(self) -> None:
        pass


def take_turns(
    world: World,
    make: Callable[[], Trained],
    variants: Sequence[Variant],
    *,
    rounds: int,
    steps: int,
    warmup: int = 2,
    about: str = "",
) -> tuple[Times, dict[str, tuple[Event, ...]]]:
    """Run all variants in turn, several times; return their times, and what happened last.

    Each has a model of its own, and communicates only while it has its turn. A turn begins on all
    ranks at once (else, where transfers reach into the next forward pass, a rank that is late makes
    others wait a step later), with one step that does not count. Every round begins with another
    variant.

    Parameters
    ----------
    world : World
        The job.
    make : callable
        Returns a new model, the same on all ranks.
    variants : sequence of Variant
        The same on all ranks.
    rounds, steps : int
        How often each has its turn, and how many steps it then runs that count.
    warmup : int
        Steps of each before the first round, which has one more of them in each turn. After two
        DDP's buckets are final, and executors no longer wait in each step.
    about : str
        What this is about, for who looks on.

    Returns
    -------
    dict, dict
        For each variant the steps of each round, as means over the ranks; and the
        events of its last turn on this rank.
    """
    runs = {variant.name: _run_of(world, make(), variant) for variant in variants}
    for run in runs.values():
        run.run(warmup)
    own: dict[str, list[list[StepTime]]] = {name: [] for name in runs}
    last: dict[str, tuple[Event, ...]] = {}
    names = list(runs)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if world.rank == 0 and sys.stderr.isatty():
                text = f"{about}, round {turn + 1} of {rounds}, {name}"
                print(f"\r{text:78}", end="", file=sys.stderr)
            world.gather(f"turn {turn} of {name}", "")
            last[name] = runs[name].run(1 + steps)
            found = steps_of(last[name])
            own[name].append([found[number] for number in sorted(found)][-steps:])
    if world.rank == 0 and sys.stderr.isatty():
        print(f"\r{'':78}\r", end="", file=sys.stderr)
    for run in runs.values():
        run.close()
    ranks = [json.loads(text) for text in world.gather("times", json.dumps(own))]
    return {
        name: tuple(
            tuple(mean_time(row[name][turn][step] for row in ranks) for step in range(steps))
            for turn in range(rounds)
        )
        for name in names
    }, last


def _run_of(world: World, trained: Trained, variant: Variant) -> _Planned | _Plain:
    kind = _Plain if variant.plan is None else _Planned
    return kind(world, trained, variant)
