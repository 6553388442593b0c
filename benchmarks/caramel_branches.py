"""Says whether the plan or the bound is to blame where they do not meet, on branching graphs.

    python benchmarks/caramel_branches.py [--seconds 10] [--cases 40] [--seed 0] [PROFILE …]

Profiles (as of `planner import`), or else graphs with many branches and many tiny parameters made
here from seeds, are planned by `search` for networks drawn from the seeds. Where the plan is more
than 0.05 % above its bound, simulated annealing looks for a better one, under the op order of the
plan. It shares nothing with the library's searches: it moves whole parameters, and pieces of them,
between transfers, and prices every neighbour in integers by itself. It starts once from the plan,
once from all gradients in one transfer. What it gains on the plan is the plan's share of the
distance; what is left is the bound's, or out of reach of both.

Prints one line a case that stays above 0.05 %, then the geometric mean and the worst distance to
the bound, and the processor time of `search`.
"""

import argparse
import time
from collections.abc import Iterator
from fractions import Fraction
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean, median

from tables import rows_below

from planner import AffineCost
from planner.families.caramel import OpOrder, Problem, solve
from planner.families.caramel.pricing import loads_of
from planner.families.caramel.windows import Windows, windows
from planner.jsonio import decode_profile
from planner.model.graphs import Graph, Op, Parameter

NOTABLE = 5e-4
ELEMENT = 4
HOT, COLD = 0.005, 0.002
"""Share of the value that is a temperature at first, and what is left of it at the end."""

Transfer = dict[int, int]
"""Bytes of each parameter in one transfer."""


def branching(seed: int) -> Graph:
    """Return a model of cells of several branches, mirrored; most parameters are tiny.

    Every op of a branch has a weight, and half of them a scale and a shift as well, which are
    thousands of times smaller. Backward ops are listed as automatic differentiation runs them, last
    forward op first, but for branches, which come in any order.
    """
    random = Random(seed)
    spread = random.uniform(0.3, 1.5)
    forward: list[tuple[str, list[str]]] = [("f0", [])]
    rank: dict[str, float] = {"f0": 0.0}
    last, before = "f0", "f0"
    for _ in range(random.randint(3, 16)):
        ends = [before] if random.random() < 0.5 else []
        for _ in range(random.randint(2, 7)):
            end = random.choice([last, last, before])
            order = random.random()
            for _ in range(random.randint(1, 4)):
                name = f"f{len(forward)}"
                forward.append((name, [end]))
                rank[name] = order
                end = name
            ends.append(end)
        joined = f"f{len(forward)}"
        forward.append((joined, ends))
        last, before = joined, last
    followers: dict[str, list[str]] = {name: [] for name, _ in forward}
    ops, backward, parameters = [], [], []
    for number, (name, after) in enumerate(forward):
        duration = int(10**6 * random.lognormvariate(0, spread))
        ops.append(Op(name, duration, "forward", tuple(dict.fromkeys(after))))
        for one in after:
            followers[one].append(f"b{name[1:]}")
        mirror = f"b{name[1:]}"
        backward.append((mirror, name, int(duration * random.uniform(1.5, 2.5))))
        if len(after) == 1 or not number:
            weight = int(10**6 * random.lognormvariate(0, 1.5 * spread)) // ELEMENT * ELEMENT
            parameters.append(Parameter(f"w{number}", max(weight, ELEMENT), (mirror,), (name,)))
            if random.random() < 0.5:
                for kind in "sb":
                    size = ELEMENT * random.choice([16, 32, 64, 192])
                    parameters.append(Parameter(f"{kind}{number}", size, (mirror,), (name,)))
    for mirror, name, duration in reversed(backward):
        needed = tuple(dict.fromkeys((*followers[name], name)))
        ops.append(Op(mirror, duration, "backward", needed))
    return Graph(tuple(ops), tuple(parameters))


def network(random: Random, graph: Graph) -> AffineCost:
    """Return a cost whose bytes and start-ups take a share of the computation each."""
    computation = sum(op.duration_ns for op in graph.ops)
    size = sum(parameter.size_bytes for parameter in graph.parameters)
    rate = Fraction(int(1000 * computation * random.choice([0.3, 0.6, 1, 1.5]) / size), 1000)
    return AffineCost(int(computation * random.choice([0.003, 0.01, 0.03, 0.1])), rate)


class Annealer:
    """Transfers in order, each with its parts; one that changes them at random."""

    def __init__(self, known: Windows, cost: AffineCost, seed: int) -> None:
        self.known, self.cost, self.random = known, cost, Random(seed)
        self.prices: dict[int, int] = {}

    def value(self, transfers: list[Transfer]) -> int:
        """Return what an iteration lasts."""
        heads, tails = self.known.heads, self.known.tails
        free, end = 0, self.known.compute_ns
        for parts in transfers:
            size = sum(parts.values())
            if size not in self.prices:
                self.prices[size] = self.cost.cost_ns(size)
            free = max(free, *map(heads.__getitem__, parts)) + self.prices[size]
            end = max(end, free + max(map(tails.__getitem__, parts)))
        return end

    def neighbour(self, transfers: list[Transfer]) -> list[Transfer]:
        """Return other transfers that send the same."""
        random = self.random
        new = list(transfers)
        place = random.randrange(len(new))
        kind = random.random()
        if kind < 0.1 and place + 1 < len(new):
            new[place : place + 2] = new[place : place + 2][::-1]
        elif kind < 0.15 and place + 1 < len(new):
            new[place : place + 2] = [_together(new[place], new[place + 1])]
        elif kind < 0.25:
            values = random.choice([self.known.heads, self.known.tails])
            limit = values[random.choice(list(new[place]))]
            one = {j: size for j, size in new[place].items() if values[j] >= limit}
            two = {j: size for j, size in new[place].items() if values[j] < limit}
            if two:
                new[place : place + 1] = random.choice([[one, two], [two, one]])
        else:
            j = random.choice(list(new[place]))
            size = new[place][j]
            if kind < 0.5:  # only a part of it
                size = max(int(size * random.random()) // ELEMENT * ELEMENT, min(size, ELEMENT))
            other = min(max(place + random.choice([-2, -1, 1, 2]), 0), len(new) - 1)
            if other != place:
                left = {one: s for one, s in new[place].items() if one != j}
                if size < new[place][j]:
                    left[j] = new[place][j] - size
                new[other] = _together(new[other], {j: size})
                new[place] = left
        return [parts for parts in new if parts]

    def best(self, start: list[Transfer], seconds: float) -> int:
        """Return the least value found in so many seconds of processor time."""
        now = start
        value = best = self.value(now)
        begin, share = time.process_time(), 0.0
        while share < 1:
            share = (time.process_time() - begin) / seconds
            temperature = value * HOT * COLD**share
            for _ in range(100):
                new = self.neighbour(now)
                other = self.value(new)
                if other <= value or self.random.random() < exp((value - other) / temperature):
                    now, value = new, other
                    best = min(best, value)
        return best


def _together(one: Transfer, two: Transfer) -> Transfer:
    return {**one, **{j: size + one.get(j, 0) for j, size in two.items()}}


def cases(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    """Yield names and problems."""
    paths = options.profiles or [None] * options.cases
    for number, path in enumerate(paths):
        seed = options.seed + number
        if path is None:
            name, graph = f"seed {seed}", branching(seed)
        else:
            name, graph = path.stem, decode_profile(path.read_bytes()).dataflow()
        for draw in range(options.networks):
            random = Random(f"{seed}/{draw}")
            cost = network(random, graph)
            share = cost.startup_ns / sum(op.duration_ns for op in graph.ops)
            fresh = Graph(graph.ops, graph.parameters)  # on which nothing is known yet
            yield f"{name}, start-up {share:.1%}", Problem(fresh, cost, element_bytes=ELEMENT)


def main() -> None:
    parser = argparse.ArgumentParser(description="is it the plan, or the bound?")
    parser.add_argument("profiles", nargs="*", type=Path, help="default: graphs from seeds")
    parser.add_argument("--seconds", type=float, default=10, help="of annealing a case; 0: none")
    parser.add_argument("--cases", type=int, default=40, help="graphs made from seeds")
    parser.add_argument("--networks", type=int, default=3, help="networks for each graph")
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    options = parser.parse_args()
    ratios, times, orders = [], [], 0
    for name, problem in cases(options):
        begin = time.process_time()
        result = solve(problem)
        times.append(time.process_time() - begin)
        plan, value, bound = result.plan, result.objective_ns, result.lower_bound_ns
        assert plan is not None
        assert value is not None
        assert bound is not None
        orders += plan.backward_orders != (problem.order.backward,)
        ratios.append(value / bound)
        if value / bound - 1 <= NOTABLE:
            continue
        text = f"{name}: {value / bound - 1:.3%} above the bound, {times[-1]:.2f} s"
        if options.seconds:
            order = OpOrder(plan.backward_orders[0], plan.forward_order)
            assert isinstance(problem.cost, AffineCost)
            annealer = Annealer(windows(problem.graph, *order), problem.cost, seed=0)
            planned = [dict(load) for load in loads_of(plan)]
            together = [dict(enumerate(annealer.known.sizes))]
            found = min(annealer.best(one, options.seconds / 2) for one in (planned, together))
            text += f"; annealed {found / value - 1:+.3%} of the plan"
        print(f"- {text}", flush=True)
    print()
    rows_below(
        (
            "cases",
            "above the bound",
            "worst",
            "above 0.3 %",
            "another order",
            "median",
            "longest",
        ),
        [
            (
                len(ratios),
                f"{exp(fmean(map(log, ratios))) - 1:.3%}",
                f"{max(ratios) - 1:.3%}",
                sum(ratio > 1.003 for ratio in ratios),
                orders,
                f"{median(times):.3f} s",
                f"{max(times):.2f} s",
            )
        ],
    )


if __name__ == "__main__":
    main()
