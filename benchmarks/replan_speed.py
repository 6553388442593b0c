"""How fast an old plan becomes one for numbers that have changed a little, and how good it is.

    python benchmarks/replan_speed.py [--quick]

Shipped profiles of which one time in twenty is another by up to a fifth, on networks whose start-up
and rate are 5 % off (clusters stay). Printed are, for each family and over all profiles, what
method `replan` takes of one processor from the old plan, at the median and at most, how many times
as long planning anew takes (the geometric mean), and how much longer an iteration takes at most
with its plan than with the new one. Times depend on the machine; ratios are what counts.
"""

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any, NamedTuple

from tables import rows_below

from planner.families import caramel, fsdp, ibatch, iteration
from planner.families.iteration.fsdp_from_profile import sharded_problem
from planner.jsonio import decode_profile, read_cluster
from planner.model.costs import AffineCost
from planner.model.profiles import Profile

DATA = Path(__file__).parent.parent / "data" / "profiles"
CHANGED = Fraction(1, 20)
CLUSTER = "h100-8"


class Family(NamedTuple):
    """A family, and how its problem follows from a profile and how much dearer the network is."""

    module: Any
    problem: Callable[[Profile, float], Any]


def _network(dearer: float) -> AffineCost:
    """Return 1 Gb/s with a start-up of 50 µs, or a little less."""
    return AffineCost(round(50_000 * dearer), Fraction(round(8_000_000 * dearer), 10**6))


FAMILIES = {
    "ibatch": Family(
        ibatch,
        lambda profile, dearer: ibatch.Problem.from_profile(profile.chain(), _network(dearer)),
    ),
    "caramel": Family(
        caramel,
        lambda profile, dearer: caramel.Problem.from_profile(profile, _network(dearer), workers=8),
    ),
    "iteration": Family(
        iteration,
        lambda profile, _: iteration.Problem.from_profile(profile, read_cluster(CLUSTER)),
    ),
    "fsdp": Family(fsdp, lambda profile, _: sharded_problem(profile, read_cluster(CLUSTER))),
}


class Case(NamedTuple):
    """What one profile's plan took (s), and its iteration over that of the plan made anew."""

    replan_s: float
    anew_s: float
    replanned: float


def changed(document: dict[str, Any], draw: Random) -> dict[str, Any]:
    """Return a profile of which some times are others."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(item) for item in value]
        if not isinstance(value, dict):
            return value
        new = {key: of(item) for key, item in value.items()}
        for key in ("ns", "forward_ns", "backward_ns"):
            if new.get(key) and draw.random() < CHANGED:
                new[key] = round(new[key] * draw.uniform(0.8, 1.2))
        return new

    return {
        key: of(value) if key in ("layers", "ops") else value for key, value in document.items()
    }


def case(family: Family, document: dict[str, Any], rounds: int) -> Case:
    """Plan, change, and plan again both ways."""
    draw = Random(document["name"])
    old = family.module.solve(family.problem(decode_profile(json.dumps(document)), 1.0)).plan
    now = decode_profile(json.dumps(changed(document, draw)))
    problem = family.problem(now, 1.05)
    anew, anew_s = timed(lambda: family.module.solve(problem))
    times = []
    for _ in range(rounds):
        again, seconds = timed(lambda: family.module.solve(problem, method="replan", start=old))
        times.append(seconds)
    return Case(median(times), anew_s, again.objective_ns / anew.objective_ns)


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return what comes out, and the processor time in s."""
    begin = time.process_time()
    result = run()
    return result, time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one profile, few rounds")
    quick = parser.parse_args().quick
    paths = [DATA / "lenet5.json"] if quick else sorted(DATA.glob("*.json"))
    documents = [json.loads(path.read_bytes()) for path in paths]
    rows = []
    for name, family in FAMILIES.items():
        cases = {
            document["name"]: case(family, document, 3 if quick else 15) for document in documents
        }
        slowest = max(cases, key=lambda profile: cases[profile].replan_s)
        rows.append(
            (
                name,
                len(cases),
                f"{1e3 * median(each.replan_s for each in cases.values()):.1f}",
                f"{1e3 * cases[slowest].replan_s:.1f}",
                slowest,
                f"{exp(fmean(log(each.anew_s / each.replan_s) for each in cases.values())):.0f} x",
                f"{max(each.replanned for each in cases.values()) - 1:.3%}",
            )
        )
    rows_below(
        (
            "family",
            "profiles",
            "replan (ms)",
            "at most (ms)",
            "for",
            "anew takes",
            "worse than anew by at most",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
