"""Measures how fast Caramel's order of gradients is found and enforced.

    python benchmarks/caramel_order.py [--quick]

Prints, from one run: growth on graphs like those of training, in three kinds, up to 200,000 ops;
against recomputing every closure at each pick, with the same order; and on wide random graphs,
whose joins share ancestors everywhere: the bad case. Absolute times depend on the machine; the
ratios are taken between runs of the same process. All times are processor times.
"""

import argparse
import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from math import prod

from tables import head, row, rows_below

from planner.families.caramel.activation_order import activation_order, backward_order
from planner.families.caramel.paper import control_edges
from planner.model.graphs import Graph, Op, Parameter, Phase


def training(count: int, seed: int, *, apart: bool = False, sources: bool = False) -> Graph:
    """Return blocks of one to four branches with residuals, mirrored: about `count` ops.

    Every tenth op has a parameter, if it is not `apart`: then parameters' gradients have ops of
    their own, which take longer than the others. With `sources`, an op that needs nothing reads
    each parameter in both passes, and one mask is needed by every block, as in frameworks that
    make such things ops.
    """
    source = random.Random(seed)
    forward: list[tuple[str, list[str]]] = [("f0", [])]
    budget = int(count / 2.1) if sources or apart else count // 2
    last = "f0"

    def add(after: list[str]) -> str:
        name = f"f{len(forward)}"
        forward.append((name, after))
        return name

    while len(forward) < budget:
        ends = [last] if source.random() < 0.5 else []
        for _ in range(source.randint(1, 4)):
            end = last
            for _ in range(source.randint(2, 8)):
                end = add([end])
            ends.append(end)
        last = add(ends)
        if sources:
            forward[-1][1].append("mask")
    with_parameter = [name for name, _ in forward[2::5]]
    followers: dict[str, list[str]] = {name: [] for name, _ in forward}
    ops, parameters = [], []
    reads = set(with_parameter) if sources else set()
    if sources:
        ops.append(Op("mask", 1, "forward"))
    for name, after in forward:
        for one in after:
            if one != "mask":
                followers[one].append("b" + name[1:])
        if name in reads:
            ops.append(Op(f"r{name}", 1, "forward"))
            after.append(f"r{name}")
        ops.append(Op(name, source.randrange(1000), "forward", tuple(after)))
    takes = set(with_parameter)
    for name, after in reversed(forward):
        mirror = "b" + name[1:]
        needed = (*followers[name], name)
        extra = tuple(one for one in after if one == "mask" or one.startswith("r"))
        ops.append(Op(mirror, source.randrange(1000), "backward", needed + extra))
        if name in takes:
            if apart:
                mirror += "w"
                ops.append(Op(mirror, source.randrange(3000), "backward", needed))
            parameters.append(Parameter(f"w{name}", 1, (mirror,), (name,)))
    return Graph(tuple(ops), tuple(reversed(parameters)))


def wide(count: int, seed: int) -> Graph:
    """Return a random graph: every op needs up to three ops of the thousand before it."""
    source = random.Random(seed)
    half = count // 2
    ops = []
    for index in range(count):
        phase: Phase = "forward" if index < half else "backward"
        own = phase[0]
        first = half if index > half else 0
        near = range(max(first, index - 1000), index)
        after = {f"{own}{choice}" for choice in source.choices(near, k=3)} if near else set()
        if index >= half:
            after = {one for one in after if one != f"b{index}"} if index > half else set()
            after.add(f"f{source.randrange(half)}")
        ops.append(Op(f"{own}{index}", source.randrange(1000), phase, tuple(sorted(after))))
    updaters = source.sample(range(half, count), count // 10)
    parameters = [Parameter(f"w{op}", 1, (f"b{op}",), ("f0",)) for op in updaters]
    return Graph(tuple(ops), tuple(parameters))


def literal(graph: Graph) -> list[int]:
    """Follow the greedy rule as published: every closure is computed anew at each pick."""
    duration = [op.duration_ns for op in graph.ops]
    predecessors = graph.predecessors
    marked = [False] * len(graph.ops)
    left = list(range(len(graph.parameters)))
    order = []
    while left:
        closures = []
        for parameter in left:
            found: set[int] = set()
            stack = list(graph.updaters[parameter])
            while stack:
                op = stack.pop()
                if op not in found and not marked[op]:
                    found.add(op)
                    stack += predecessors[op]
            closures.append((sum(duration[op] for op in found), found, parameter))
        least = min(cost for cost, _, _ in closures)
        cheapest = [(found, parameter) for cost, found, parameter in closures if cost == least]
        closure, best = next(
            (found, parameter)
            for found, parameter in cheapest
            if not any(other < found for other, _ in cheapest)
        )
        for op in closure:
            marked[op] = True
        order.append(best)
        left.remove(best)
    return order


def fresh(graph: Graph) -> Graph:
    """Return a copy that has not derived anything yet."""
    return Graph(graph.ops, graph.parameters)


def seconds(action: Callable[[Graph], object], graph: Graph, runs: int) -> float:
    """Return the least processor time of several runs, each on a fresh copy of the graph."""
    best = float("inf")
    for _ in range(runs):
        copy = fresh(graph)
        gc.collect()
        begin = time.process_time()
        action(copy)
        best = min(best, time.process_time() - begin)
    return best


def growth(title: str, make: Callable[[int, int], Graph], sizes: list[int], runs: int) -> None:
    print(f"## {title}\n")
    header = ("ops", "parameters", "order", "per doubling", "backward order and edges")
    head((*header, "peak memory"))
    previous: float | None = None
    ratios = []
    for count in sizes:
        graph = make(count, count)
        taken = seconds(activation_order, graph, runs)
        ratio = "" if previous is None else f"{taken / previous:.2f}"
        if previous is not None:
            ratios.append(taken / previous)
        previous = taken
        activation = activation_order(graph)
        rest = seconds(enforcing(activation), graph, runs)
        copy = fresh(graph)
        tracemalloc.start()
        activation_order(copy)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sizes_of = (f"{len(graph.ops):,}", f"{len(graph.parameters):,}")
        times = (f"{taken * 1e3:.0f} ms", ratio, f"{rest * 1e3:.0f} ms")
        row((*sizes_of, *times, f"{peak / 2**20:.1f} MiB"))
    mean = prod(ratios) ** (1 / len(ratios))
    print(f"\nGeometric mean per doubling: {mean:.2f}\n")


def enforcing(activation: tuple[int, ...]) -> Callable[[Graph], object]:
    """Return stage 2 for a known activation order."""
    return lambda graph: (backward_order(graph, activation), control_edges(graph, activation))


def against_literal(count: int) -> None:
    print(f"## Against recomputing every closure at each pick, about {count:,} ops\n")
    header = ("graph", "ops", "parameters", "order", "recomputed", "ratio", "same order")
    rows_below(header, ((title, *literal_row(make(count, 1))) for title, make in KINDS.items()))


def literal_row(graph: Graph) -> tuple[str, ...]:
    own = seconds(activation_order, graph, 5)
    orders: list[list[int]] = []
    published = seconds(lambda copy: orders.append(literal(copy)), graph, 1)
    assert orders == [list(activation_order(graph))]
    sizes = (f"{len(graph.ops):,}", f"{len(graph.parameters):,}")
    return (*sizes, f"{own * 1e3:.1f} ms", f"{published:.2f} s", f"{published / own:,.0f}×", "yes")


KINDS: dict[str, Callable[[int, int], Graph]] = {
    "training": training,
    "training, gradients apart": lambda n, seed: training(n, seed, apart=True),
    "training, parameters read by ops, a mask": lambda n, seed: training(n, seed, sources=True),
    "wide random graph": wide,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="how fast is the order of gradients?")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    options = parser.parse_args()
    sizes = [12_500 * 2**i for i in range(5)]
    wide_sizes = [12_500 * 2**i for i in range(4)]
    if options.quick:
        sizes, wide_sizes = [1000, 2000], [500, 1000]
    print(f"Python {sys.version.split()[0]}\n")
    for title, make in KINDS.items():
        growth(title, make, wide_sizes if make is wide else sizes, 1 if make is wide else 3)
    against_literal(500 if options.quick else 5000)


if __name__ == "__main__":
    main()
