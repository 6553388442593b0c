"""How far plans of fully sharded training are from their bounds, and from what jobs do by default.

    python benchmarks/fsdp_quality.py [PROFILE ...] [--computation 0.05] [--quick]

Every profile on every shipped cluster, with Adam's state, at memory limits from "everything fits"
down to the least memory in which a plan exists and one layer more: nothing is executed, and nothing
depends on a clock. A rule that does not fit into the memory is not counted for its row.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tables import rows_below

from planner import Cluster, Profile, fsdp
from planner.fsdp.evaluation import peak_of
from planner.fsdp.least import least_memory
from planner.fsdp.rules import RULES
from planner.iteration.fully_sharded import sharded_problem
from planner.jsonio.files import read_cluster, read_profile, shipped_clusters

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
SHARES = (Fraction(1), Fraction(1, 2), Fraction(1, 4), Fraction(1, 10), Fraction(0))
"""Memory limits, between the least and what the plan without a limit takes."""

ADAM = 2
"""Bytes of optimiser state for each byte of parameters."""


class Case(NamedTuple):
    """One problem: what is above the bound, and how much longer the rules take that fit."""

    name: str
    share: Fraction
    gap: float
    optimal: bool
    over: dict[str, float]


def limits(problem: fsdp.Problem) -> Iterator[tuple[Fraction, fsdp.Problem]]:
    """Yield a problem with each memory limit; the first has none."""
    free = replace(problem, memory_bytes=None)
    plan = fsdp.solve(free).plan
    assert plan is not None
    most = peak_of(free, plan)
    least = min(least_memory(free, mesh).memory_bytes for mesh in range(len(free.meshes)))
    least = min(least + max(free.parameter_bytes), most)
    yield SHARES[0], free
    for share in SHARES[1:]:
        yield share, replace(problem, memory_bytes=least + int((most - least) * share))


def case_of(name: str, share: Fraction, problem: fsdp.Problem) -> Case:
    """Plan one problem, and price all rules."""
    result = fsdp.solve(problem)
    assert result.objective_ns is not None, name
    assert result.gap is not None, name
    times = {rule: fsdp.solve(problem, method=rule).objective_ns for rule in RULES}
    over = {rule: time / result.objective_ns for rule, time in times.items() if time is not None}
    return Case(name, share, result.gap, result.status == "optimal", over)


def cases(
    profiles: Sequence[Profile], clusters: Sequence[Cluster], computation: Fraction
) -> Iterator[Case]:
    """Yield every case."""
    for profile in profiles:
        for cluster in clusters:
            problem = sharded_problem(
                profile, cluster, computation=computation, optimiser=ADAM, ignore_memory=True
            )
            for share, limited in limits(problem):
                yield case_of(f"{profile.name} on {cluster.name}", share, limited)
        print(f"{profile.name}: done", file=sys.stderr)


def geometric(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return exp(mean(map(log, ratios)))


def row(name: str, own: Sequence[Case]) -> list[str]:
    """Return what a table says of some cases."""
    worst = max(own, key=lambda case: case.gap)
    best = [min(case.over.values()) for case in own if case.over]
    default = [case.over["fsdp2"] for case in own if "fsdp2" in case.over]
    return [
        name,
        str(len(own)),
        str(sum(case.optimal for case in own)),
        f"{geometric([1 + case.gap for case in own]) - 1:.2%}".replace("%", " %"),
        f"{worst.gap:.1%}".replace("%", " %"),
        worst.name,
        *(f"{geometric(ratios):.3f}×" if ratios else "–" for ratios in (default, best)),
        f"{max(default):.2f}×" if default else "–",
        str(len(default)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("profiles", nargs="*", type=Path, metavar="PROFILE")
    parser.add_argument("--computation", default="1/20", help="times of profiles × this")
    parser.add_argument("--quick", action="store_true", help="two clusters")
    options = parser.parse_args()
    paths = options.profiles or sorted(PROFILES.glob("*.json"))
    names = shipped_clusters()
    clusters = [read_cluster(name) for name in (names[:2] if options.quick else names)]
    found = list(
        cases([read_profile(path) for path in paths], clusters, Fraction(options.computation))
    )
    columns = ["memory", "cases", "optimal", "above the bound", "worst", "where"]
    columns += ["fsdp2 over plan", "best rule over plan", "fsdp2, most", "fsdp2 fits"]
    rows = [
        row(f"{float(share):.0%} of the way" if share < 1 else "no limit", own)
        for share in SHARES
        if (own := [case for case in found if case.share == share])
    ]
    rows_below(columns, [*rows, row("all", found)])


if __name__ == "__main__":
    main()
