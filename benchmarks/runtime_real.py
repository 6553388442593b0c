"""Executes plans of gradients beside real computation, against torch's DDP at many bucket sizes.

    python benchmarks/runtime_real.py [--quick] [--models NAME …] [--rates MBIT …] [--anyway]

Two hosts, each on a processor core of its own, over links of some speeds (token buckets). Gloo's
threads and the kernel send from the core that computes, so transfers slow computation down. Each
host measures its layers, the all-reduce, and what both take from each other; rank 0 plans, with the
interference and without; then all variants take turns. Nothing waits in place of computing.

A machine on which something else runs would tell about that: it is refused, unless `--anyway`; the
share of the processors that others took is printed with each setting.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from emulated_cluster import Layout, reason_unavailable
from real_models import MODELS
from runtime_ablations import ddp_plan
from runtime_jobs import Variant, caramel_request, on_hosts, profiled, table_of, take_turns
from runtime_report import Measured, against, measured, summary, table

import planner
from planner import Interference, Profile, TableCost, caramel
from planner.bucketing import DDP_BUCKET_BYTES, DDP_FIRST_BUCKET_BYTES
from planner.runtime import World, join
from planner.runtime.measuring.beside import measure_interference
from planner.runtime.measuring.sweep import measure_network
from planner.sweeps import sweep_sizes
from planner.units import format_bytes

HOSTS = 2
RATES = (100, 200, 400)
BUCKETS_MB = (1, 5, 10, 25, 50, 100)
DDP = "DDP"
STATIC = "DDP, static graph, views"
PLANNED = "`search`"
BLIND = "`search`, no interference"
BY_LAYER = "`layer_by_layer`"
MOST_BUSY = 0.05
"""Share of the processors that others may take."""


def busy(seconds: float = 1.0) -> float:
    """Return which share of the processors was not idle while this process slept."""

    def counted() -> tuple[int, int]:
        fields = [*map(int, Path("/proc/stat").read_text("ascii").split("\n")[0].split()[1:9])]
        return sum(fields), fields[3] + fields[4]

    before = counted()
    time.sleep(seconds)
    total, idle = (after - then for after, then in zip(counted(), before, strict=True))
    return 1 - idle / total if total else 1.0


def predicted_ddp(
    profile: Profile, rows: list[list[int]], interference: Interference, limits: tuple[int, int]
) -> int:
    """Return what a step is predicted to last under DDP with buckets of these limits."""
    cost = TableCost(tuple((size, ns) for size, ns in rows))
    problem = caramel.Problem(profile.dataflow(), cost, workers=1, interference=interference)
    return caramel.evaluate(problem, ddp_plan(problem, limits)).iteration_ns


def variants_for(
    world: World, profile: Profile, rows: list[list[int]], interference: Interference
) -> list[Variant]:
    """Plan on rank 0, and return the same variants on all ranks."""
    text = ""
    if world.rank == 0:
        beside = {
            "startup_ns": interference.startup_ns,
            "ns_per_byte": float(interference.ns_per_byte),
            "slowdown": float(interference.slowdown),
            "delay_ns": interference.delay_ns,
        }
        plans = {
            PLANNED: planner.solve(caramel_request(profile, rows, "auto", interference=beside)),
            BLIND: planner.solve(caramel_request(profile, rows, "auto")),
            BY_LAYER: planner.solve(
                caramel_request(profile, rows, "layer_by_layer", interference=beside)
            ),
        }
        limits = {DDP: (DDP_FIRST_BUCKET_BYTES, DDP_BUCKET_BYTES)}
        limits |= {f"{DDP}, {size} MB": (size * 10**6,) * 2 for size in BUCKETS_MB}
        ddp = {
            name: (predicted_ddp(profile, rows, interference, pair), pair)
            for name, pair in limits.items()
        }
        text = json.dumps((plans, ddp))
    plans, ddp = json.loads(world.gather("the plans", text)[0])
    variants = [Variant(name, plan, plan["iteration_ns"]) for name, plan in plans.items()]
    for name, (predicted_ns, pair) in ddp.items():
        sizes = [limit / 2**20 for limit in pair]
        options = {} if name == DDP else {"bucket_cap_mb_list": sizes}
        variants.append(Variant(name, None, predicted_ns, options))
    views = {"static_graph": True, "gradient_as_bucket_view": True}
    return [*variants, Variant(STATIC, None, ddp[DDP][0], views)]


def worker(names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure on one host; rank 0 returns what it found."""
    world = join(120)
    os.sched_setaffinity(0, {world.rank % (os.cpu_count() or 1)})
    try:
        settings = []
        for name in names:
            make = MODELS[name]
            model, _ = make()
            size = 4 * sum(parameter.numel() for parameter in model.parameters())
            sizes = sweep_sizes(size)
            sweep = measure_network(world, "all_reduce", sizes, options.samples, warmup=1)
            rows = table_of(sweep)
            chosen = [size for size in sizes if size >= 4096]
            chosen = [chosen[0], chosen[len(chosen) // 2], chosen[-1]]
            interference = measure_interference(world, "all_reduce", chosen, options.samples)
            own = profiled(make(), name, options.repetitions)
            variants = variants_for(world, own, rows, interference)
            times, _ = take_turns(
                world, make, variants, rounds=options.rounds, steps=options.steps, about=name
            )
            compute_ns = sum(op.duration_ns for op in own.dataflow().ops)
            settings.append(
                {
                    "name": name,
                    "about": (
                        f"{format_bytes(size)}, {compute_ns / 1e6:.0f} ms of computation, "
                        f"{rows[-1][1] / 1e6:.0f} ms for one all-reduce of all; beside computation "
                        f"a transfer takes {interference.startup_ns / 1e3:.0f} µs and "
                        f"{float(interference.ns_per_byte):.3g} ns/B from it and lasts "
                        f"{float(interference.slowdown):.2f} times as long and "
                        f"{interference.delay_ns / 1e6:.1f} ms"
                    ),
                    "variants": [
                        measured(variant.name, variant.predicted_ns, times) for variant in variants
                    ],
                }
            )
        return settings
    finally:
        world.leave()


def best_bucket(variants: Sequence[Measured]) -> Measured:
    """Return the fastest of DDP's bucket sizes, its default among them."""
    return min(
        (variant for variant in variants if variant.name.startswith(DDP)),
        key=lambda variant: variant.median_ns,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="what are plans of gradients worth where computation is real?",
        epilog="example: %(prog)s --models transformer --rates 200 --rounds 7",
    )
    parser.add_argument("--quick", action="store_true", help="one setting, few steps")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rates", nargs="+", type=int, default=list(RATES), metavar="MBIT")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--steps", type=int, default=2, help="of each variant a round; default: 2")
    parser.add_argument("--anyway", action="store_true", help="on a busy machine, too")
    options = parser.parse_args(argv)
    options.samples, options.repetitions = 5, 7
    if options.quick:
        options.models, options.rates = ["wide_resnet"], options.rates[-1:]
        options.rounds, options.steps, options.samples, options.repetitions = 2, 1, 1, 2
    reason = reason_unavailable()
    if reason is None and (os.cpu_count() or 1) < HOSTS:
        reason = f"it takes {HOSTS} processor cores"
    if reason is None and not options.anyway and not options.quick and busy() > MOST_BUSY:
        reason = "something else runs on this machine (--anyway measures in spite of it)"
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    settings: list[tuple[str, list[Measured]]] = []
    print(f"{HOSTS} hosts, a core each; {options.rounds} rounds of {options.steps} steps\n")
    for rate, name in product(options.rates, options.models):
        others = busy()
        (found,) = on_hosts(
            Layout.flat(HOSTS), rate * 10**6, worker, [name], options, timeout_s=3600
        )
        title = f"{name}, {rate} Mbit/s"
        settings.append((title, found["variants"]))
        about = f"{found['about']}. Others took {others:.0%} of the processors before."
        print(f"### {title}\n\n{about}\n\n{table(found['variants'], DDP)}\n", flush=True)
    best = [
        (title, [*variants, Measured("best DDP", None, best_bucket(variants).rounds)])
        for title, variants in settings
    ]
    print("### `search` against the others\n")
    print(against(best, PLANNED, ("best DDP", DDP, STATIC, BLIND, BY_LAYER)))
    print(f"\n### predicted against measured\n\n{summary(settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
