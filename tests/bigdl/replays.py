"""Synchronisations replayed pull by pull and sum by sum, from the definitions alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import NamedTuple

from planner.families.bigdl import Exchange, Problem

Sum = Counter[tuple[int, int]]
"""How often each gradient (node, partition) is in a sum."""


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


class DriverReplay(NamedTuple):
    """What a synchronisation through the driver moves and adds, phase by phase."""

    sent: list[int]
    added: list[int]
    driver_bytes: int
    result: Sum


def through_driver(problem: Problem, levels: Sequence[int], *, torrent: bool) -> DriverReplay:
    """Send every partial sum to where it is merged, one by one."""
    nodes, size, driver = problem.nodes, problem.gradient_bytes, -1
    sums = [Sum({divmod(task, problem.partitions_per_node): 1}) for task in range(levels[0])]
    steps: list[Step] = []
    added: list[int] = []
    for after in levels[1:]:
        step, adding = Step(), Counter[int]()
        for index in range(after, len(sums)):
            target = index % after
            step.move(index % nodes, target % nodes, size)
            sums[target] += sums[index]
            adding[target % nodes] += size
        del sums[after:]
        steps.append(step)
        added.append(max(adding.values()))
    collect, last, spread = Step(), Step(), Step()
    for index in range(len(sums)):
        collect.move(index % nodes, driver, size)
    for node, (start, stop) in enumerate(own_slices(Exchange(problem.elements, nodes))):
        part = (stop - start) * problem.element_bytes
        last.move(driver, node, part if torrent else size)
        for peer in range(nodes):
            if peer != node:
                spread.move(node, peer, part)
    steps += [collect, last, spread] if torrent else [collect, last]
    added += [(len(sums) - 1) * size, 0, 0] if torrent else [(len(sums) - 1) * size, 0]
    sent = [step.busiest for step in steps]
    at_driver = collect.received[driver] + last.sent[driver]
    return DriverReplay(sent, added, at_driver, sum(sums, Sum()))
