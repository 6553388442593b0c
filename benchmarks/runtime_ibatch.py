"""Executes iBatch's batches on an emulated cluster, against one batch and layer by layer.

    python benchmarks/runtime_ibatch.py [--quick] [--picture FILE.svg]

Four hosts on one switch, links of 100 Mbit/s; each host is the parameter server of a quarter of
every parameter. They share this machine's cores, so layers wait instead of computing
(`runtime_waiting`): times and sizes are those of a shipped profile, scaled so that the forward pass
computes for 0.3 s and pulling all parameters takes a given multiple of that. Every host times its
layers, pulls and pushes; rank 0 plans with those numbers; then all variants take turns.

The forward phase lasts from the moment the pulls may begin to the end of the forward pass, the
backward phase from there to the end of the last push.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from runtime_jobs import Variant, profiled, table_of, take_turns
from runtime_report import Measured, against, as_measured, measured, side_by_side, summary, table
from runtime_switch import HOSTS, RATE, run
from runtime_waiting import LABEL, Unit, load, scaled_units, waiting

import planner
from planner import Profile
from planner.model.fitting import sweep_sizes
from planner.model.measured import Collective
from planner.model.units import format_bytes
from planner.runtime import World, join
from planner.runtime.measuring.sweep import measure_network

MODELS = ("vgg16", "resnet50", "gpt2_small")
RATIOS = (1.0,)
METHODS = ("exact", "greedy", "one_batch", "layer_by_layer")
EXACT, ONE, EACH = "`exact`", "`one_batch`", "`layer_by_layer`"
PHASES = {"forward phase": "forward_phase_ns", "backward phase": "backward_phase_ns"}

COLLECTIVES: dict[str, Collective] = {"pull": "all_gather", "push": "reduce_scatter"}

Rows = list[list[int]]


def size_for(rho: float, compute_s: float) -> float:
    """Return how many bytes a host pulls in rho times the computation."""
    return rho * compute_s * RATE / 8 / ((HOSTS - 1) / HOSTS)


def units_for(name: str, compute_s: float, rho: float) -> tuple[Unit, ...]:
    """Return the units of a model whose forward pass lasts as long as asked for."""
    shipped = load(name)
    whole = compute_s * (shipped.forward_ns + shipped.backward_ns) / shipped.forward_ns
    return scaled_units(shipped, whole, size_for(rho, compute_s))


def requests(profile: Profile, rows: dict[str, Rows], method: str) -> list[dict[str, Any]]:
    """Return what to ask `planner.solve` for: plans to pull and to push."""
    layers = profile.chain().layers
    return [
        {
            "problem": "ibatch",
            "direction": direction,
            "method": method,
            "compute_ns": [getattr(layer, compute) for layer in layers],
            "layer_bytes": [layer.parameter_bytes for layer in layers],
            "cost_table": rows[direction],
            "layer_names": [layer.name for layer in layers],
            "layer_parameters": [list(layer.parameters) for layer in layers],
        }
        for direction, compute in (("pull", "forward_ns"), ("push", "backward_ns"))
    ]


def variants_for(world: World, profile: Profile, rows: dict[str, Rows]) -> list[Variant]:
    """Plan on rank 0, and return the same variants on all ranks."""
    planned = {}
    if world.rank == 0:
        planned = {
            method: [planner.solve(request) for request in requests(profile, rows, method)]
            for method in METHODS
        }
    answers = json.loads(world.gather("the plans", json.dumps(planned))[0])
    return [
        Variant(f"`{method}`", pair, sum(one["makespan_ns"] for one in pair))
        for method, pair in answers.items()
    ]


def worker(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on one host; rank 0 returns what it found."""
    world = join(60)
    try:
        largest = 4 * HOSTS * -(-round(size_for(max(options.ratios), options.compute)) // 16)
        rows = {
            direction: table_of(
                measure_network(
                    world,
                    collective,
                    sweep_sizes(largest),
                    options.samples,
                    warmup=1,
                )
            )
            for direction, collective in COLLECTIVES.items()
        }
        settings, chart = [], None
        for name in options.models:
            for rho in options.ratios:
                units = units_for(name, options.compute, rho)
                own = profiled(waiting(units), name, options.repetitions)
                variants = variants_for(world, own, rows)
                title = f"{name}, ρ = {rho:g}"
                times, last = take_turns(
                    world,
                    partial(waiting, units),
                    variants,
                    rounds=options.rounds,
                    steps=options.steps,
                    about=title,
                )
                found = {
                    phase: [
                        measured(variant.name, answer["makespan_ns"], times, value)
                        for variant in variants
                        for answer in [variant.plan[number]]
                    ]
                    for number, (phase, value) in enumerate(PHASES.items())
                }
                found["step"] = [
                    measured(variant.name, variant.predicted_ns, times) for variant in variants
                ]
                batches = len(variants[0].plan[0]["batches"])
                size = sum(unit.bytes for unit in units)
                about = (
                    f"{format_bytes(size)} in {len(units)} layers (sizes "
                    f"1/{load(name).parameter_bytes / size:.0f} of the model's), "
                    f"{own.forward_ns / 1e6:.0f} ms of waiting in the forward pass in {LABEL}; "
                    f"{EXACT} pulls {batches} batches"
                )
                settings.append((title, about, found))
                if chart is None or rho == 1:
                    runs = [(one, last[f"`{one}`"]) for one in ("one_batch", "exact")]
                    chart = side_by_side(f"{title}, {LABEL}", runs)
        return {"rows": rows, "settings": settings, "chart": chart}
    finally:
        world.leave()


def show(result: dict[str, Any]) -> None:
    """Print all tables."""
    settings: list[tuple[str, str, dict[str, list[Measured]]]] = result["settings"]
    for direction, rows in result["rows"].items():
        print(as_measured(direction, rows), end="\n\n")
    for title, about, found in settings:
        print(f"### {title}, forward phase\n\n{about}\n")
        print(table(found["forward phase"], ONE), end="\n\n")
    rows = [(f"{title}, {phase}", found[phase]) for title, _, found in settings for phase in found]
    print("### `exact` against the others\n")
    print(against(rows, EXACT, (ONE, EACH, "`greedy`")))
    print("\n### predicted against measured\n")
    print(summary(rows))


def main(argv: Sequence[str] | None = None) -> int:
    return run(
        argv,
        worker,
        show,
        about="what are iBatch's batches worth in executed steps?",
        models=MODELS,
        ratios=RATIOS,
        quick_s=0.1,
        pictured="a step under one_batch and exact",
    )


if __name__ == "__main__":
    sys.exit(main())
