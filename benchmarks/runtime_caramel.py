"""Executes plans of gradient transfers on an emulated cluster, against torch's DDP.

    python benchmarks/runtime_caramel.py [--quick] [--picture FILE.svg]

Four hosts on one switch, links of 100 Mbit/s. They share this machine's cores, so layers wait
instead of computing (`runtime_waiting`): times and sizes are those of a shipped profile, scaled so
that a step computes for 0.3 s and communicates for a given multiple of that. Every host times its
layers and gloo's all-reduces; rank 0 plans with those numbers; then all variants take turns.

`ddp` and `mg_wfbp` are their buckets in our executor, `DDP` is torch's own with its defaults
(1 MiB, then 25 MiB), and `DDP, buckets scaled` is torch's own with these limits divided by what the
model's sizes were divided by. Predictions for the latter two are those of such buckets with a
barrier behind the last.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from runtime_ablations import ddp_plan
from runtime_cluster import ring_bytes
from runtime_jobs import (
    Variant,
    caramel_request,
    profiled,
    table_of,
    take_turns,
)
from runtime_report import Measured, against, as_measured, measured, side_by_side, summary, table
from runtime_switch import HOSTS, RATE, run
from runtime_waiting import LABEL, load, scaled_units, waiting

import planner
from planner import Profile, TableCost
from planner.families import caramel
from planner.families.caramel.evaluation import evaluate
from planner.model.fitting import sweep_sizes
from planner.model.units import format_bytes
from planner.runtime import World, join
from planner.runtime.measuring.sweep import measure_network
from planner.solving.bucketing import DDP_BUCKET_BYTES, DDP_FIRST_BUCKET_BYTES

MODELS = ("vgg16", "resnet50", "gpt2_small")
RATIOS = (0.5, 1.0, 2.0)
METHODS = ("search", "caramel", "mg_wfbp", "ddp", "layer_by_layer")
DDP = "DDP"
SCALED = "DDP, buckets scaled"
PICTURED = ("ddp", "search")

Rows = list[list[int]]


def size_for(rho: float, compute_s: float) -> float:
    """Return how many bytes a ring all-reduces in rho times the computation."""
    return ring_bytes(HOSTS, RATE, rho * compute_s)


def ddp_step_ns(profile: Profile, rows: Rows, first: int, limit: int) -> int:
    """Return what a step is predicted to last under DDP with buckets of these limits."""
    cost = TableCost(tuple((size, time) for size, time in rows))
    problem = caramel.Problem(profile.dataflow(), cost, workers=1)
    return evaluate(problem, ddp_plan(problem, (first, limit))).iteration_ns


def variants_for(world: World, profile: Profile, rows: Rows, scale: float) -> list[Variant]:
    """Plan on rank 0, and return the same variants on all ranks."""
    planned: list[dict[str, Any]] = []
    if world.rank == 0:
        planned = [planner.solve(caramel_request(profile, rows, method)) for method in METHODS]
    answers = json.loads(world.gather("the plans", json.dumps(planned))[0])
    limits = DDP_FIRST_BUCKET_BYTES, DDP_BUCKET_BYTES
    small = int(limits[0] / scale), int(limits[1] / scale)
    return [
        *(Variant(f"`{answer['method']}`", answer, answer["iteration_ns"]) for answer in answers),
        Variant(DDP, None, ddp_step_ns(profile, rows, *limits)),
        Variant(
            SCALED,
            None,
            ddp_step_ns(profile, rows, *small),
            {"bucket_cap_mb_list": [size / 2**20 for size in small]},
        ),
    ]


def worker(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on one host; rank 0 returns what it found."""
    world = join(60)
    try:
        largest = 4 * round(size_for(max(options.ratios), options.compute) / 4)
        sweep = measure_network(
            world,
            "all_reduce",
            sweep_sizes(largest),
            options.samples,
            warmup=1,
        )
        rows = table_of(sweep)
        settings, chart = [], None
        for name in options.models:
            shipped = load(name)
            for rho in options.ratios:
                size = size_for(rho, options.compute)
                units = scaled_units(shipped, options.compute, size)
                own = profiled(waiting(units), name, options.repetitions)
                variants = variants_for(world, own, rows, shipped.parameter_bytes / size)
                title = f"{name}, ρ = {rho:g}"
                times, last = take_turns(
                    world,
                    partial(waiting, units),
                    variants,
                    rounds=options.rounds,
                    steps=options.steps,
                    about=title,
                )
                found = [
                    measured(variant.name, variant.predicted_ns, times) for variant in variants
                ]
                about = describe(size, shipped, own, variants)
                settings.append((title, about, found))
                if chart is None or rho == 1:
                    runs = [(method, last[f"`{method}`"]) for method in PICTURED]
                    chart = side_by_side(f"{title}, {LABEL}", runs)
        return {"rows": rows, "settings": settings, "chart": chart}
    finally:
        world.leave()


def describe(size: float, shipped: Profile, own: Profile, variants: Sequence[Variant]) -> str:
    """Return what a setting is like."""
    graph = own.dataflow()
    rho = next(variant.plan["rho"] for variant in variants if variant.plan)
    return (
        f"{format_bytes(round(size))} in {len(graph.parameters)} parameters (sizes "
        f"1/{shipped.parameter_bytes / size:.0f} of the model's), "
        f"{sum(op.duration_ns for op in graph.ops) / 1e6:.0f} ms of waiting a step in {LABEL}; "
        f"`search` communicates {rho:.2f} times as long"
    )


def show(result: dict[str, Any]) -> None:
    """Print all tables."""
    settings: list[tuple[str, str, list[Measured]]] = result["settings"]
    print(as_measured("all-reduce", result["rows"]))
    for title, about, found in settings:
        print(f"\n### {title}\n\n{about}\n")
        print(table(found, DDP))
    rows = [(title, found) for title, _, found in settings]
    print("\n### `search` against the others\n")
    print(against(rows, "`search`", (DDP, SCALED, "`mg_wfbp`", "`ddp`", "`layer_by_layer`")))
    print("\n### predicted against measured\n")
    print(summary(rows))


def main(argv: Sequence[str] | None = None) -> int:
    return run(
        argv,
        worker,
        show,
        about="what are plans of gradient transfers worth in executed steps?",
        models=MODELS,
        ratios=RATIOS,
        quick_s=0.15,
        pictured="a step of ddp and of search",
    )


if __name__ == "__main__":
    sys.exit(main())
