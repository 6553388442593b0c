"""Table 1 of Yan et al. (KDD'15), and how far configurations lie apart.

    python benchmarks/yan_table1.py [--samples N]

Ranks the configurations of both halves of the table by the model, beside the paper's ranks
(measured and estimated agree there); says in what range of each constant all ranks stay; and
reports the best, the median and the worst of the whole space beside the paper's "10x faster than
the worst one and noticeably faster than median one". Networks and constants are those of
``data/yan``: stand-ins, with constants fitted to these very ranks: a fit, and no validation.
"""

import argparse
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from planner.draw import format_table
from planner.jsonio import decode_request
from planner.jsonio.yan import problem_of
from planner.yan import Problem, solve
from planner.yan.configuration import Ranked
from planner.yan.sensitivity import scaled
from planner.yan.spread import SAMPLES, spread

DATA = Path(__file__).parent.parent / "data" / "yan"

NETWORKS = {"mnist": "MNIST, Table 1(a)", "imagenet22k": "ImageNet-22K, Table 1(b)"}

LIMIT = 10
"""How far constants are changed."""

CONSTANTS = ("muladd_ns", "activation_ns", "error_ns", "latency_ns", "nic_bits_per_s")


def load(name: str) -> Problem:
    return problem_of(decode_request((DATA / f"{name}.json").read_bytes()))


def ranking(problem: Problem) -> tuple[Ranked, ...]:
    plan = solve(problem).plan
    assert plan is not None
    return plan.ranking


def right(problem: Problem) -> bool:
    """Return whether the configurations come out in the order in which they are given."""
    found = [one.configuration.triple for one in ranking(problem)]
    rows = problem.fixed
    return found == [(r.workers_per_replica, r.replicas, r.parameter_servers) for r in rows]


def table(problem: Problem) -> str:
    places = {
        (one.workers_per_replica, one.replicas, one.parameter_servers): place + 1
        for place, one in enumerate(problem.fixed)
    }
    ranked = ranking(problem)
    rows = []
    for place, one in enumerate(ranked):
        triple = one.configuration.triple
        ratio = float(one.epoch / ranked[0].epoch)
        tie = place and one.epoch == ranked[place - 1].epoch
        rows.append(
            (
                "/".join(map(str, triple)),
                str(places[triple]),
                str(place + 1),
                f"{float(one.epoch) / 1e9:,.4g} s",
                f"{ratio:.3f}" + (" (tie: more servers first)" if tie else ""),
            )
        )
    header = ("#W/#R/#PS", "paper", "model", "epoch", "relative to the best")
    return format_table(header, rows)


def reach(problem: Problem, name: str, step: Fraction) -> str:
    """Return how far a constant may go in steps of a factor, then halving the last step."""

    def holds(factor: Fraction) -> bool:
        if name != "read_every":
            return right(scaled(problem, name, factor))
        return right(replace(problem, read_every=max(1, round(problem.read_every * factor))))

    good, bad = Fraction(1), step
    while holds(bad):
        good, bad = bad, bad * step
        if not Fraction(1, LIMIT) <= bad <= LIMIT:
            return f"beyond {float(good):.2f}"
    while abs(bad / good - 1) > Fraction(1, 100):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return f"{float(good):.2f}"


def ranges(problem: Problem) -> list[tuple[str, str, str]]:
    """Return for each constant the range in which all ranks stay right."""
    found = []
    for name in (*CONSTANTS, "read_every"):
        ends = [reach(problem, name, step) for step in (Fraction(3, 4), Fraction(4, 3))]
        found.append((name, ends[0], ends[1]))
        print(f"{name} done", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=SAMPLES, help="drawn for the median")
    parser.add_argument("--quick", action="store_true", help="ranks only")
    options = parser.parse_args()
    wrong = []
    for name, title in NETWORKS.items():
        problem = load(f"{name}-table1")
        print(f"{title}\n\n{table(problem)}\n")
        if not right(problem):
            wrong.append(title)
        if not options.quick:
            print("all ranks stay right if one constant is multiplied by")
            print(format_table(("constant", "from", "to"), ranges(problem)) + "\n")
    if not options.quick:
        rows = []
        for name in NETWORKS:
            for copies, space in ((1, "no copies"), (None, "all")):
                apart = spread(replace(load(name), max_copies=copies), samples=options.samples)
                best = float(apart.best)
                interval = (float(apart.median_low) / best, float(apart.median_high) / best)
                rows.append(
                    (
                        name,
                        space,
                        f"{best / 1e9:,.4g} s",
                        f"{float(apart.median) / best:.3g}x",
                        f"{interval[0]:.3g}–{interval[1]:.3g}x",
                        f"{float(apart.worst) / best:.3g}x",
                    )
                )
        header = ("network", "space", "best", "median", "95 % interval", "worst")
        print(format_table(header, rows))
    sys.exit(f"not all ranks are right: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
