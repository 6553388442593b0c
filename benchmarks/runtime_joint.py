"""Executes joint plans of whole iterations on emulated clusters, against DDP.

    python benchmarks/runtime_joint.py [--quick] [--only TEXT …]

Clusters of four and nine hosts, on a switch or as a BCube, with links of 50 or 100 Mbit/s. Hosts of
a BCube have one more NIC of the same rate, all on one switch, for gloo's ring, which is what DDP
has. The hosts share this machine's cores, so layers wait instead of computing (`runtime_waiting`):
times and sizes are those of a shipped profile, scaled so that a step computes for some 0.3 to 0.45
s and a ring communicates for ρ times that.

Every host times its layers and every algorithm that the cluster allows. Rank 0 plans by each of
them with what its times say of the cluster (`runtime_cluster`), as `planner plan --algorithms`
does, in both modes, and takes the plan of the shortest iteration. Then the plan, the plan without
each of its decisions (`runtime_ablations`), the best replicated one where it is sharded, and
torch's DDP take turns. `DDP` has torch's defaults (1 MiB, then 25 MiB), `DDP, buckets scaled` these
limits divided by what the model's sizes were divided by; `DDP, 10 MB` has all its limits at 10 MB,
divided likewise.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from emulated_hosts import Layout
from emulated_network import reason_unavailable
from runtime_ablations import ABLATIONS, bucketed
from runtime_cluster import Fit, bcube_and_switch, calibrated, ring_bytes, unmeasured
from runtime_jobs import Variant, on_hosts, profiled, take_turns
from runtime_joint_report import (
    DDP,
    JOINT,
    REPLICATED,
    RINGED,
    SCALED,
    Setting,
    calibration,
    compared,
    errors_by_variant,
    gains,
    predictions,
)
from runtime_report import measured, table
from runtime_waiting import LABEL, load, scaled_units, waiting

from planner import Profile
from planner.families import iteration
from planner.families.iteration.plan import Mode
from planner.jsonio.iteration_making import answer
from planner.model.topologies import BCube, Switch, Topology
from planner.model.units import format_bytes
from planner.programs import Program, program_of
from planner.runtime import World, join
from planner.solving.bucketing import DDP_BUCKET_BYTES, DDP_FIRST_BUCKET_BYTES
from planner.solving.result import Result

GLOO = "gloo's ring"
BUCKETS_MB = (1, 5, 10, 25, 50, 100)
SIZES = tuple(2**power for power in (13, 15, 17, 19, 21))
"""What is timed to plan with, in bytes."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """A cluster, and what is trained there.

    Attributes
    ----------
    name : str
        Its name.
    topology : Topology
        What hosts are plugged into.
    rate : int
        Of a link, in bits a second.
    compute_s : float
        What a step computes for.
    models : tuple of (str, float)
        Shipped profiles, each with the ratio of communication to computation.
    """

    name: str
    topology: Topology
    rate: int
    compute_s: float
    models: tuple[tuple[str, float], ...]

    @property
    def hosts(self) -> int:
        """How many there are."""
        return self.topology.servers

    @property
    def layout(self) -> Layout:
        """What is plugged into what."""
        if isinstance(self.topology, BCube):
            return bcube_and_switch(self.topology.n, self.topology.k)
        return Layout.flat(self.hosts)

    @property
    def interfaces(self) -> list[str] | None:
        """Those of the links of programs; None for the only one."""
        if isinstance(self.topology, BCube):
            return [f"eth{level}" for level in range(self.topology.k)]
        return None


CLUSTERS = (
    Emulated(
        "switch of 4, 100 Mbit/s",
        Switch(4),
        100_000_000,
        0.3,
        (("vgg16", 1.0), ("resnet50", 0.5)),
    ),
    Emulated(
        "BCube(2, 2), 100 Mbit/s",
        BCube(2, 2),
        100_000_000,
        0.3,
        (("vgg19", 1.0), ("gpt2_small", 2.0)),
    ),
    Emulated("switch of 9, 50 Mbit/s", Switch(9), 50_000_000, 0.45, (("vgg16", 1.0),)),
    Emulated(
        "BCube(3, 2), 50 Mbit/s",
        BCube(3, 2),
        50_000_000,
        0.45,
        (("gpt2_small", 2.0),),
    ),
)

QUICK = (Emulated("BCube(2, 2), 100 Mbit/s", BCube(2, 2), 100_000_000, 0.15, (("vgg16", 1.0),)),)


def best(
    problems: Sequence[iteration.Problem], modes: Sequence[Mode]
) -> tuple[iteration.Problem, iteration.Plan]:
    """Return the best plan of several problems in some modes, and its problem."""
    planned = []
    for problem in problems:
        whole = replace(problem, modes=modes)
        result = iteration.solve(whole)
        assert result.plan is not None
        planned.append((result.objective_ns or 0, whole, result.plan))
    return min(planned, key=lambda plan: plan[0])[1:]


def planned_variants(
    problems: Sequence[iteration.Problem], flat: iteration.Problem, scaled: tuple[int, int]
) -> tuple[dict[str, str], str]:
    """Return the joint plan and its ablations as answers, each different one once, and its words.

    Parameters
    ----------
    problems : sequence of Problem
        What is planned, with each algorithm by itself.
    flat : Problem
        The same by gloo's ring among all hosts.
    scaled : tuple of int
        Limits of DDP's buckets.
    """
    problem, plan = best(problems, iteration.MODES)
    plans = {JOINT: (problem, plan)}
    if plan.mode == "sharded":
        plans[REPLICATED] = best(problems, ["replicated"])
    if plan.mode == "replicated" or isinstance(problem.cluster.topology, Switch):
        ringed = tuple(replace(transfer, algorithm=None) for transfer in plan.transfers)
        plans[RINGED] = flat, replace(plan, algorithm="ring", transfers=ringed)
    for name, ablation in ABLATIONS.items():
        plans[name] = problem, ablation(problem, plan, scaled)
    seen: list[Program] = []
    answers = {}
    for name, (own, changed) in plans.items():
        evaluation = iteration.evaluate(own, changed)
        priced = Result("joint", changed, evaluation.iteration_ns, 0, 0.0, evaluation=evaluation)
        document = msgspec.json.encode(answer(own, priced))
        program = program_of(document)
        if program not in seen:
            seen.append(program)
            answers[name] = document.decode()
    pieces = {part for transfer in plan.transfers for part in transfer.parts}
    cut = len(pieces) > len(problem.pushed) * (1 if plan.mode == "replicated" else 2)
    words = (
        f"{' and '.join(plan.algorithms)}, {plan.mode}, {len(plan.transfers)} transfers"
        f"{', some of parts of parameters' if cut else ''}"
    )
    return answers, words


def ddp_variants(flat: iteration.Problem, scale: float) -> tuple[list[Variant], str]:
    """Return torch's DDP with all bucket sizes, each different one once, and which are alike."""
    defaults = DDP_FIRST_BUCKET_BYTES, DDP_BUCKET_BYTES
    small = int(defaults[0] / scale), int(defaults[1] / scale)
    limits = {DDP: defaults, SCALED: small}
    for megabytes in BUCKETS_MB:
        limits[f"{DDP}, {megabytes} MB"] = (int(megabytes * 10**6 / scale),) * 2
    seen: dict[iteration.Plan, str] = {}
    variants, alike = [], []
    for name, (first, others) in limits.items():
        plan = bucketed(flat, "ring", (first, others))
        if plan in seen:
            alike.append(f"`{name}` is `{seen[plan]}`")
            continue
        seen[plan] = name
        predicted = iteration.evaluate(flat, plan).iteration_ns
        sizes = [first / 2**20, others / 2**20]
        options = {} if name == DDP else {"bucket_cap_mb_list": sizes}
        variants.append(Variant(name, None, predicted, options))
    return variants, "; ".join(alike)


def variants_for(
    world: World, profile: Profile, fits: Mapping[str, Fit], flat_fit: Fit, scale: float
) -> tuple[list[Variant], str, str]:
    """Plan on rank 0, and return the same variants on all ranks, and about them."""
    text = ""
    if world.rank == 0:
        options: dict[str, Any] = {"element_bytes": 4, "ignore_memory": True}
        problems = [
            iteration.Problem.from_profile(profile, fit.cluster, algorithms=[name], **options)
            for name, fit in fits.items()
        ]
        flat = iteration.Problem.from_profile(
            profile, flat_fit.cluster, algorithms=["ring"], **options
        )
        limits = int(DDP_FIRST_BUCKET_BYTES / scale), int(DDP_BUCKET_BYTES / scale)
        answers, words = planned_variants(problems, flat, limits)
        ddp, alike = ddp_variants(flat, scale)
        own = [(variant.name, variant.predicted_ns, variant.options) for variant in ddp]
        text = json.dumps((answers, own, words, alike))
    answers, own, words, alike = json.loads(world.gather("the plans", text)[0])
    plans = {name: json.loads(document) for name, document in answers.items()}
    return (
        [
            *(Variant(name, plan, plan["iteration_ns"]) for name, plan in plans.items()),
            *(Variant(name, None, predicted, options) for name, predicted, options in own),
        ],
        words,
        alike,
    )


def worker(emulated: Emulated, options: argparse.Namespace) -> dict[str, Any]:
    """Measure on one host; rank 0 returns what it found."""
    world = join(120, emulated.interfaces)
    try:
        fits, flat = [
            calibrated(
                world,
                unmeasured(topology, emulated.hosts, emulated.rate),
                options.sizes,
                options.samples,
                algorithms,
            )
            for topology, algorithms in (
                (emulated.topology, iteration.ALGORITHMS),
                (Switch(emulated.hosts), ("ring",)),
            )
        ]
        settings = []
        for name, rho in emulated.models:
            shipped = load(name)
            size = ring_bytes(emulated.hosts, emulated.rate, rho * emulated.compute_s)
            units = scaled_units(shipped, emulated.compute_s, size)
            own = profiled(waiting(units), name, options.repetitions)
            scale = shipped.parameter_bytes / size
            variants, words, alike = variants_for(world, own, fits, flat["ring"], scale)
            title = f"{emulated.name}: {name}, ρ = {rho:g}"
            times, _ = take_turns(
                world,
                partial(waiting, units),
                variants,
                rounds=options.rounds,
                steps=options.steps,
                about=title,
            )
            about = (
                f"{format_bytes(round(size))} in {len(own.dataflow().parameters)} parameters "
                f"(sizes 1/{scale:.0f} of the model's), {emulated.compute_s * 1e3:.0f} ms of "
                f"waiting a step in {LABEL}. The plan: {words}."
            )
            about += f" Buckets alike: {alike}." if alike else ""
            several = [measured(variant.name, variant.predicted_ns, times) for variant in variants]
            settings.append(Setting(title, about, words, several))
        return {"fits": {**fits, GLOO: flat["ring"]}, "settings": settings}
    finally:
        world.leave()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="what are joint plans worth in executed steps?",
        epilog="example: %(prog)s --only BCube --rounds 7",
    )
    parser.add_argument("--quick", action="store_true", help="one small setting, few steps")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="clusters with this in their names"
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--steps", type=int, default=1, help="of each variant a round; default: 1")
    options = parser.parse_args(argv)
    options.samples, options.repetitions, options.sizes = 5, 5, SIZES
    clusters: tuple[Emulated, ...] = QUICK if options.quick else CLUSTERS
    if options.quick:
        options.rounds, options.steps, options.samples, options.repetitions = 2, 1, 1, 2
        options.sizes = SIZES[1:4]
    clusters = tuple(
        cluster
        for cluster in clusters
        if not options.only or any(text in cluster.name for text in options.only)
    )
    reason = reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    settings: list[Setting] = []
    fits: list[tuple[str, str, Fit]] = []
    print(f"{options.rounds} rounds of {options.steps} steps; layers wait instead of computing\n")
    for cluster in clusters:
        result = on_hosts(cluster.layout, cluster.rate, worker, cluster, options, timeout_s=3600)
        fits += [(cluster.name, name, fit) for name, fit in result["fits"].items()]
        for setting in result["settings"]:
            settings.append(setting)
            print(f"### {setting.title}\n\n{setting.about}\n")
            print(table(setting.variants, DDP), end="\n\n", flush=True)
    print(f"### clusters as measured\n\n{calibration(fits)}\n")
    print(f"### DDP against `joint`\n\n{compared(settings)}\n")
    print(f"### what each decision is worth\n\n{gains(settings)}\n")
    print(f"### predicted against measured\n\n{predictions(settings)}\n")
    print(f"### prediction errors by variant\n\n{errors_by_variant(settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
