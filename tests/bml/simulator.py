"""A literal simulation: every transfer of every server, every byte, every NIC."""

from collections import Counter
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from planner.families.bml import Problem, Schedule, Transfer, TreePlan

Nic = tuple[int, int, str]
"""Server, level and direction."""


class Simulated(NamedTuple):
    time_ns: int
    load: Fraction
    pieces: list[int]


def sizes_of(plan: Schedule | TreePlan, elements: int) -> list[int]:
    """Return the elements of every piece, in the order of their numbers."""
    if isinstance(plan, TreePlan):
        ends = [int(share * elements // 1) for share in accumulate(plan.shares)]
        return [end - start for start, end in zip([0, *ends], ends, strict=False)]
    count = plan.threads * plan.pieces
    in_use = [number for number in range(count) if number not in set(plan.left_out)]
    if plan.light_weight < 64:
        weights = [0] * count
        for number in in_use:
            is_light = any(first <= number < stop for first, stop in plan.light)
            weights[number] = plan.light_weight if is_light else 64
        ends = [end * elements // sum(weights) for end in accumulate(weights)]
        return [end - start for start, end in zip([0, *ends], ends, strict=False)]
    sizes = [0] * count
    ends, before = [0], 0
    for thread in range(plan.threads):
        mine = [number for number in in_use if number // plan.pieces == thread]
        before += len(mine)
        ends.append(ceil(Fraction(before * elements, len(in_use))))
        share = ends[-1] - ends[-2]
        for place, number in enumerate(mine):
            start, stop = (ceil(Fraction(one * share, len(mine))) for one in (place, place + 1))
            sizes[number] = stop - start
    return sizes


def parts_of(elements: int, rounds: int) -> list[int]:
    """Return the elements of the parts that follow each other, longer ones first."""
    return [elements // rounds + (part < elements % rounds) for part in range(rounds)]


def simulate(problem: Problem, plan: Schedule | TreePlan) -> Simulated:
    """Add up what each NIC carries in each step, and what each server adds."""
    transfers = [
        transfer for server in range(plan.bcube.servers) for transfer in plan.transfers(server)
    ]
    time = Fraction(0)
    for chunk in problem.chunks:
        carried: dict[int, Counter[Nic]] = {}
        added: dict[int, Counter[int]] = {}
        for part, elements in enumerate(parts_of(chunk // problem.element_bytes, plan.rounds)):
            sizes = [size * problem.element_bytes for size in sizes_of(plan, elements)]
            for one in transfers:
                step = _step(plan, one) + part
                first = one.thread * plan.pieces + one.offset
                size = sum(sizes[first : first + one.length])
                nics = carried.setdefault(step, Counter())
                nics[one.server, one.level, "sends"] += size
                nics[one.peer, one.level, "receives"] += size
                if one.stage == "aggregate":
                    added.setdefault(step, Counter())[one.peer] += size
        for step, nics in carried.items():
            most = max(nics.values())
            if most:
                adding = max(added.get(step, Counter()).values(), default=0)
                network = problem.network
                time += (
                    network.startup_ns
                    + Fraction(most * 10**9) / network.link_bytes_per_s
                    + adding * network.reduce_ns_per_byte
                )
    steps = range(2 * plan.steps)
    in_use = [number not in plan.left_out for number in range(plan.threads * plan.pieces)]
    by_piece = [carried_in(plan, transfers, [list(map(int, in_use))], step) for step in steps]
    return Simulated(
        ceil(time),
        _load(plan, transfers, in_use),
        [max(one.values(), default=0) for one in by_piece],
    )


def _step(plan: Schedule | TreePlan, one: Transfer) -> int:
    return one.step if one.stage == "aggregate" else plan.steps + one.step


def carried_in(
    plan: Schedule | TreePlan, transfers: list[Transfer], layers: list[list[int]], step: int
) -> Counter[Nic]:
    """Return what every NIC carries in one step, of layers cut into pieces of these sizes."""
    found: Counter[Nic] = Counter()
    for transfer in transfers:
        if _step(plan, transfer) == step:
            first = transfer.thread * plan.pieces + transfer.offset
            size = sum(sum(sizes[first : first + transfer.length]) for sizes in layers)
            found[transfer.server, transfer.level, "sends"] += size
            found[transfer.peer, transfer.level, "receives"] += size
    return found


def _load(plan: Schedule | TreePlan, transfers: list[Transfer], in_use: list[bool]) -> Fraction:
    """Return the busiest NIC's share of a gradient that could be cut as finely as one likes."""
    shares = (
        list(plan.shares)
        if isinstance(plan, TreePlan)
        else [Fraction(int(used), sum(in_use)) for used in in_use]
    )
    found: dict[Nic, Fraction] = {}
    for transfer in transfers:
        first = transfer.thread * plan.pieces + transfer.offset
        share = sum(shares[first : first + transfer.length], Fraction(0))
        for nic in (
            (transfer.server, transfer.level, "sends"),
            (transfer.peer, transfer.level, "receives"),
        ):
            found[nic] = found.get(nic, Fraction(0)) + share
    return max(found.values(), default=Fraction(0))
