"""How far plans of fully sharded training are from the bound, and from what people do by default.

    python benchmarks/sharded_training.py [PROFILE ...] [--clusters A,B,…] [--computation 1,1/500]
        [--quick]

Shipped profiles, or those given, on shipped clusters, with computation as measured and as fast as
accelerators, on one channel and on two; with memory from the least that would do, and as much more
as its largest layer's parameters, up to all that is needed. Nothing is recomputed. For each memory
the distance to the bound (geometric mean and worst), and how many times as long FSDP2's default
(every block a unit, freed and gathered again) and the best of all rules take: of those that fit.
At the end the distance of all plans together, and which plans are far from their bound. No clock
counts.
"""

import argparse
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from math import exp, fsum, log
from pathlib import Path
from typing import NamedTuple

from tables import rows_below

from planner.families import fsdp
from planner.families.fsdp.baselines import BASELINES, fitted
from planner.families.fsdp.evaluation import iteration_ns, peak_of
from planner.families.fsdp.min_memory import least_memory
from planner.families.fsdp.problem import Channels
from planner.families.iteration.fsdp_from_profile import sharded_problem
from planner.jsonio import decode_profile, read_cluster

DATA = Path(__file__).parent.parent / "data" / "profiles"
CLUSTERS = "caramel-16,a100dgx-2,h100-8"
BOTH: tuple[Channels, ...] = ("one", "two")
FAR = 0.25
MEMORIES = ("least", "a layer more", "1.1 x least", "1.5 x least", "3 x least", "ample")


class Job(NamedTuple):
    """A model on a cluster, its computation scaled, on one channel or two."""

    profile: Path
    cluster: str
    computation: Fraction
    channels: Channels


class Case(NamedTuple):
    """One plan beside its bound and what others take; None where they do not fit."""

    gap: float
    default: float | None
    best: float | None


def limits(problem: fsdp.Problem) -> dict[str, int | None]:
    """Return memory limits by their names."""
    least = min(
        peak_of(problem, least_memory(problem, mesh)) for mesh in range(len(problem.meshes))
    )
    return {
        "least": least,
        "a layer more": least + max(problem.parameter_bytes),
        "1.1 x least": least * 11 // 10,
        "1.5 x least": least * 3 // 2,
        "3 x least": least * 3,
        "ample": None,
    }


def case_of(problem: fsdp.Problem) -> Case:
    """Plan, and compare."""
    result = fsdp.solve(problem)
    assert result.objective_ns is not None
    assert result.gap is not None
    plans = {name: fitted(problem, rule).plan for name, rule in BASELINES.items()}
    took = {name: iteration_ns(problem, plan) for name, plan in plans.items() if plan is not None}
    default = took.get("fsdp2")
    return Case(
        result.gap,
        None if default is None else default / result.objective_ns,
        min(took.values()) / result.objective_ns if took else None,
    )


def cases_of(job: Job) -> dict[str, Case]:
    """Return what is planned for a job under each memory limit."""
    problem = sharded_problem(
        decode_profile(job.profile.read_bytes()),
        read_cluster(job.cluster),
        computation=job.computation,
        optimiser=Fraction(2),
        channels=job.channels,
        ignore_memory=True,
    )
    return {name: case_of(problem.within(limit)) for name, limit in limits(problem).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("profiles", nargs="*", type=Path, metavar="PROFILE")
    parser.add_argument("--clusters", default=CLUSTERS)
    parser.add_argument("--computation", default="1,1/500")
    parser.add_argument("--quick", action="store_true", help="one profile on one cluster")
    options = parser.parse_args()
    if options.quick:
        options.profiles, options.clusters = [DATA / "lenet5.json"], "caramel-16"
    jobs = [
        Job(path, cluster, Fraction(scale), channels)
        for path in options.profiles or sorted(DATA.glob("*.json"))
        for cluster in options.clusters.split(",")
        for scale in options.computation.split(",")
        for channels in BOTH
    ]
    cases: dict[tuple[str, str], list[Case]] = defaultdict(list)
    far = []
    with ProcessPoolExecutor() as pool:
        for job, planned in zip(jobs, pool.map(cases_of, jobs), strict=True):
            print(*job, file=sys.stderr)
            for name, case in planned.items():
                cases[job.channels, name].append(case)
                if case.gap > FAR:
                    where = job.profile.stem, job.cluster, str(job.computation)
                    far.append((*where, job.channels, name, f"{case.gap:.1%}"))
    rows = [row(channels, name, cases[channels, name]) for channels, name in cases]
    rows_below(
        (
            "channels",
            "memory",
            "plans",
            "above the bound (mean)",
            "worst",
            "fsdp2 fits",
            "fsdp2 takes",
            "a rule fits",
            "the best rule takes",
        ),
        rows,
    )
    gaps = [1 + case.gap for several in cases.values() for case in several]
    rows_below(
        ("all plans", "above the bound (mean)", "within 1 %"),
        [(len(gaps), f"{mean(gaps) - 1:.2%}", sum(gap <= 1.01 for gap in gaps))],
    )
    rows_below(("profile", "cluster", "computation", "on channels", "with memory", "above"), far)


def row(channels: str, memory: str, cases: list[Case]) -> tuple[str, ...]:
    """Return one row of the table."""
    gaps = [1 + case.gap for case in cases]
    defaults = [case.default for case in cases if case.default is not None]
    bests = [case.best for case in cases if case.best is not None]
    return (
        channels,
        memory,
        str(len(cases)),
        f"{mean(gaps) - 1:.2%}",
        f"{max(gaps) - 1:.1%}",
        f"{len(defaults)}",
        f"{mean(defaults):.2f} x" if defaults else "–",
        f"{len(bests)}",
        f"{mean(bests):.2f} x" if bests else "–",
    )


def mean(factors: list[float]) -> float:
    """Return the geometric mean."""
    return exp(fsum(map(log, factors)) / len(factors))


if __name__ == "__main__":
    main()
