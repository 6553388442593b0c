"""A literal simulation: every transfer of every server, every byte, every NIC."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

from planner.families.bml import Plan, Problem, Schedule, Transfer, TreePlan
from tests.bml.plans import all_transfers

Nic = tuple[int, int, str]
"""Server, level and direction."""


class Simulated(NamedTuple):
    time_ns: int
    load: Fraction
    pieces: list[int]


def shares_of(plan: Plan) -> list[Fraction]:
    """Return the share of each piece in a gradient that could be cut as finely as one likes."""
    if isinstance(plan, TreePlan):
        return list(plan.shares)

    def weight(number: int) -> int:
        if number in plan.left_out:
            return 0
        is_light = any(first <= number < stop for first, stop in plan.light)
        return plan.light_weight if is_light else 64

    weights = list(map(weight, range(plan.threads * plan.pieces)))
    return [Fraction(weight, sum(weights)) for weight in weights]


def sizes_of(plan: Plan, elements: int) -> list[int]:
    """Return the elements of every piece, in the order of their numbers."""
    if isinstance(plan, Schedule) and plan.light_weight == 64:
        return _even_sizes(plan, elements)
    ends = (int(share * elements // 1) for share in accumulate(shares_of(plan)))
    return [stop - start for start, stop in pairwise([0, *ends])]


def _even_sizes(plan: Schedule, elements: int) -> list[int]:
    """Share elements among threads by their pieces in use, and among these."""
    sizes = [0] * (plan.threads * plan.pieces)
    in_use = [number for number in range(len(sizes)) if number not in plan.left_out]
    before = end = 0
    for thread in range(plan.threads):
        mine = [number for number in in_use if number // plan.pieces == thread]
        before += len(mine)
        start, end = end, ceil(Fraction(before * elements, len(in_use)))
        ends = (ceil(Fraction(n * (end - start), len(mine))) for n in range(1, len(mine) + 1))
        for number, (first, stop) in zip(mine, pairwise([0, *ends]), strict=True):
            sizes[number] = stop - first
    return sizes


def parts_of(elements: int, rounds: int) -> list[int]:
    """Return the elements of the parts that follow each other, longer ones first."""
    return [elements // rounds + (part < elements % rounds) for part in range(rounds)]


def simulate(problem: Problem, plan: Plan) -> Simulated:
    """Add up what each NIC carries in each step, and what each server adds."""
    transfers, network, width = all_transfers(plan), problem.network, problem.element_bytes
    time = Fraction(0)
    for chunk in problem.chunks:
        carried: dict[int, Counter[Nic]] = defaultdict(Counter)
        added: dict[int, Counter[int]] = defaultdict(Counter)
        for part, elements in enumerate(parts_of(chunk // width, plan.rounds)):
            sizes = sizes_of(plan, elements)
            for one in transfers:
                step, size = _step(plan, one) + part, width * sum(sizes[_pieces(plan, one)])
                for nic in _nics(one):
                    carried[step][nic] += size
                if one.stage == "aggregate":
                    added[step][one.peer] += size
        for step, nics in carried.items():
            if most := max(nics.values()):
                adding = max(added[step].values(), default=0)
                sending = Fraction(most * 10**9) / network.link_bytes_per_s
                time += network.startup_ns + sending + adding * network.reduce_ns_per_byte
    load: dict[Nic, Fraction] = defaultdict(Fraction)
    shares = shares_of(plan)
    for one in transfers:
        for nic in _nics(one):
            load[nic] += sum(shares[_pieces(plan, one)], Fraction(0))
    used = [int(number not in plan.left_out) for number in range(plan.threads * plan.pieces)]
    by_piece = [carried_in(plan, used, step) for step in range(2 * plan.steps)]
    most_pieces = [max(one.values(), default=0) for one in by_piece]
    return Simulated(ceil(time), max(load.values(), default=Fraction(0)), most_pieces)


def carried_in(plan: Plan, sizes: Sequence[int], step: int) -> Counter[Nic]:
    """Return the bytes that each NIC carries in one step, for pieces of these sizes."""
    found: Counter[Nic] = Counter()
    for one in all_transfers(plan):
        if _step(plan, one) == step:
            for nic in _nics(one):
                found[nic] += sum(sizes[_pieces(plan, one)])
    return found


def _step(plan: Plan, one: Transfer) -> int:
    return one.step if one.stage == "aggregate" else plan.steps + one.step


def _pieces(plan: Plan, one: Transfer) -> slice:
    first = one.thread * plan.pieces + one.offset
    return slice(first, first + one.length)


def _nics(one: Transfer) -> tuple[Nic, Nic]:
    return (one.server, one.level, "sends"), (one.peer, one.level, "receives")
