"""Measures how far plans are from the best ones if the numbers are others, by the model.

    python benchmarks/regret.py [--quick]

Shipped profiles of up to 200 parameters, communication 1/2, 1 and 2 times computation, start-ups of
0.2 % of it. In each scenario of `planner.solving.scenarios.SCENARIOS`: the regret of `auto`'s plan
of `caramel`, at least and at most, and DDP's default and layer by layer over it. Then what one plan
for all these scenarios, and for none of them, gains in them, gives away without them, and how far
it is from its bound. Ends with an error if it gives away more than it may.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import exp, log
from pathlib import Path
from statistics import fmean

from tables import rows_below

from planner import AffineCost
from planner.families import caramel
from planner.jsonio import decode_profile
from planner.solving.advice import advise
from planner.solving.deadline import NEVER
from planner.solving.scenarios import MAX_LOSS, SCENARIOS, Scenario, ScenarioSet
from planner.solving.what_if import regrets, robust_plan

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
RATIOS = (Fraction(1, 2), Fraction(1), Fraction(2))
STARTUP = Fraction(2, 1000)
MOST_PARAMETERS = 200


def problems(names: Sequence[str]) -> Iterator[caramel.Problem]:
    """Yield the problems of profiles."""
    for name in names:
        profile = decode_profile((PROFILES / f"{name}.json").read_bytes())
        free = caramel.Problem.from_profile(profile, AffineCost(0, Fraction(1)))
        compute, size = free.windows.compute_ns, sum(free.windows.sizes)
        if len(free.windows.sizes) > MOST_PARAMETERS:
            continue
        for ratio in RATIOS:
            cost = AffineCost(int(STARTUP * compute), Fraction(int(ratio * compute), size))
            yield caramel.Problem.from_profile(profile, cost)


def named(scenario: Scenario) -> str:
    """Return what is otherwise."""
    parts = [f"computation × {float(scenario.computation):g}"] if scenario.computation != 1 else []
    parts += [f"start-ups × {float(scenario.startup):g}"] if scenario.startup != 1 else []
    parts += [f"bandwidth × {float(scenario.bandwidth):g}"] if scenario.bandwidth != 1 else []
    parts += [f"late by {float(scenario.late):g}"] if scenario.late else []
    return ", ".join(parts)


def mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return exp(fmean(map(log, ratios)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one profile")
    options = parser.parse_args()
    names = ["alexnet_v2"] if options.quick else sorted(one.stem for one in PROFILES.glob("*.json"))
    rows: dict[Scenario, list[tuple[float, ...]]] = {one: [] for one in SCENARIOS}
    kept, gains = 0, []
    known = list(problems(names))
    for problem in known:
        result = caramel.solve(problem)
        assert result.plan is not None
        found = advise(caramel.CARAMEL, problem, result, NEVER)
        assert found is not None
        kept += found.keep_ddp
        gains.append(float(found.gain))
        for one in regrets(caramel.CARAMEL, problem, result.plan, NEVER):
            others = [(time or 0) / one.plan_ns for time in (one.ddp_ns, one.layers_ns)]
            bounds = float(one.at_least), float(one.at_most or one.at_least)
            rows[one.scenario].append((*bounds, *others))
    print(f"## Regret, {len(known)} cases\n")
    columns = (
        "if",
        "regret: at least",
        "at most",
        "worst",
        "DDP over it",
        "layer by layer over it",
    )
    lines = []
    for scenario, found_rows in rows.items():
        least, most, ddp, layers = zip(*found_rows, strict=True)
        numbers = [f"{value:.4f}" for value in (mean(least), mean(most), max(most))]
        lines.append([named(scenario), *numbers, f"{mean(ddp):.3f}", f"{mean(layers):.3f}"])
    rows_below(columns, lines)
    print(f"Over DDP's best buckets {mean(gains):.3f}; keep DDP in {kept} of {len(known)}.\n")
    print(f"## One plan for all of them, {len(known)} cases\n")
    counts = ("what counts", "gain", "most gained", "given away", "most given away")
    rows_below(
        (*counts, "over its bound", "most over its bound"),
        [outlook(known, percentile) for percentile in (None, Fraction(90))],
    )


def outlook(known: Sequence[caramel.Problem], percentile: Fraction | None) -> list[str]:
    """Return a row about plans for all scenarios together."""
    likely = ScenarioSet(tuple((one, Fraction(1)) for one in (Scenario(), *SCENARIOS)), percentile)
    ratios: list[tuple[float, ...]] = []
    for problem in known:
        result, prospect = robust_plan(caramel.CARAMEL, problem, likely, NEVER)
        assert result.objective_ns is not None
        assert prospect is not None
        if result.objective_ns > MAX_LOSS * prospect.usual_ns:
            sys.exit(f"{result.objective_ns} ns > {float(MAX_LOSS)} × {prospect.usual_ns} ns")
        gain, over = prospect.usual_value / prospect.value, prospect.value / prospect.bound
        ratios.append((float(gain), result.objective_ns / prospect.usual_ns, float(over)))
    row = ["mean" if percentile is None else f"{percentile}th percentile"]
    for column in zip(*ratios, strict=True):
        row += [f"{mean(column):.4f}", f"{max(column):.4f}"]
    return row


if __name__ == "__main__":
    main()
