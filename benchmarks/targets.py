"""What plans made for a target gain over the target's default, by the target's own rules.

    python benchmarks/targets.py [PROFILE ...] [--workers 8] [--computation 1,0.02]

Shipped profiles, or those given, on three networks, with computation as measured and 50 times as
fast. For every target how many times as fast as its default the plan is (never below 1, or the run
ends with an error), and how far it is from the bound. Beside them what becomes of the plan made
without regard to any target, as the target would send it: below 1 it is slower than the default.
"""

import argparse
import sys
from collections.abc import Sequence
from fractions import Fraction
from math import exp, fsum, log
from pathlib import Path
from typing import NamedTuple

from peer_tables import markdown

from planner.families.caramel import Problem, solve
from planner.families.caramel.for_target import price_under_target
from planner.jsonio import decode_profile
from planner.model.clusters import Nic
from planner.model.network import ring_cost
from planner.model.profiles import Profile
from planner.solving.deadline import NEVER
from planner.solving.targets import TARGETS

DATA = Path(__file__).parent.parent / "data" / "profiles"
NETWORKS = {
    "500 Mb/s, 2.5 ms": Nic(Fraction(5 * 10**8, 8), 2_500_000),
    "10 Gb/s, 50 µs": Nic(Fraction(10**10, 8), 50_000),
    "100 Gb/s, 20 µs": Nic(Fraction(10**11, 8), 20_000),
}
"""Bandwidth of a worker, and what an all-reduce costs to start."""


class Case(NamedTuple):
    """One plan for a target: how many times as fast as the target's default."""

    profile: str
    network: str
    computation: str
    target: str
    gain: float
    gap: float
    optimal: bool
    free: float | None


def case(profile: Profile, network: str, scale: str, workers: int) -> list[Case]:
    """Return the plans for all targets on one network."""
    cost = ring_cost(NETWORKS[network], workers)
    graph = profile.dataflow().scaled(Fraction(scale))
    problem = Problem(graph, cost, workers=workers, element_bytes=profile.element_bytes)
    free = solve(problem, time_limit=20).plan
    assert free is not None
    found = []
    for name, target in TARGETS.items():
        mine = Problem(
            graph, cost, workers=workers, element_bytes=profile.element_bytes, target=target
        )
        result, default = solve(mine), solve(mine, method=name)
        assert result.objective_ns
        assert default.objective_ns
        assert result.gap is not None
        other = price_under_target(mine, target, free, NEVER)
        found.append(
            Case(
                profile.name,
                network,
                scale,
                name,
                default.objective_ns / result.objective_ns,
                result.gap,
                result.status == "optimal",
                default.objective_ns / other.plan_ns if other.plan_ns else None,
            )
        )
    return found


def times(gain: float) -> str:
    return f"{gain:.3f}"


def mean(values: Sequence[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))


def summary(cases: Sequence[Case], scale: str) -> str:
    """Return a row a target, over all cases of one scale of computation."""
    header = ["target", "cases", "over its default", "least", "most", "optimal", "above bound"]
    header += ["plans without a target: told", "slower than the default", "least of them"]
    rows = []
    for name in TARGETS:
        own = [one for one in cases if one.target == name and one.computation == scale]
        gains = [one.gain for one in own]
        free = [one.free for one in own if one.free is not None]
        rows.append(
            [
                name,
                str(len(own)),
                *map(times, (mean(gains), min(gains), max(gains))),
                str(sum(one.optimal for one in own)),
                f"{max(one.gap for one in own):.2%}",
                str(len(free)),
                str(sum(one < 1 for one in free)),
                times(min(free)) if free else "–",
            ]
        )
    return markdown(header, rows)


def details(cases: Sequence[Case], name: str) -> str:
    """Return a row a profile: the gains of one target's plans in each setting."""
    own = [one for one in cases if one.target == name]
    settings = dict.fromkeys((one.network, one.computation) for one in own)
    gains = {(one.profile, one.network, one.computation): one.gain for one in own}
    rows = [
        [profile, *(times(gains[profile, *setting]) for setting in settings)]
        for profile in dict.fromkeys(one.profile for one in own)
    ]
    return markdown(["profile", *(f"{network}, × {scale}" for network, scale in settings)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="*", type=Path, metavar="PROFILE")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--computation", default="1,0.02")
    options = parser.parse_args()
    files = options.profiles or sorted(DATA.glob("*.json"))
    scales = options.computation.split(",")
    cases = [
        one
        for file in files
        for scale in scales
        for network in NETWORKS
        for one in case(decode_profile(file.read_bytes()), network, scale, options.workers)
    ]
    for scale in scales:
        print(f"## computation × {scale}\n\n{summary(cases, scale)}\n")
    for name in TARGETS:
        print(f"## {name}\n\n{details(cases, name)}\n")
    worse = [one for one in cases if one.gain < 1]
    if worse:
        sys.exit(f"slower than the default: {worse}")


if __name__ == "__main__":
    main()
