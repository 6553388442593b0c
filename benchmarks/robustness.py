"""Measures what plans that are equally long by the model bear: executed with times that are not.

    python benchmarks/robustness.py [--quick]

Shipped profiles, communication 0.3 to 3 times computation, start-ups of 0.2 % and 2 % of it. Each
plan is executed by the simulator, its order and its transfers kept, in many runs whose times are
drawn; a transfer leaves when the gradients are ready on the last of four ranks. What is drawn:

- layers: every layer's time on every rank, lognormal, by 5, 10 or 20 %;
- network: all costs times 0.7 to 1.3, and each transfer's, lognormal, by 10 %;
- late: one gradient on one rank, by up to half a backward pass, and ranks apart by up to a tenth;
- all: these three at once, and computation 1 to 1.6 times as long.

Against the plan that was taken before `planner.solving.tie_break` (iBatch: one of the fewest
batches; Caramel: the first one found) stand the most robust one of those as long, layer by layer
and DDP's buckets. Ends with an error if the most robust plan is longer by the model.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, product
from math import exp, log
from pathlib import Path
from statistics import fmean, quantiles
from typing import Literal

from tables import rows_below

from planner import AffineCost
from planner.families import caramel, ibatch
from planner.families.caramel.bounds import lower_bound
from planner.families.caramel.descent import less_sensitive
from planner.families.caramel.pricing import LoadPricer, loads_of
from planner.families.caramel.search import BUDGET, best_loads
from planner.families.ibatch.dynamic import solve_general
from planner.families.ibatch.makespan import solve_additive
from planner.jsonio import decode_profile
from planner.model.profiles import Profile
from planner.solving.deadline import NEVER
from planner.solving.simulator import TimedTransfer, simulate

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
RATIOS = (Fraction(3, 10), Fraction(7, 10), Fraction(1), Fraction(3, 2), Fraction(3))
STARTUPS = (Fraction(2, 1000), Fraction(2, 100))
NOISE = ("layers", "network", "late", "all")
RANKS = 4
PLANS = ("most robust", "layer by layer", "DDP")


@dataclass(frozen=True, slots=True)
class Sent:
    """A transfer: gradients it waits for, what it costs, and the forward op that waits for it."""

    gradients: Sequence[int]
    duration_ns: int
    needed_by: int


@dataclass(frozen=True, slots=True)
class Case:
    """Durations of both passes, the backward op that ends each gradient, and plans by name."""

    backward: Sequence[int]
    forward: Sequence[int]
    ends: Sequence[int]
    plans: dict[str, Sequence[Sent]]


def executed(case: Case, noise: str, seed: int) -> dict[str, int]:
    """Return what each plan lasts in one run; all see the same."""
    draw = random.Random(seed)
    spread = draw.choice((0.05, 0.1, 0.2)) if noise in ("layers", "all") else 0.0
    slower = draw.uniform(1, 1.6) if noise == "all" else 1.0
    costs = draw.uniform(0.7, 1.3) if noise in ("network", "all") else 1.0
    wobble = 0.1 if noise in ("network", "all") else 0.0
    late = noise in ("late", "all")

    def times(durations: Sequence[int]) -> list[int]:
        return [round(ns * slower * draw.lognormvariate(0, spread)) for ns in durations]

    length = sum(case.backward)
    ready, last, ended = [0] * len(case.ends), [0], 0
    for _ in range(RANKS):
        apart = round(draw.uniform(0, 0.1) * length) if late else 0
        own = [apart, *times(case.backward)]
        moments = list(accumulate(own))[1:]
        ready = [max(was, moments[op]) for was, op in zip(ready, case.ends, strict=True)]
        if sum(own) > ended:
            last, ended = own, sum(own)
    if late and ready:
        place = draw.randrange(len(ready))
        ready[place] += round(draw.uniform(0, 0.5) * length)
    forward = times(case.forward)
    wobbles = [draw.lognormvariate(0, wobble) for _ in range(max(len(ready), len(forward), 1))]
    lasts = {}
    for name, plan in case.plans.items():
        transfers = [
            TimedTransfer(
                0,
                round(sent.duration_ns * costs * wobbles[(number * 7) % len(wobbles)]),
                sent.needed_by,
                not_before_ns=max((ready[j] for j in sent.gradients), default=0),
            )
            for number, sent in enumerate(plan)
        ]
        lasts[name] = simulate(last, forward, transfers).end_ns
    return lasts


def of_chain(
    profile: Profile, ratio: Fraction, startup: Fraction, direction: Literal["pull", "push"]
) -> Case:
    """Return iBatch's plans of one side."""
    layers = profile.chain().layers
    pull = direction == "pull"
    compute = sum(layer.forward_ns if pull else layer.backward_ns for layer in layers)
    size = sum(layer.parameter_bytes if pull else layer.pushed_bytes for layer in layers)
    cost = AffineCost(int(startup * compute), Fraction(int(ratio * compute), size))
    problem = ibatch.Problem.from_profile(profile, cost, direction=direction)
    exact = solve_general if problem.transfer_prefix is None else solve_additive
    fewest = exact(problem, NEVER).plan
    robust = ibatch.solve(problem, tie_break="robust").plan
    apart = ibatch.solve(problem, method="layer_by_layer").plan
    assert fewest is not None
    assert robust is not None
    assert apart is not None
    check(
        ibatch.evaluate(problem, robust).makespan_ns, ibatch.evaluate(problem, fewest).makespan_ns
    )
    plans = {"before": fewest, "most robust": robust, "layer by layer": apart}
    if not pull:
        buckets = ibatch.solve(problem, method="ddp").plan
        assert buckets is not None
        plans["DDP"] = buckets
    count = problem.layers

    def sends(plan: ibatch.Plan) -> list[Sent]:
        return [
            Sent(
                () if pull else range(start, stop),
                problem.transfer_time(start, stop),
                start if pull else 0,
            )
            for start, stop in plan.batches
        ]

    return Case(
        backward=() if pull else problem.compute_ns[::-1],
        forward=problem.compute_ns if pull else (0,),
        ends=() if pull else range(count - 1, -1, -1),
        plans={name: sends(plan) for name, plan in plans.items()},
    )


def of_graph(profile: Profile, ratio: Fraction, startup: Fraction) -> Case:
    """Return Caramel's plans."""
    free = caramel.Problem.from_profile(profile, AffineCost(0, Fraction(1)), workers=1)
    compute, size = free.windows.compute_ns, sum(free.windows.sizes)
    cost = AffineCost(int(startup * compute), Fraction(int(ratio * compute), size))
    graph = profile.dataflow()
    problem = caramel.Problem(graph, cost, element_bytes=profile.element_bytes, workers=1)
    known, order = problem.windows, problem.order
    pricer = LoadPricer(known, cost)
    bound = lower_bound(known, cost)
    found = best_loads(pricer, cost, bound, [], problem.element_bytes, NEVER)
    loads = {"before": found, "most robust": less_sensitive(pricer, found, BUDGET, NEVER)}
    check(pricer.iteration_ns(loads["most robust"]), pricer.iteration_ns(found))
    barriers = {}
    for name, method in (("layer by layer", "layer_by_layer"), ("DDP", "ddp")):
        plan = caramel.solve(problem, method=method).plan
        assert plan is not None
        loads[name], barriers[name] = loads_of(plan), plan.barrier
    ended = {op: place for place, op in enumerate(order.backward)}
    begun = {op: place for place, op in enumerate(order.forward)}
    reads = [min(begun[op] for op in readers) for readers in graph.readers]
    return Case(
        backward=[graph.ops[op].duration_ns for op in order.backward],
        forward=[graph.ops[op].duration_ns for op in order.forward],
        ends=[max(ended[op] for op in updaters) for updaters in graph.updaters],
        plans={
            name: [
                Sent(
                    [j for j, _ in load],
                    pricer.cost_ns(sum(size for _, size in load)),
                    0 if barriers.get(name) else min(reads[j] for j, _ in load),
                )
                for load in plan
            ]
            for name, plan in loads.items()
        },
    )


def check(robust_ns: int, before_ns: int) -> None:
    """End if the most robust plan is longer than the one before."""
    if robust_ns > before_ns:
        sys.exit(f"the most robust plan lasts {robust_ns} ns, the one before {before_ns} ns")


def report(name: str, cases: Sequence[Case], runs: int) -> None:
    """Print what plans last against the one before, by what is drawn."""
    print(f"## {name}, {len(cases)} cases of {runs} runs\n")
    known = [plan for plan in PLANS if plan in cases[0].plans]
    columns = ["drawn"]
    for plan in known:
        columns += [plan, f"{plan}: 90th percentile"]
    columns += ["worst case", "best case"]
    rows = []
    for noise in NOISE:
        means: dict[str, list[float]] = {plan: [] for plan in known}
        tails: dict[str, list[float]] = {plan: [] for plan in known}
        for case in cases:
            lasts = [executed(case, noise, seed) for seed in range(runs)]
            before = [one["before"] for one in lasts]
            for plan in known:
                own = [one[plan] for one in lasts]
                means[plan].append(fmean(own) / fmean(before))
                tails[plan].append(quantiles(own, n=10)[8] / quantiles(before, n=10)[8])
        row = [noise]
        for plan in known:
            row += [f"{mean(means[plan]):.4f}", f"{mean(tails[plan]):.4f}"]
        row += [f"{max(means['most robust']):.3f}", f"{min(means['most robust']):.3f}"]
        rows.append(row)
    rows_below(columns, rows)
    changed = sum(case.plans["before"] != case.plans["most robust"] for case in cases)
    sizes = [fmean(len(case.plans[plan]) for case in cases) for plan in ("before", "most robust")]
    print(f"{changed} of {len(cases)} plans changed; {sizes[0]:.1f} transfers before, ", end="")
    print(f"{sizes[1]:.1f} in the most robust ones.\n", flush=True)


def mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return exp(fmean(map(log, ratios)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one profile, few runs")
    options = parser.parse_args()
    runs = 10 if options.quick else 100
    names = ["lenet5"] if options.quick else sorted(path.stem for path in PROFILES.glob("*.json"))
    profiles = [decode_profile((PROFILES / f"{name}.json").read_bytes()) for name in names]

    settings = list(product(profiles, RATIOS, STARTUPS))
    print("Time over that of the plan taken before: geometric means over the cases.\n")
    report("iBatch, push", [of_chain(*setting, "push") for setting in settings], runs)
    report("iBatch, pull", [of_chain(*setting, "pull") for setting in settings], runs)
    report("Caramel", [of_graph(*setting) for setting in settings], runs)


if __name__ == "__main__":
    main()
