"""Lets plans follow a network that changes in the middle of a run, and one that does not.

    python benchmarks/runtime_online.py [--quick]

Four hosts on one switch. Layers wait instead of computing (`runtime_waiting`): times and sizes are
those of a shipped profile, scaled so that a step computes for 0.3 s and communicates for half of
that at 100 Mbit/s. The network is timed and the job planned for it; in the middle of the run every
link goes to 50 Mbit/s, later back to 100. Nobody tells the job. Beside it run the plan it began
with and the plan that is made for the slow network, which is timed for that; they take turns.

The last table is of a network that stays as it is, and steps that compute for half as long.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from emulated_cluster import Layout, change_rate, reason_unavailable
from runtime_cluster import ring_bytes
from runtime_jobs import Trained, Variant, on_hosts, profiled, take_turns, updates_of
from runtime_switch import HOSTS, RATE
from runtime_waiting import LABEL, load, scaled_units, waiting

from planner import Profile
from planner.jsonio import decode_profile, encode_profile
from planner.profiling.tensors import loss_of
from planner.runtime import Look, World, attach, follow, join, plan_for
from planner.runtime.measuring.courses import Planned
from planner.runtime.measuring.measured import slowest
from planner.runtime.measuring.trace import Event

MODELS = ("vgg16", "resnet50")
RHO = 0.5
SLOW = RATE // 2
SETTLED = 20
"""Steps after a change that do not count."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """How the job ran from one change of the network to the next.

    Parameters
    ----------
    rate : int
        Of the links, in bits a second.
    steps_ns : tuple of int
        What each step lasted, on the slowest host.
    looks : tuple of Look
        Each look for another plan in it; `step` counts from the change.
    planned_ns : int
        What a step lasts under the plan that is made for this network, in the median.
    first_ns : int
        The same under the plan that the job began with.
    """

    rate: int
    steps_ns: tuple[int, ...]
    looks: tuple[Look, ...]
    planned_ns: int
    first_ns: int

    @property
    def settled_ns(self) -> int:
        """What a step lasts once the job has had time to follow, in the median."""
        return round(median(self.steps_ns[SETTLED:]))


def shared(world: World, profile: Profile) -> Profile:
    """Return rank 0's profile."""
    text, *_ = world.gather("the profile", encode_profile(profile))
    shared: Profile = decode_profile(text)
    return shared


def at_rate(world: World, rate: int) -> None:
    """Let the links of the cluster have a rate, on all ranks from now on."""
    if world.rank == 0:
        change_rate(Layout.flat(HOSTS), rate)
    world.gather("the rate", str(rate))


def run(
    world: World, trained: Trained, first: Planned, stretches: Sequence[tuple[int, int]]
) -> tuple[tuple[Look, ...], list[tuple[int, ...]]]:
    """Follow the network through changes; return the looks, and the times of steps.

    Parameters
    ----------
    world : World
        The job.
    trained : Trained
        The model.
    first : Planned
        The plan it begins with.
    stretches : sequence of (int, int)
        A rate, and for how many steps the network has it; the first is what it has.
    """
    model, inputs = trained
    with attach(model, first, updates_of(model.parameters()), world) as executor:
        following = follow(executor, first)
        for number, (rate, steps) in enumerate(stretches):
            if number and world.rank == 0:
                change_rate(Layout.flat(HOSTS), rate)
            for _ in range(steps):
                loss_of(model(*inputs)).backward()
                executor.step()
        executor.finish()
    events = [event for event in executor.trace.events if event.kind in ("step", "backward")]
    texts = world.gather("the steps", json.dumps(events))
    ranks = [[Event(*row) for row in json.loads(text)] for text in texts]
    times = [time.step_ns for time in slowest(ranks, 0)]
    ends = [sum(steps for _, steps in stretches[:number]) for number in range(len(stretches) + 1)]
    parts = [tuple(times[start:end]) for start, end in pairwise(ends)]
    return following.log, parts


def followed(world: World, name: str, options: argparse.Namespace) -> tuple[Stretch, ...]:
    """Let one model's job follow the network."""
    shipped = load(name)
    size = ring_bytes(HOSTS, RATE, RHO * options.compute)
    units = scaled_units(shipped, options.compute, size)
    profile = shared(world, profiled(waiting(units), name, options.repetitions))
    first = plan_for(world, profile)
    at_rate(world, SLOW)
    there = plan_for(world, profile)
    at_rate(world, RATE)
    rates = (RATE, SLOW, RATE)
    counts = (options.before, options.after, options.after)
    stretches = list(zip(rates, counts, strict=True))
    log, parts = run(world, waiting(units), first, stretches)
    medians: dict[int, dict[str, int]] = {}
    variants = [Variant("first", first, None), Variant("there", there, None)]
    for rate in (RATE, SLOW):
        at_rate(world, rate)
        times, _ = take_turns(
            world, partial(waiting, units), variants, rounds=options.rounds, steps=4, about=name
        )
        medians[rate] = {
            variant: round(median(step.step_ns for turn in turns for step in turn))
            for variant, turns in times.items()
        }
    at_rate(world, RATE)
    rows, begun = [], 0
    for (rate, count), part in zip(stretches, parts, strict=True):
        own = medians[rate]
        inside = [look for look in log if begun < look.step <= begun + count]
        shifted = tuple(Look(look.step - begun, *_rest(look)) for look in inside)
        best = own["first" if rate == RATE else "there"]
        rows.append(Stretch(rate, part, shifted, best, own["first"]))
        begun += count
    return tuple(rows)


def _rest(look: Look) -> tuple[Any, ...]:
    return (
        look.drifts,
        look.network,
        look.kept_ns,
        look.new_ns,
        look.switched,
        look.planning_s,
    )


def steady(world: World, name: str, options: argparse.Namespace) -> tuple[str, int, int, int, int]:
    """Follow a network that stays as it is; return how often another plan was looked for."""
    shipped, compute = load(name), options.compute / 2
    units = scaled_units(shipped, compute, ring_bytes(HOSTS, RATE, RHO * compute))
    profile = shared(world, profiled(waiting(units), name, options.repetitions))
    first = plan_for(world, profile)
    log, (times,) = run(world, waiting(units), first, [(RATE, options.steady)])
    switches = sum(look.switched for look in log)
    return name, len(times), len(log), switches, round(median(times))


def worker(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on one host; rank 0 returns what came of it."""
    world = join(60)
    try:
        return {
            "followed": [(name, followed(world, name, options)) for name in options.models],
            "steady": [steady(world, name, options) for name in options.models[:1]],
        }
    finally:
        world.leave()


def show(result: dict[str, Any]) -> None:
    """Print all tables."""
    print(f"### in the middle of a run, {LABEL}\n")
    print(
        "| model | link | new plan after | step of the plan made for it | following, from step "
        f"{SETTLED} on | over it | first plan | over it |\n|---|---|---|---|---|---|---|---|"
    )
    for name, stretches in result["followed"]:
        for stretch in stretches:
            steps = [str(look.step) for look in stretch.looks if look.switched]
            best = stretch.planned_ns
            print(
                f"| {name} | {stretch.rate // 10**6} Mbit/s | "
                f"{', '.join(steps) + ' steps' if steps else '–'} | {best / 1e6:.0f} ms | "
                f"{stretch.settled_ns / 1e6:.0f} ms | {stretch.settled_ns / best - 1:+.1%} | "
                f"{stretch.first_ns / 1e6:.0f} ms | {stretch.first_ns / best - 1:+.1%} |"
            )
    print("\n### what the job said\n")
    print("| model | link | look |\n|---|---|---|")
    for name, stretches in result["followed"]:
        for stretch in stretches:
            for look in stretch.looks:
                print(f"| {name} | {stretch.rate // 10**6} Mbit/s | {look} |")
    print("\n### a steady network\n")
    print("| model | steps | looks | new plans | step |\n|---|---|---|---|---|")
    for name, steps, looks, switches, step_ns in result["steady"]:
        print(f"| {name} | {steps} | {looks} | {switches} | {step_ns / 1e6:.0f} ms |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one model, few short steps")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="shipped profiles")
    options = parser.parse_args(argv)
    options.compute, options.repetitions, options.rounds = 0.3, 5, 4
    options.before, options.after, options.steady = 40, 50, 500
    if options.quick:
        options.models, options.compute, options.repetitions = options.models[-1:], 0.15, 2
        options.before, options.after, options.steady, options.rounds = 26, 26, 26, 1
    reason = reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    result = on_hosts(Layout.flat(HOSTS), RATE, worker, options, timeout_s=3600)
    print(f"{HOSTS} hosts, {RATE // 10**6} and {SLOW // 10**6} Mbit/s\n")
    show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
