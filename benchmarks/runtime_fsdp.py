"""Executes plans of fully sharded training by FSDP2 on an emulated cluster, beside its default.

    python benchmarks/runtime_fsdp.py [--quick]

Hosts on one switch, links of 100 Mbit/s. They share this machine's cores, so layers wait instead of
computing (`runtime_waiting`): times and sizes are those of a shipped profile, scaled so that a step
computes for some time, and gathering all parameters twice and scattering all gradients takes a
given multiple of that. Every host times its layers, all-gathers and reduce-scatters; rank 0 plans
with those numbers; then all variants take turns:

- FSDP2: as it is on CPUs, where it waits for each collective;
- FSDP2, queued: the same units, prefetched as FSDP2's streams do it on GPUs;
- plan, same memory: what `planner` finds in the memory that FSDP2's default takes;
- plan: what it finds where memory does not bind.

A step lasts from the beginning of the forward pass to the end of the backward pass, when all is
scattered: the optimiser is not in it.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import torch
from emulated_hosts import Layout
from emulated_network import reason_unavailable
from runtime_jobs import on_hosts, profiled, table_of, updates_of
from runtime_report import Measured, against, as_measured, summary, table
from runtime_waiting import ELEMENT_BYTES, LABEL, Unit, load, scaled_units, waiting
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from planner import Profile, TableCost
from planner.families import fsdp
from planner.families.fsdp.baselines import BASELINES
from planner.families.fsdp.evaluation import evaluate
from planner.jsonio.fsdp import answer
from planner.model.fitting import Sweep, Timing, sweep_sizes
from planner.model.units import format_bytes
from planner.programs import UnitProgram, program_of
from planner.runtime import World, join
from planner.runtime.fsdp2 import as_fsdp2

RATE = 100_000_000
MODEL = "gpt2_small"
HOSTS = (2, 4)
RATIOS = (0.5, 2.0)
FSDP2, QUEUED, SAME, PLAN = "FSDP2", "FSDP2, queued", "plan, same memory", "plan"

Rows = list[list[int]]


def units_for(hosts: int, compute_s: float, rho: float) -> tuple[Unit, ...]:
    """Return the units of a model: gloo's reduce-scatter moves as much as an all-reduce."""
    size = rho * compute_s * RATE / 8 / (4 * (hosts - 1) / hosts)
    return tuple(
        replace(unit, elements=(-(-sum(unit.elements) // hosts) * hosts,))
        for unit in scaled_units(load(MODEL), compute_s, size)
    )


def times_of(world: World, kind: str, sizes: Sequence[int], samples: int) -> Rows:
    """Return what a collective of each size takes, one behind the other."""
    timings = []
    for size in sizes:
        elements = -(-size // ELEMENT_BYTES // world.size) * world.size
        whole, part = torch.zeros(elements), torch.zeros(elements // world.size)
        collective: Callable[[], object]
        if kind == "all_gather":
            collective = partial(distributed.all_gather_single, whole, part)
        else:
            collective = partial(distributed.reduce_scatter_single, part, whole)
        count = max(2, min(20, 2_000_000 // size))
        collective()
        times = []
        for _ in range(samples):
            world.gather(f"{kind} {size}", "")
            begun = time.perf_counter_ns()
            for _ in range(count):
                collective()
            times.append((time.perf_counter_ns() - begun) // count)
        ranks = [json.loads(text) for text in world.gather("times", json.dumps(times))]
        slowest = tuple(max(several) for several in zip(*ranks, strict=True))
        timings.append(Timing(size, 1, slowest))
    name: Any = kind
    return table_of(Sweep(name, "gloo", world.size, 1, samples, tuple(timings)))


def problem_of(profile: Profile, rows: dict[str, Rows], hosts: int) -> fsdp.Problem:
    """Return what to plan."""
    layers = profile.chain().layers
    costs = {name: TableCost(tuple((size, ns) for size, ns in row)) for name, row in rows.items()}
    return fsdp.Problem(
        forward_ns=[layer.forward_ns for layer in layers],
        backward_ns=[layer.backward_ns for layer in layers],
        parameter_bytes=[layer.parameter_bytes for layer in layers],
        meshes=[
            fsdp.Mesh(
                shards=hosts,
                all_gather=costs["all_gather"],
                reduce_scatter=costs["reduce_scatter"],
            )
        ],
        names=[layer.name for layer in layers],
    )


def planned(problem: fsdp.Problem) -> dict[str, Any]:
    """Return answers and predictions by the names of variants."""
    default = BASELINES["fsdp2"](problem, 0)
    known = evaluate(problem, default)
    waits = sum(load.gather_ns * 2 + load.reduce_ns for load in known.loads)
    results = {
        QUEUED: fsdp.solve(problem, method="fsdp2"),
        SAME: fsdp.solve(problem.within(known.peak_bytes)),
        PLAN: fsdp.solve(problem),
    }
    answers = {
        name: msgspec.to_builtins(answer(problem, result)) for name, result in results.items()
    }
    return {"answers": answers, "waits_ns": problem.compute_ns + waits}


class Run:
    """Training steps of a model that FSDP2 has sharded."""

    def __init__(self, units: Sequence[Unit], shard: Callable[[nn.Module], nn.Module]) -> None:
        model, self._inputs = waiting(units)
        self._model = shard(model)
        self._updates = updates_of(self._model.parameters())

    def steps(self, count: int) -> list[int]:
        """Run some steps; return how long each takes."""
        times = []
        for _ in range(count):
            begun = time.perf_counter_ns()
            self._model(*self._inputs).sum().backward()
            times.append(time.perf_counter_ns() - begun)
            self._updates.step()
            self._updates.zero_grad()
        return times


def by_default(model: nn.Module, mesh: Any) -> nn.Module:
    """Shard each unit, and the rest, as FSDP2's documentation does."""
    for unit in model.children():
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def take_turns(
    world: World, runs: dict[str, Run], rounds: int, steps: int
) -> dict[str, list[tuple[int, ...]]]:
    """Run all variants in turn; return the steps of each round, as long as on the slowest rank."""
    own: dict[str, list[list[int]]] = {name: [] for name in runs}
    for run in runs.values():
        run.steps(2)
    names = list(runs)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            world.gather(f"turn {turn} of {name}", "")
            own[name].append(runs[name].steps(1 + steps)[1:])
    ranks = [json.loads(text) for text in world.gather("times", json.dumps(own))]
    return {
        name: [
            tuple(
                max(several) for several in zip(*(rank[name][turn] for rank in ranks), strict=True)
            )
            for turn in range(rounds)
        ]
        for name in names
    }


def measure(hosts: int, rho: float, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one setting on one host; rank 0 returns what it found."""
    world = join(120)
    try:
        units = units_for(hosts, options.compute, rho)
        size = sum(unit.bytes for unit in units)
        sizes = sweep_sizes(size)
        rows = {
            kind: times_of(world, kind, sizes, options.samples)
            for kind in ("all_gather", "reduce_scatter")
        }
        own = profiled(waiting(units), MODEL, options.repetitions)
        text = json.dumps(planned(problem_of(own, rows, hosts))) if world.rank == 0 else ""
        plans = json.loads(world.gather("the plans", text)[0])
        mesh = init_device_mesh("cpu", (hosts,))
        runs = {FSDP2: Run(units, partial(by_default, mesh=mesh))}
        predicted = {FSDP2: plans["waits_ns"]}
        for name, known in plans["answers"].items():
            program = program_of(known)
            assert isinstance(program, UnitProgram)
            runs[name] = Run(units, partial(as_fsdp2, program=program, mesh=mesh))
            predicted[name] = known["iteration_ns"]
        times = take_turns(world, runs, options.rounds, options.steps)
        peaks = {name: known["peak_bytes"] for name, known in plans["answers"].items()}
        return {
            "about": f"{format_bytes(size)} of parameters; "
            + ", ".join(f"{name}: {format_bytes(peak)} at most" for name, peak in peaks.items()),
            "tables": [as_measured(kind, row) for kind, row in rows.items()],
            "variants": [(name, predicted[name], rounds) for name, rounds in times.items()],
        }
    finally:
        world.leave()


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="what are plans of fully sharded training worth against FSDP2's default?",
        epilog="example: %(prog)s --hosts 2 --ratios 2",
    )
    parser.add_argument("--quick", action="store_true", help="one setting, few short steps")
    parser.add_argument("--hosts", nargs="+", type=int, default=list(HOSTS))
    parser.add_argument("--ratios", nargs="+", type=float, default=list(RATIOS), metavar="RHO")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--steps", type=int, default=2, help="of each variant a round; default: 2")
    options = parser.parse_args(argv)
    options.compute, options.samples, options.repetitions = 0.4, 5, 5
    if options.quick:
        options.hosts, options.ratios = options.hosts[:1], options.ratios[-1:]
        options.compute, options.rounds, options.steps, options.samples = 0.1, 2, 1, 2
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parsed(argv)
    reason = reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    print(f"{LABEL}; {RATE // 10**6} Mbit/s, {options.rounds} rounds of {options.steps} steps\n")
    settings = []
    for hosts in options.hosts:
        for rho in options.ratios:
            found = on_hosts(Layout.flat(hosts), RATE, measure, hosts, rho, options, timeout_s=1800)
            variants = [
                Measured(name, predicted, tuple(map(tuple, rounds)))
                for name, predicted, rounds in found["variants"]
            ]
            title = f"{hosts} hosts, {rho:g} × the computation to communicate"
            print(f"### {title}\n\n{found['about']}.\n")
            print("\n".join(found["tables"]) + "\n")
            print(table(variants, FSDP2, "variant") + "\n", flush=True)
            settings.append((title, variants))
    print(f"### {PLAN} against the others\n\n{against(settings, PLAN, (FSDP2, QUEUED, SAME))}\n")
    print(f"### predicted against measured\n\n{summary(settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
