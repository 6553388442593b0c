"""Synchronisations replayed pull by pull and sum by sum, from the definitions alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

from hypothesis import strategies as st

from planner.families.bigdl import Exchange, Problem
from planner.model.network import Network

Sum = Counter[tuple[int, int]]
"""How often each gradient (node, partition) is in a sum."""


@st.composite
def problems(draw: st.DrawFn, *, max_nodes: int = 12, free_steps: bool = False) -> Problem:
    rate = st.builds(Fraction, st.integers(1, 50), st.integers(1, 7))
    adding = st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(5)])
    return Problem(
        elements=draw(st.integers(1, 60)),
        element_bytes=draw(st.integers(1, 8)),
        nodes=draw(st.integers(1, max_nodes)),
        partitions_per_node=draw(st.integers(1, 6)),
        network=Network(
            draw(rate),
            0 if free_steps else draw(st.sampled_from([0, 1, 10**6, 10**10, 10**12])),
            draw(adding),
        ),
    )


@dataclass
class Step:
    """Bytes over each NIC in one turn, and bytes added on each machine."""

    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)

    def move(self, source: int, target: int, size: int) -> None:
        self.sent[source] += size
        self.received[target] += size

    @property
    def busiest(self) -> int:
        return max([0, *self.sent.values(), *self.received.values()])


def own_slices(plan: Exchange) -> list[tuple[int, int]]:
    return [plan.slice(node) for node in range(plan.nodes)]


def own_order(plan: Exchange) -> list[tuple[int, ...]]:
    return [plan.pull_order(node) for node in range(plan.nodes)]


def exchange_turns(
    problem: Problem, order: Sequence[Sequence[int]], slices: Sequence[tuple[int, int]]
) -> tuple[list[Step], list[Step]]:
    """Every pull of both phases, turn by turn."""
    phases: tuple[list[Step], list[Step]] = ([], [])
    for turn in range(problem.nodes):
        first, second = Step(), Step()
        for node, row in enumerate(order):
            peer = row[turn]
            if peer == node:
                continue
            for step, (start, stop) in ((first, slices[node]), (second, slices[peer])):
                if stop > start:
                    step.move(peer, node, (stop - start) * problem.element_bytes)
        phases[0].append(first)
        phases[1].append(second)
    return phases


def contributions(
    problem: Problem, order: Sequence[Sequence[int]], slices: Sequence[tuple[int, int]]
) -> list[list[Counter[int]]]:
    """What each node ends with: for each element how often it holds each node's gradient."""
    summed: list[dict[int, Counter[int]]] = []
    for node, row in enumerate(order):
        held = {element: Counter[int]() for element in range(*slices[node])}
        for peer in row:
            for one in held.values():
                one[peer] += 1
        summed.append(held)
    final = []
    for row in order:
        weights = [Counter[int]() for _ in range(problem.elements)]
        for peer in row:
            for element, one in summed[peer].items():
                if element < problem.elements:
                    weights[element] += one
        final.append(weights)
    return final


def spark_levels(tasks: int) -> list[int]:
    """How many sums Spark's treeAggregate has on each level: depth 2, in floating point."""
    scale = max(next(root for root in count() if root * root >= tasks), 2)
    levels = [tasks]
    while levels[-1] > scale + -int(-Fraction(levels[-1], scale) // 1):
        levels.append(int(levels[-1] / scale))
    return levels


@dataclass
class DriverReplay:
    """What a synchronisation through the driver moves and adds, phase by phase."""

    sent: list[int]
    added: list[int]
    driver_bytes: int
    result: Sum


def through_driver(problem: Problem, levels: Sequence[int], *, torrent: bool) -> DriverReplay:
    """Send every partial sum to where it is merged, one by one."""
    nodes, size, driver = problem.nodes, problem.gradient_bytes, -1
    sums = [Sum({divmod(task, problem.partitions_per_node): 1}) for task in range(levels[0])]
    replay = DriverReplay([], [], 0, Sum())
    for after in levels[1:]:
        step, adding = Step(), Counter[int]()
        merged = sums[:after]
        for index in range(after, len(sums)):
            target = index % after
            step.move(index % nodes, target % nodes, size)
            merged[target] = merged[target] + sums[index]
            adding[target % nodes] += size
        replay.sent.append(step.busiest)
        replay.added.append(max(adding.values()))
        sums = merged
    collect, last = Step(), Step()
    for index, one in enumerate(sums):
        collect.move(index % nodes, driver, size)
        replay.result += one
    replay.sent.append(collect.busiest)
    replay.added.append((len(sums) - 1) * size)
    plan = Exchange(problem.elements, nodes)
    if torrent:
        for node, (start, stop) in enumerate(own_slices(plan)):
            last.move(driver, node, (stop - start) * problem.element_bytes)
        spread = Step()
        for node, (start, stop) in enumerate(own_slices(plan)):
            for peer in range(nodes):
                if peer != node:
                    spread.move(node, peer, (stop - start) * problem.element_bytes)
        replay.sent += [last.busiest, spread.busiest]
        replay.added += [0, 0]
    else:
        for node in range(nodes):
            last.move(driver, node, size)
        replay.sent.append(last.busiest)
        replay.added.append(0)
    replay.driver_bytes = collect.received[driver] + last.sent[driver]
    return replay
