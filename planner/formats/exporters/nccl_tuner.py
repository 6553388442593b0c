"""Writes the best algorithm and protocol by size for NCCL's tuner plugin.

Problem: collectives were timed with one algorithm and protocol forced at a time; which is best for
which size? Method: each choice has a piecewise linear cost, so the best one changes only at
measured sizes and where two costs cross. Rows name the ends of these intervals, by collective,
ranks and hosts: ``collective,minbytes,maxbytes,algorithm,protocol,channels,nodes,ranks,pipeops,
regbuff``. -1 leaves a choice to NCCL, or matches anything; the first matching row counts.
Guarantee: each row has the cheapest choice at every size that all choices were measured for.
Complexity: O(choices² · sizes). Source: README and parser of plugins/tuner/example of NVIDIA/nccl.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import NamedTuple

from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.measured import Collective, MeasuredNetwork
from planner.model.validation import one_of

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")

Choice = tuple[str, str]  # an algorithm and a protocol


class Rule(NamedTuple):
    """The choice for sizes from `least_bytes` to `most_bytes`, both included."""

    collective: Collective
    least_bytes: int
    most_bytes: int
    algorithm: str
    protocol: str
    hosts: int
    ranks: int

    @property
    def line(self) -> str:
        """The row; channels, pipelined operations and registered buffers are left to NCCL."""
        name = self.collective.replace("_", "")
        return (
            f"{name},{self.least_bytes},{self.most_bytes},{self.algorithm},{self.protocol},"
            f"-1,{self.hosts},{self.ranks},-1,-1"
        )


def rules_of(networks: Mapping[Choice, MeasuredNetwork]) -> tuple[Rule, ...]:
    """Return the cheapest choice by size, for all collectives and ranks with two choices."""
    for algorithm, protocol in networks:
        one_of(algorithm, ALGORITHMS, "")
        one_of(protocol, PROTOCOLS, "")
    rules = tuple(
        rule
        for (collective, ranks, hosts), costs in _grouped(networks).items()
        for rule in _stretches(collective, ranks, hosts, costs)
    )
    if not rules:
        raise InvalidInputError("", "no collective was measured with two choices: nothing to tune")
    return rules


def _grouped(
    networks: Mapping[Choice, MeasuredNetwork],
) -> dict[tuple[Collective, int, int], dict[Choice, TableCost]]:
    """Return the costs of each collective, ranks and hosts that were measured with two choices."""
    costs: dict[tuple[Collective, int, int], dict[Choice, TableCost]] = {}
    for choice, network in networks.items():
        for table in network.tables:
            key = (table.collective, table.ranks, table.hosts)
            costs.setdefault(key, {})[choice] = table.cost
    return {key: known for key, known in costs.items() if len(known) > 1}


def _stretches(
    collective: Collective, ranks: int, hosts: int, costs: Mapping[Choice, TableCost]
) -> Iterator[Rule]:
    first = max(cost.points[0][0] for cost in costs.values())
    last = min(cost.points[-1][0] for cost in costs.values())
    if first > last:
        return
    sizes = {first, last}
    for cost in costs.values():
        sizes |= {size for size, _ in cost.points if first <= size <= last}
    for low, high in pairwise(sorted(sizes)):
        for left, right in combinations(costs.values(), 2):
            start, end = (left.cost_ns(size) - right.cost_ns(size) for size in (low, high))
            if start * end < 0:  # rounded up: within one byte and one ns of the crossing
                place = low + Fraction(high - low) * start / (start - end)
                sizes |= {size for size in (int(place), int(place) + 1) if low < size < high}
    begin, chosen = first, _least(costs, first)
    for low, high in pairwise([*sorted(sizes), last]):  # the last size is a stretch of its own
        best = _least(costs, (low + high) // 2)  # nothing crosses between the two
        if best != chosen:
            if low > begin:
                yield Rule(collective, begin, low - 1, *chosen, hosts, ranks)
            begin, chosen = low, best
    yield Rule(collective, begin, last, *chosen, hosts, ranks)


def _least(costs: Mapping[Choice, TableCost], size: int) -> Choice:
    return min(costs, key=lambda choice: (costs[choice].cost_ns(size), choice))


def encode_rules(rules: Sequence[Rule], about: str) -> str:
    """Return the plugin's file."""
    lines = [f"# {about}", "# collective,minbytes,maxbytes,algorithm,protocol,channels,nodes,ranks"]
    return "\n".join([*lines, *(rule.line for rule in rules), ""])
