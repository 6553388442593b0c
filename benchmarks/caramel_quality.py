"""Measures how good plans of gradient transfers are, on measured and imported profiles.

    python benchmarks/caramel_quality.py [--quick] [PROFILE …]

For every profile (default: all shipped ones; `planner import` writes others), 2 to 64 workers and
four networks, computation as measured and ten times faster (accelerators are faster than the two
CPU cores the profiles are of, and then start-ups matter most). An all-reduce is a ring: 2(W - 1)
steps of the network's latency, 2(W - 1)/W bytes over its bandwidth for each byte.

Prints the distance of every method from the lower bound of the plan `search` finds, checks that
`search` is never worse than another method, lists where its own gap stays and whether a longer
search closes it, and says what each stage of the paper's method loses.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean

from few_transfers import bound_by_count
from tables import rows_below

from planner import AffineCost, Profile, Result
from planner.families.caramel import METHODS, Plan, Problem, solve
from planner.families.caramel.bounds import lower_bound
from planner.families.caramel.carlier import carlier
from planner.families.caramel.evaluation import Evaluation
from planner.families.caramel.exact_whole import best_whole
from planner.families.caramel.paper import batching_threshold
from planner.families.caramel.pricing import LoadPricer, loads_of
from planner.families.caramel.search import best_loads
from planner.families.caramel.windows import windows
from planner.jsonio import decode_profile
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.solving.deadline import Deadline

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
WORKERS = (2, 4, 8, 16, 32, 64)
NETWORKS = {
    "1 Gb/s, 50 µs": (1, 50),
    "10 Gb/s, 30 µs": (10, 30),
    "25 Gb/s, 15 µs": (25, 15),
    "100 Gb/s, 5 µs": (100, 5),
}
SPEEDS = (1, 10)
NOTABLE = 1e-4
"""Gaps below are not listed one by one."""
LARGE = 3e-3
"""Gaps above have a bound of their own."""
THRESHOLDS = [Fraction(2) ** power for power in range(-6, 7)]

STAGES = ("caramel", "packing", "threshold", "order (at most)")

Ratios = dict[tuple[str, str], list[float]]


def label(profile: Profile) -> str:
    """Return the name of a profile, and whether it was not measured here."""
    kind = profile.provenance.kind
    return profile.name if kind == "measured" else f"{profile.name} ({kind})"


def all_reduce(gigabits: int, latency_us: int, workers: int) -> AffineCost:
    """Return the cost of a ring all-reduce."""
    rate = Fraction(2 * (workers - 1), workers) * 8 / gigabits
    return AffineCost(2 * (workers - 1) * latency_us * 1000, rate)


def faster(graph: Graph, speed: int) -> Graph:
    """Return the graph with durations a fraction as long."""
    ops = tuple(replace(op, duration_ns=op.duration_ns // speed) for op in graph.ops)
    return Graph(ops, graph.parameters)


def any_order_bound(problem: Problem) -> int:
    """Return a bound for every op order: no gradient is ready before what it needs has run."""
    graph = problem.graph
    earliest = []
    for updaters in graph.updaters:
        needed, waiting = set(), list(updaters)
        while waiting:
            index = waiting.pop()
            if index not in needed and graph.ops[index].phase == "backward":
                needed.add(index)
                waiting.extend(graph.predecessors[index])
        earliest.append(sum(graph.ops[index].duration_ns for index in needed))
    return lower_bound(replace(problem.windows, heads=tuple(earliest)), problem.cost)


def best_sequence_ns(problem: Problem, plan: Plan) -> int:
    """Return what an iteration lasts with the groups of a plan in their best order."""
    known, loads = problem.windows, loads_of(plan)
    pricer = LoadPricer(known, problem.cost)
    found = carlier(
        [max(known.heads[j] for j, _ in load) for load in loads],
        [pricer.cost_ns(sum(size for _, size in load)) for load in loads],
        [max(known.tails[j] for j, _ in load) for load in loads],
        Deadline(None),
        2000,
    )
    return max(known.compute_ns, found.value)


def stage_losses(problem: Problem, best: int) -> dict[str, float]:
    """Return by how much the paper's method, and what each stage of it, exceeds `search`."""
    result = solve(problem, method="caramel")
    assert result.plan is not None
    assert result.objective_ns is not None
    packed = result.objective_ns
    ordered = min(packed, best_sequence_ns(problem, result.plan))
    threshold = batching_threshold(problem.cost) or 1
    tuned = min(
        solve(
            replace(problem, threshold_bytes=int(threshold * factor)), method="caramel"
        ).objective_ns
        or packed
        for factor in THRESHOLDS
    )
    return {
        "caramel": packed / best - 1,
        "packing": packed / ordered - 1,
        "threshold": packed / tuned - 1,
        "order (at most)": best / min(best, any_order_bound(problem)) - 1,
    }


def small_graph(random: Random) -> Graph:
    """Return a random graph of up to eight backward ops that leave a choice of order."""
    count = random.randint(3, 8)
    ops = [Op(f"f{i}", random.randint(1, 9), "forward") for i in range(count)]
    for i in range(count):
        needed = tuple(f"b{j}" for j in range(i) if random.random() < 0.3)
        ops.append(Op(f"b{i}", random.randint(1, 20), "backward", (*needed, f"f{i}")))
    parameters = [
        Parameter(f"w{i}", random.randint(1, 30), (f"b{i}",), (f"f{random.randrange(count)}",))
        for i in range(count)
    ]
    return Graph(tuple(ops), tuple(parameters))


def backward_orders(graph: Graph, done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield every order of the backward ops that their dependencies allow."""
    ops = graph.pass_order("backward")
    if len(done) == len(ops):
        yield done
    for index in ops:
        needed = set(graph.predecessors[index]).intersection(ops)
        if index not in done and needed.issubset(done):
            yield from backward_orders(graph, (*done, index))


def best_order_ns(problem: Problem, best: int) -> int:
    """Return the least iteration of whole parameters over all op orders; `best` is that of one."""
    for backward in backward_orders(problem.graph):
        known = windows(problem.graph, backward, problem.order.forward)
        bound = lower_bound(known, problem.cost)
        if bound < best:
            loads, _ = best_whole(known, problem.cost, best, bound, Deadline(None))
            if loads is not None:
                best = LoadPricer(known, problem.cost).iteration_ns(loads)
    return best


def order_losses(cases: int) -> list[float]:
    """Return what the greedy activation order loses against the best order, both solved exactly."""
    losses = []
    for seed in range(cases):
        random = Random(seed)
        cost = AffineCost(random.randint(0, 20), Fraction(random.randint(1, 20), 10))
        problem = Problem(small_graph(random), cost)
        greedy = solve(problem, method="exact").objective_ns
        assert greedy is not None
        losses.append(greedy / best_order_ns(problem, greedy) - 1)
    return losses


def geometric(ratios: list[float]) -> float:
    """Return the geometric mean of values above 0."""
    return exp(fmean(map(log, ratios)))


def show(title: str, ratios: Ratios, rows: Iterable[str], columns: Iterable[str]) -> None:
    """Print the geometric mean and the worst distance in each cell."""
    columns = list(columns)
    print(f"### {title}\n")
    texts = []
    for name in rows:
        cells = [ratios[name, column] for column in columns]
        text = [f"{geometric(c) - 1:.2%} ({max(c) - 1:.1%})" if c else "–" for c in cells]
        texts.append((name, *text))
    rows_below(("", *columns), texts)


def main() -> None:
    parser = argparse.ArgumentParser(description="how good are plans of gradient transfers?")
    parser.add_argument("profiles", nargs="*", type=Path, help="default: all in data/profiles")
    parser.add_argument("--quick", action="store_true", help="8 workers, one network")
    options = parser.parse_args()
    paths = options.profiles or sorted(PROFILES.glob("*.json"))
    profiles: list[Profile] = [decode_profile(path.read_bytes()) for path in paths]
    workers = (8,) if options.quick else WORKERS
    networks = dict(list(NETWORKS.items())[1:2]) if options.quick else NETWORKS
    methods = [name for name in METHODS if name not in ("auto", "exact", "exact_split")]
    ratios: Ratios = defaultdict(list)
    losses: Ratios = defaultdict(list)
    gaps: list[tuple[float, str]] = []
    cases = list(product(profiles, SPEEDS, networks, workers))
    for number, (profile, speed, network, count) in enumerate(cases):
        if sys.stderr.isatty():
            print(f"\r{number}/{len(cases)} {label(profile):24}", end="", file=sys.stderr)
        graph = faster(profile.dataflow(), speed)
        cost = all_reduce(*networks[network], count)
        problem = Problem(graph, cost, workers=count, element_bytes=4)
        best = solve(problem)
        assert best.objective_ns is not None
        assert best.lower_bound_ns is not None
        rows = ("all", label(profile), f"{speed}×", network, f"{count} workers")
        for method in methods:
            try:
                result = best if method == "search" else solve(problem, method=method)
            except NotApplicableError:
                continue
            assert result.objective_ns is not None
            assert best.objective_ns <= result.objective_ns, (profile.name, method)
            for row in rows:
                ratios[row, method].append(result.objective_ns / best.lower_bound_ns)
        for stage, loss in stage_losses(problem, best.objective_ns).items():
            for row in rows:
                losses[row, stage].append(1 + loss)
        gap = best.objective_ns / best.lower_bound_ns - 1
        if gap > NOTABLE:
            longer = min(gap, _longer(problem, best) / best.lower_bound_ns - 1)
            where = f"{label(profile)}, {network}, {count} workers, {speed}×"
            text = f"{where}: {gap:.3%}; with a search 20 times as long {longer:.3%}"
            if gap > LARGE:
                text += f"; by the number of transfers {_by_count(problem, best):.3%}"
            gaps.append((gap, text))
    print(
        f"{len(cases)} cases: {len(profiles)} profiles × {len(SPEEDS)} speeds of computation × "
        f"{len(networks)} networks × {len(workers)} numbers of workers. `search` is never worse.\n"
    )
    everything = [
        "all",
        *map(label, profiles),
        *(f"{speed}×" for speed in SPEEDS),
        *networks,
        *(f"{count} workers" for count in workers),
    ]
    show("above the lower bound: geometric mean (worst)", ratios, everything, methods)
    show("what the paper's method loses", losses, everything, STAGES)
    orders = order_losses(10 if options.quick else 200)
    optimal = sum(not loss for loss in orders) / len(orders)
    print("### the greedy activation order\n")
    print(
        f"On {len(orders)} random graphs of 3 to 8 backward ops, against the best op order, both "
        f"with the best plan of whole parameters: optimal in {optimal:.0%}, {fmean(orders):.2%} "
        f"above the optimum on average, {max(orders):.1%} at worst.\n"
    )
    print(f"### where `search` stays more than {NOTABLE:.2%} above the bound\n")
    print("\n".join(f"- {text}" for _, text in sorted(gaps, reverse=True)) or "nowhere")


def _by_count(problem: Problem, best: Result[Plan, Evaluation]) -> float:
    """Return how far a plan is above a bound that counts transfers, for its op order."""
    assert best.plan is not None
    assert best.objective_ns is not None
    known = windows(problem.graph, best.plan.backward_orders[0], best.plan.forward_order)
    cost, bound = problem.cost, best.lower_bound_ns or 0
    assert isinstance(cost, AffineCost)
    counted = bound_by_count(known, cost, best.objective_ns, seconds=120)
    return best.objective_ns / max(bound, counted or 0) - 1


def _longer(problem: Problem, best: Result[Plan, Evaluation]) -> int:
    """Return what a search twenty times as long finds for the op order of a plan."""
    assert best.plan is not None
    known = windows(problem.graph, best.plan.backward_orders[0], best.plan.forward_order)
    pricer, bound = LoadPricer(known, problem.cost), best.lower_bound_ns or 0
    loads = best_loads(
        pricer, problem.cost, bound, [], problem.element_bytes, Deadline(None), effort=20
    )
    return pricer.iteration_ns(loads)


if __name__ == "__main__":
    main()
