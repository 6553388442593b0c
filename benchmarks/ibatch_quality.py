"""Measures how much each heuristic loses against the optimum, on measured profiles.

    python benchmarks/ibatch_quality.py [PROFILE …]

For every shipped profile, both directions, bandwidths from 1 to 100 Gb/s, start-ups from 10 µs to
10 ms, and computation as measured and 10 and 100 times faster (the profiles are of two CPU cores,
accelerators compute faster): makespan of each method over the proven optimum. Prints tables by
profile, by start-up and by speed of computation, as mean and worst loss in per cent.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from statistics import fmean

from tables import rows_below

from planner import AffineCost, Profile
from planner.families.ibatch import Problem, evaluate, solve
from planner.families.ibatch.problem import Direction
from planner.jsonio import decode_profile

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
GIGABITS = (1, 2.5, 5, 10, 25, 40, 100)
STARTUPS_US = (10, 30, 100, 300, 1000, 3000, 10_000)
SPEEDS = (1, 10, 100)
COMMON = ("greedy", "greedy_forward", "greedy_backward", "paper model", "one_batch")
METHODS: dict[Direction, tuple[str, ...]] = {
    "pull": (*COMMON, "layer_by_layer"),
    "push": (*COMMON, "layer_by_layer", "mg_wfbp", "ddp"),
}

Losses = dict[tuple[str, str], list[float]]


def faster(profile: Profile, speed: int) -> Profile:
    """Return a profile whose computation takes a fraction of the time."""
    return replace(
        profile,
        layers=tuple(
            replace(
                layer,
                forward_ns=layer.forward_ns // speed,
                backward_ns=layer.backward_ns // speed,
            )
            for layer in profile.layers
        ),
    )


def loss(problem: Problem, method: str, optimum: int) -> float:
    """Return by how much a method's makespan exceeds the optimum, relative to it."""
    if method == "paper model":  # the exact optimum of Eq. 4 under Eq. 5, priced by its makespan
        plan = solve(replace(problem, objective="eq4")).plan
        assert plan is not None
        return evaluate(problem, plan).makespan_ns / optimum - 1
    objective = solve(problem, method=method).objective_ns
    assert objective is not None
    assert objective >= optimum
    return objective / optimum - 1


def show(title: str, losses: Losses, rows: Iterable[str], methods: tuple[str, ...]) -> None:
    """Print mean and worst loss of each method in each row."""
    print(f"### {title}\n")
    texts = []
    for name in rows:
        cells = [losses[name, method] for method in methods]
        texts.append((name, *(f"{fmean(cell):.1%} ({max(cell):.0%})" for cell in cells)))
    rows_below(("", *methods), texts)


def main() -> None:
    parser = argparse.ArgumentParser(description="how much do heuristics lose?")
    parser.add_argument("profiles", nargs="*", type=Path, help="default: all in data/profiles")
    options = parser.parse_args()
    paths = options.profiles or sorted(PROFILES.glob("*.json"))
    profiles: list[Profile] = [decode_profile(path.read_bytes()) for path in paths]
    cases = len(profiles) * len(GIGABITS) * len(STARTUPS_US) * len(SPEEDS)
    print(f"Loss against the optimum: mean (worst) over {cases} cases a direction: ", end="")
    print(f"{len(profiles)} profiles, {GIGABITS} Gb/s, ", end="")
    print(f"start-ups of {STARTUPS_US} µs, computation {SPEEDS} times as fast as measured\n")
    for direction, methods in METHODS.items():
        losses: Losses = defaultdict(list)
        for profile, gigabits, startup, speed in product(profiles, GIGABITS, STARTUPS_US, SPEEDS):
            problem = Problem.from_profile(
                faster(profile, speed),
                AffineCost.from_bandwidth(startup * 1000, Fraction(gigabits) * 10**9 / 8),
                direction=direction,
            )
            result = solve(problem)
            assert result.status == "optimal"
            assert result.objective_ns is not None
            for method in methods:
                value = loss(problem, method, result.objective_ns)
                for row in ("all", profile.name, f"{startup} µs", f"{speed}×"):
                    losses[row, method].append(value)
        print(f"## {direction}\n")
        rows = ["all", *(profile.name for profile in profiles)]
        show("by profile", losses, rows, methods)
        show("by speed of computation", losses, [f"{speed}×" for speed in SPEEDS], methods)
        show("by start-up", losses, [f"{startup} µs" for startup in STARTUPS_US], methods)


if __name__ == "__main__":
    main()
