"""Measures what batches of whole blocks lose against batches of layers.

    python benchmarks/ibatch_blocks.py PROFILE …

For every profile, both directions, bandwidths of 1, 10 and 100 Gb/s, start-ups of 50 µs, 500 µs and
5 ms, and computation as measured and 10 and 100 times faster: whether the plan that `planner
compare` chooses by itself is slower than any rule of thumb beside it, and how much slower the best
plan of blocks is. Fails if a rule is faster.
"""

import argparse
from fractions import Fraction
from itertools import product
from pathlib import Path

from ibatch_quality import faster

from planner import AffineCost
from planner.families.ibatch import OWN_UNITS, Blocks, Problem, solve
from planner.families.ibatch.problem import Direction
from planner.jsonio import decode_profile

GIGABITS = (1, 10, 100)
STARTUPS_US = (50, 500, 5000)
SPEEDS = (1, 10, 100)
RULES: dict[Direction, list[str]] = {
    "pull": sorted(OWN_UNITS - {"ddp", "mg_wfbp"}),
    "push": sorted(OWN_UNITS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="what do blocks lose?")
    parser.add_argument("profiles", nargs="+", type=Path)
    losses: list[tuple[float, bool, str]] = []
    slower: list[str] = []
    for path in parser.parse_args().profiles:
        profile = decode_profile(path.read_bytes())
        starts = profile.block_starts()
        for direction, rate, startup, speed in product(RULES, GIGABITS, STARTUPS_US, SPEEDS):
            problem = Problem.from_profile(
                faster(profile, speed),
                AffineCost.from_bandwidth(startup * 1000, Fraction(rate) * 10**9 / 8),
                direction=direction,
            )
            case = f"{profile.name}, {direction}, {rate} Gb/s, {startup} µs, {speed}×"
            best = solve(problem).objective_ns
            blocks = Blocks(problem, starts).solve(method="exact").objective_ns
            rules = {rule: solve(problem, method=rule).objective_ns for rule in RULES[direction]}
            assert best
            assert blocks
            slower += [f"{case}: {rule}" for rule, cost in rules.items() if cost and cost < best]
            behind = any(cost and cost < blocks for cost in rules.values())
            losses.append((blocks / best - 1, behind, case))
    print(f"{len(losses)} cases; a rule is faster than the plan of layers in {len(slower)}")
    for least in (0.05, 0.2):
        print(f"blocks lose more than {least:.0%} in {sum(loss > least for loss, *_ in losses)}")
    print(f"a rule is faster than the best plan of blocks in {sum(one for _, one, _ in losses)}")
    print("worst: {0:.0%} ({2})".format(*max(losses)))
    if slower:
        raise SystemExit("\n".join(slower))


if __name__ == "__main__":
    main()
