"""Measures how fast the exact makespan of iBatch's problem is.

    python benchmarks/ibatch_speed.py [--milp-limit SECONDS] [--quick]

Prints, from one run: the near-linear exact method against mixed-integer programs at 200 layers
(search against model and search; `solve` also checks, prices and bounds the plan); its own growth
from 10⁴ to 10⁶ layers, on random tables and on one with as many batches as layers; and against
MG-WFBP's merge rule at 2,000 layers. Absolute times depend on the machine; the ratios are taken
between runs of the same process.
"""

import argparse
import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import prod

import ibatch_milp
from tables import head, row

from planner.families.ibatch import Problem, solve
from planner.families.ibatch.makespan import solve_additive
from planner.families.ibatch.problem import Direction
from planner.solving.bucketing import mg_wfbp_groups
from planner.solving.deadline import Deadline


def table(count: int, startup: int, seed: int, direction: Direction = "pull") -> Problem:
    """Return a problem with uniformly random times below 1000."""
    source = random.Random(seed)
    return Problem(
        startup_ns=startup,
        transfer_ns=[source.randrange(1000) for _ in range(count)],
        compute_ns=[source.randrange(1000) for _ in range(count)],
        direction=direction,
    )


def balanced(count: int, seed: int) -> Problem:
    """Return a problem whose optimum has as many batches as layers.

    Computation of each layer takes as long as communication of the next one, give or take less
    than any transfer: no two communications are worth merging, and no sweep ends early.
    """
    source = random.Random(seed)
    startup = 10
    transfer = [source.randrange(100, 1000) for _ in range(count + 1)]
    wobble = [source.randrange(50) for _ in range(count + 1)]
    compute = [startup + transfer[i + 1] + wobble[i] - wobble[i + 1] for i in range(count)]
    return Problem(
        startup_ns=startup,
        transfer_ns=transfer[:count],
        compute_ns=[max(0, duration) for duration in compute],
    )


def seconds(action: Callable[[], object], runs: int) -> float:
    """Return the shortest of several runs."""
    best = float("inf")
    for _ in range(runs):
        gc.collect()
        begin = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - begin)
    return best


def solving(problem: Problem, runs: int) -> float:
    """Return the shortest time `solve` takes on a problem it has not seen, prefix sums included."""
    copies = [fresh(problem) for _ in range(runs)]
    return seconds(lambda: solve(copies.pop()), runs)


def searching(problem: Problem, runs: int) -> float:
    """Return the shortest time the search alone takes, prefix sums included."""
    copies = [fresh(problem) for _ in range(runs)]
    return seconds(lambda: solve_additive(copies.pop(), Deadline(None)), runs)


def fresh(problem: Problem) -> Problem:
    """Return a copy that has not computed its prefix sums yet."""
    return Problem(
        startup_ns=problem.startup_ns,
        transfer_ns=problem.transfer_ns,
        compute_ns=problem.compute_ns,
        direction=problem.direction,
    )


def against_milp(limit: float, startups: Sequence[int]) -> None:
    print(f"## Exact method against mixed-integer programs, 200 layers, limit {limit:g} s\n")
    head(("start-up", "exact", "`solve`", "program, solver", "its time", "ratio", "same optimum"))
    for startup in startups:
        problem = table(200, startup, seed=startup)
        whole = solving(problem, 50)
        own = searching(problem, 50)
        optimum = solve(problem).objective_ns
        for name, milp in ibatch_milp.SOLVERS.items():
            objective, proven, taken = milp(problem, limit)
            sign = "" if proven else "≥ "
            same = "yes" if proven and objective == optimum else "stopped" if not proven else "NO"
            times = (f"{own * 1e3:.2f} ms", f"{whole * 1e3:.2f} ms", name, f"{sign}{taken:.2f} s")
            row((startup, *times, f"{sign}{taken / own:,.0f}×", same))
    print()


def growth(title: str, make: Callable[[int, int], Problem], sizes: list[int]) -> None:
    print(f"## Growth: {title}\n")
    head(("layers", "batches", "solve", "per doubling", "peak memory", "bytes a layer"))
    previous: float | None = None
    ratios = []
    for count in sizes:
        problems = [make(count, seed) for seed in range(3)]
        taken = sum(solving(problem, 3) for problem in problems)
        ratio = "" if previous is None else f"{taken / previous:.2f}"
        if previous is not None:
            ratios.append(taken / previous)
        previous = taken
        copy = fresh(problems[0])
        tracemalloc.start()
        result = solve(copy)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.plan is not None
        sizes_and_time = (
            f"{count:,}",
            f"{len(result.plan.batches):,}",
            f"{taken / 3 * 1e3:.1f} ms",
        )
        row((*sizes_and_time, ratio, f"{peak / 2**20:.1f} MiB", f"{peak / count:.0f}"))
    mean = prod(ratios) ** (1 / len(ratios))
    print(f"\nGeometric mean per doubling: {mean:.2f}\n")


def literal_mg_wfbp(problem: Problem) -> list[int]:
    """MG-WFBP as published: all starts of communication are computed anew after each merge."""
    startup, count = problem.startup_ns or 0, problem.layers
    backward, sizes = list(problem.compute_ns), list(problem.transfer_ns or ())
    ready = [0] * count
    clock = 0
    for layer in reversed(range(count)):
        clock += backward[layer]
        ready[layer] = clock
    times = [startup + size for size in sizes]

    def starts() -> list[int]:
        begin = [0] * count
        begin[-1] = ready[-1]
        for layer in range(count - 2, -1, -1):
            begin[layer] = max(begin[layer + 1] + times[layer + 1], ready[layer])
        return begin

    begin, merged = starts(), [False] * count
    for layer in range(count - 1, 0, -1):
        if ready[layer - 1] - begin[layer] < startup:
            sizes[layer - 1] += sizes[layer]
            times[layer], times[layer - 1] = 0, startup + sizes[layer - 1]
            merged[layer] = True
            begin = starts()
    groups = [1]
    for layer in range(count - 1, 0, -1):
        if merged[layer]:
            groups[-1] += 1
        else:
            groups.append(1)
    return groups


def linear_mg_wfbp(problem: Problem) -> list[int]:
    """MG-WFBP's rule as this library runs it, without pricing and checking the plan."""
    count = problem.layers

    def duration(first: int, stop: int) -> int:
        return problem.transfer_time(count - stop, count - first)

    ready = list(accumulate(reversed(problem.compute_ns)))
    return mg_wfbp_groups(ready, duration, problem.transfer_startup_ns)


def against_mg_wfbp(startups: Sequence[int]) -> None:
    print("## Exact method against MG-WFBP's rule, push, 2,000 layers\n")
    header = ("start-up", "exact", "rule as published", "ratio", "rule, O(n)", "ratio")
    head((*header, "rule's makespan"))
    for startup in startups:
        problem = table(2000, startup, seed=startup, direction="push")
        result, rule = solve(problem), solve(problem, method="mg_wfbp")
        assert rule.plan is not None
        assert rule.objective_ns is not None
        assert result.objective_ns is not None
        assert rule.objective_ns >= result.objective_ns
        groups = literal_mg_wfbp(problem)
        assert groups == [stop - start for start, stop in rule.plan.batches]
        own = solving(problem, 20)
        published = seconds(partial(literal_mg_wfbp, problem), 2)
        linear = seconds(partial(linear_mg_wfbp, problem), 10)
        loss = rule.objective_ns / result.objective_ns - 1
        once = (f"{own * 1e3:.2f} ms", f"{published * 1e3:.0f} ms", f"{published / own:.0f}×")
        again = (f"{linear * 1e3:.2f} ms", f"{linear / own:.2f}×", f"+{loss:.2%}")
        row((startup, *once, *again))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description="how fast is the exact makespan?")
    parser.add_argument("--milp-limit", type=float, default=120.0, help="seconds a solver")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    options = parser.parse_args()
    sizes = [7812 * 2**i for i in range(8)]  # up to 999,936
    startups = [1, 10, 100, 1000, 10_000]
    if options.quick:
        sizes, startups = [1000, 2000], [1, 1000]
        options.milp_limit = min(options.milp_limit, 0.2)
    gc.freeze()  # what is loaded is not looked at again before each run
    print(f"Python {sys.version.split()[0]}\n")
    against_milp(options.milp_limit, startups)
    growth("random tables, start-up 100", lambda n, seed: table(n, 100, seed), sizes)
    growth("random tables, start-up 10,000", lambda n, seed: table(n, 10_000, seed), sizes)
    growth("as many batches as layers", balanced, sizes)
    against_mg_wfbp(startups[1:])


if __name__ == "__main__":
    main()
