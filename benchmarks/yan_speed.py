"""How fast the best configuration of a job is found, and what the bounds cut.

    python benchmarks/yan_speed.py [--quick]

Prints ratios of processor times measured in one run: the search with bounds against the same
dynamic program run on every choice of every triple (what pairs of choices cost is computed once for
all triples), and against brute force; then how time grows with machines, layers and cores. Networks
are the stand-ins of ``data/yan`` (synthetic).
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from tables import rows_below
from yan_brute_force import brute_force

from planner.families.yan import Problem
from planner.families.yan.configuration import Triple
from planner.families.yan.problem import Choice, choices
from planner.families.yan.search import Engine
from planner.families.yan.tables import Array, Tables
from planner.jsonio import decode_request
from planner.jsonio.yan import problem_of
from planner.solving.deadline import Deadline

T = TypeVar("T")

DATA = Path(__file__).parent.parent / "data" / "yan"


def load(name: str) -> Problem:
    return problem_of(decode_request((DATA / f"{name}.json").read_bytes()))


def timed(run: Callable[[], T]) -> tuple[T, float]:
    begin = time.process_time()
    result = run()
    return result, time.process_time() - begin


def with_bounds(problem: Problem) -> tuple[float, str]:
    """Return the best time and what was cut."""
    engine = Engine(problem)
    result = engine.search(1, Deadline(None))
    cut = f"{result.solved} of {result.triples:,} triples"
    return float(engine.exactly(result.solutions[0].triple).epoch), cut


class SharedTables(Tables):
    """Costs of all pairs of choices, computed once for all triples."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        workers = problem.machines - 1
        self.all = [choices(problem, layer, workers) for layer in problem.layers]
        self.rows = [{one: row for row, one in enumerate(some)} for some in self.all]
        self.pairs = {
            place: super(SharedTables, self).pair(place, self.all[place - 1], self.all[place])
            for place in range(1, len(self.all))
        }

    def pair(
        self, place: int, before: Sequence[Choice], options: Sequence[Choice]
    ) -> tuple[Array, Array]:
        """Return some of the pairs."""
        rows = [self.rows[place - 1][one] for one in before]
        columns = [self.rows[place][option] for option in options]
        ahead, back = self.pairs[place]
        return ahead[np.ix_(rows, columns)], back[np.ix_(rows, columns)]


def plain(problem: Problem) -> float:
    """Run the dynamic program on every choice of every triple, as the paper does."""
    engine = Engine(problem)
    engine.layerwise.tables = SharedTables(problem)
    best = float("inf")
    for workers, replicas in engine.space.pairs():
        for servers in engine.space.servers(workers, replicas):
            program = engine.layerwise.whole_program(Triple(workers, replicas, servers))
            best = min(best, program.best().epoch)
    return best


def count(problem: Problem) -> int:
    """Return how many configurations there are."""
    total = 0
    for replicas in range(1, problem.machines):
        for workers in range(1, (problem.machines - 1) // replicas + 1):
            each = 1
            for layer in problem.layers:
                each *= problem.threads * len(choices(problem, layer, workers))
            total += each * (problem.machines - replicas * workers)
    return total


def against_brute_force(imagenet: Problem) -> None:
    """Print the ratio on the largest case brute force can do."""
    small = cores(replace(imagenet, machines=6, layers=imagenet.layers[-3:]), 2)
    brute, slow = timed(partial(brute_force, small, Deadline(None)))
    (best, _), fast = timed(partial(with_bounds, small))
    dp, middle = timed(partial(plain, small))
    assert brute.plan is not None
    epoch = float(brute.plan.ranking[0].epoch)
    assert abs(best - epoch) <= 1e-9 * epoch >= abs(dp - epoch)
    print("## Against brute force and the plain dynamic program\n")
    print(
        f"6 machines, 3 layers, 2 threads: {count(small):,} configurations; brute force takes "
        f"{slow / fast:.0f} times as long as the search with bounds, the plain program "
        f"{middle / fast:.1f} times.\n"
    )


def against_plain(networks: dict[str, Problem], sizes: list[int]) -> None:
    """Print the ratio against the plain program."""
    rows = []
    for name, problem in networks.items():
        for machines in sizes:
            one = replace(problem, machines=machines)
            (best, cut), fast = timed(partial(with_bounds, one))
            dp, slow = timed(partial(plain, one))
            assert abs(best - dp) <= 1e-9 * best
            space = f"{count(one):.1e}"
            rows.append((name, str(machines), space, f"{slow / fast:.0f}x", f"{fast:.2f} s", cut))
    header = ("network", "machines", "configurations", "plain / bounds", "bounds", "looked at")
    rows_below(header, rows)


def growth(title: str, of: str, cases: list[tuple[str, Problem]]) -> None:
    """Print how the time grows from case to case."""
    rows, before = [], None
    for label, problem in cases:
        (_, cut), took = timed(partial(with_bounds, problem))
        ratio = "" if before is None else f"{took / before:.1f}x"
        rows.append((label, f"{took:.2f} s", ratio, cut))
        before = took
        print(f"{label}: {took:.1f} s", file=sys.stderr)
    print(f"## Growth: {title}, {of}\n")
    rows_below((of, "time", "to the line above", "looked at"), rows)


def deep(problem: Problem, layers: int) -> Problem:
    """Return a network of so many layers: the fourth one, a convolution, repeated."""
    repeated = [replace(problem.layers[3], name=f"conv{n}") for n in range(layers - 8)]
    return replace(problem, layers=(*problem.layers[:4], *repeated, *problem.layers[4:]))


def cores(problem: Problem, count: int) -> Problem:
    """Return the problem on machines of so many cores."""
    constants = replace(
        problem.constants,
        latency_ns=[Fraction(10_000)] * count,
        interference=[1 + Fraction(more, 50) for more in range(count)],
    )
    return replace(problem, cores=count, constants=constants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases only")
    quick = parser.parse_args().quick
    networks = {name: load(name) for name in ("mnist", "imagenet22k")}
    imagenet = networks["imagenet22k"]
    against_brute_force(imagenet)
    against_plain(networks, [6] if quick else [10, 20])
    machines = [10, 20] if quick else [20, 50, 100, 200]
    for name, problem in networks.items():
        cases = [(f"{n}", replace(problem, machines=n)) for n in machines]
        growth(f"{name}, full grid", "machines", cases)
    machines = [10, 20] if quick else [20, 100, 250, 500, 1000]
    for name, problem in networks.items():
        cases = [
            (f"{n}", replace(problem, machines=n, partitions="powers_of_two")) for n in machines
        ]
        growth(f"{name}, powers of two", "machines", cases)
    layers = [8, 12] if quick else [8, 25, 50, 100]
    growth("20 machines", "layers", [(f"{n}", deep(imagenet, n)) for n in layers])
    threads = [4, 8] if quick else [8, 16, 32, 64]
    growth("20 machines", "cores", [(f"{n}", cores(imagenet, n)) for n in threads])


if __name__ == "__main__":
    main()
