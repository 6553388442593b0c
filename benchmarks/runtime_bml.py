"""Executes BML's all-reduce on an emulated BCube(3, 2), against gloo's ring on one NIC.

    python benchmarks/runtime_bml.py [--quick] [--rate MBIT]

Nine hosts with two NICs each on the switches of BCube(3, 2), and one more NIC on a switch that all
share, for the ring; all links 50 Mbit/s, or of another rate. Times the all-reduce of 10 MB, the two
taking turns, then training steps, each way with a plan (`auto`) made with its own times.

The hosts share this machine's cores, so layers wait instead of computing (`runtime_waiting`).
LeNet-5 has its own 12.5 MiB of parameters; VGG-19's sizes are divided by 100, so that a step takes
seconds. Relative times are those of the shipped profiles, scaled so that computation takes a given
multiple of what the ring takes for all gradients.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from emulated_network import reason_unavailable
from runtime_cluster import bcube_and_switch
from runtime_jobs import (
    Variant,
    caramel_request,
    on_hosts,
    profiled,
    table_of,
    take_turns,
)
from runtime_report import Measured, as_measured, measured, ratio, summary, table
from runtime_waiting import LABEL, load, scaled_units, waiting
from tables import head, row
from torch import distributed

import planner
from planner import Profile
from planner.model.units import format_bytes
from planner.runtime import AllReduce, Ring, World, join
from planner.runtime.collectives.interpreter import BcubeAllReduce
from planner.runtime.measuring.sweep import measure_network

N, K = 3, 2
HOSTS = N**K
DIVISORS = {"lenet5": 1, "vgg19": 100}
RATIOS = (0.25, 0.5, 1.0)
PAPER = {"lenet5": "18.7 – 56.4 %", "vgg19": "29.2 – 52.1 %"}
RING, BML = "ring", "BML"

SIZES = [2**power for power in range(10, 23, 2)]
"""What is timed to plan with, besides the largest, in bytes."""

Rows = list[list[int]]


def one_transfer(
    world: World, ways: dict[str, AllReduce], size: int, rounds: int
) -> list[Measured]:
    """Time all-reduces of one size, in turn; of each the time of the slowest rank."""
    flat, signal = torch.ones(size // 4), torch.zeros(1)
    own: dict[str, list[int]] = {name: [] for name in ways}
    for turn in range(1 + rounds):
        for name in sorted(ways, reverse=bool(turn % 2)):
            distributed.all_reduce(signal, group=world.group)
            start = time.monotonic_ns()
            with world.transferring():
                ways[name](flat)
            if turn:
                own[name].append(time.monotonic_ns() - start)
            flat.fill_(1)
    ranks = [json.loads(text) for text in world.gather("transfers", json.dumps(own))]
    return [
        Measured(
            name,
            None,
            tuple((max(times),) for times in zip(*(rank[name] for rank in ranks), strict=True)),
        )
        for name in ways
    ]


def variants_for(
    world: World, profile: Profile, ways: dict[str, AllReduce], rows: dict[str, Rows]
) -> list[Variant]:
    """Plan on rank 0, with each way's own times, and return the same variants on all ranks."""
    planned: dict[str, Any] = {}
    if world.rank == 0:
        planned = {
            name: planner.solve(caramel_request(profile, rows[name], "auto")) for name in ways
        }
    plans: dict[str, Any] = json.loads(world.gather("the plans", json.dumps(planned))[0])
    return [
        Variant(name, plans[name], plans[name]["iteration_ns"], all_reduce=way)
        for name, way in ways.items()
    ]


def worker(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on one host; rank 0 returns what it found."""
    world = join(60, [f"eth{level}" for level in range(K)])
    try:
        ways: dict[str, AllReduce] = {RING: Ring(world.group), BML: BcubeAllReduce(world, N, K)}
        raw = one_transfer(world, ways, options.size, options.rounds)
        sizes = [size for size in SIZES if size <= options.size] + [4 * (options.size // 3)]
        rows = {
            name: table_of(measure_network(world, way, sizes, options.samples, warmup=1))
            for name, way in ways.items()
        }
        settings = []
        for name in options.models:
            shipped = load(name)
            size = shipped.parameter_bytes / (options.divide * DIVISORS[name])
            ring_s = 2 * (HOSTS - 1) / HOSTS * size * 8 / (options.rate * 10**6)
            for share in options.ratios:
                units = scaled_units(shipped, share * ring_s, size)
                own = profiled(waiting(units), name, options.repetitions)
                variants = variants_for(world, own, ways, rows)
                title = f"{name}, computation / communication = {share:g}"
                times, _ = take_turns(
                    world,
                    partial(waiting, units),
                    variants,
                    rounds=options.rounds,
                    steps=options.steps,
                    about=title,
                )
                about = (
                    f"{format_bytes(round(size))} in {sum(len(unit.elements) for unit in units)} "
                    f"parameters, {share * ring_s:.2f} s of waiting a step in {LABEL}; "
                    + " and ".join(
                        f"{len(variant.plan['groups'])} transfers ({variant.name})"
                        for variant in variants
                    )
                )
                found = [
                    measured(variant.name, variant.predicted_ns, times) for variant in variants
                ]
                settings.append((name, title, about, found))
        return {"raw": raw, "rows": rows, "settings": settings}
    finally:
        world.leave()


def show(result: dict[str, Any], size: int) -> None:
    """Print all tables."""
    print(f"### all-reduce of {size / 1e6:g} MB\n")
    print(table(result["raw"], RING, "way"), end="\n\n")
    for name, rows in result["rows"].items():
        print(as_measured(name, rows), end="\n\n")
    for _, title, about, found in result["settings"]:
        print(f"### {title}\n\n{about}\n")
        print(table(found, RING, "all-reduce"), end="\n\n")
    if not result["settings"]:
        return
    print("### a step with BML against a step with the ring\n")
    head(("setting", "shorter by", "lowest – highest round", "paper, all settings"))
    for name, title, _, (ring, bml) in result["settings"]:
        middle, low, high = ratio(bml, ring)
        row((title, f"{1 - middle:.1%}", f"{1 - high:.1%} – {1 - low:.1%}", PAPER[name]))
    print("\n### predicted against measured\n")
    print(summary([(title, found) for _, title, _, found in result["settings"]]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="what is BML's all-reduce worth in executed steps?",
        epilog="example: %(prog)s --models lenet5 --ratios 0.5",
    )
    parser.add_argument("--quick", action="store_true", help="one small setting, few steps")
    parser.add_argument(
        "--models", nargs="*", choices=list(DIVISORS), default=list(DIVISORS), help="profiles"
    )
    parser.add_argument(
        "--ratios",
        nargs="+",
        type=float,
        default=list(RATIOS),
        metavar="R",
        help="computation over communication by the ring",
    )
    parser.add_argument("--rate", type=int, default=50, metavar="MBIT", help="default: 50")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--steps", type=int, default=1, help="of each variant a round; default: 1")
    options = parser.parse_args(argv)
    options.size, options.samples, options.repetitions, options.divide = 10_000_000, 5, 3, 1
    if options.quick:
        options.models, options.ratios, options.divide = ["lenet5"], [0.5], 20
        options.rounds, options.steps, options.samples, options.repetitions = 2, 1, 1, 1
        options.size = 1_000_000
    reason = reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    rate = options.rate * 10**6
    result = on_hosts(bcube_and_switch(N, K), rate, worker, options, timeout_s=3600)
    print(
        f"{HOSTS} hosts, {options.rate} Mbit/s a NIC, {options.rounds} rounds of "
        f"{options.steps} steps\n"
    )
    show(result, options.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
