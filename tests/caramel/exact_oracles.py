"""Independent answers for the exact methods: enumeration, and dynamic programs over sets sent."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product

from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost

Groups = Sequence[Sequence[tuple[int, int]]]


def unrounded(cost: TransferCost, size: int | Fraction) -> Fraction:
    """Return the cost of a transfer, the least of the cost's pieces, not rounded."""
    return min(
        piece.value_ns + piece.slope * (size - piece.start)
        for piece in cost.pieces()
        if piece.start <= size and (piece.stop is None or size <= piece.stop)
    )


def price(
    one: Windows, cost: TransferCost, groups: Groups, slower: int = 1, longer: int = 1
) -> int:
    """Simulate a plan; groups of (parameter, bytes), in transfer order.

    Transfers take `slower` times as long, computation `longer` times.
    """
    clock, value = 0, longer * one.compute_ns
    for group in groups:
        clock = max([clock, *(longer * one.heads[j] for j, _ in group)])
        clock += slower * cost.cost_ns(sum(amount for _, amount in group))
        value = max([value, *(clock + longer * one.tails[j] for j, _ in group)])
    return value


def is_complete(one: Windows, groups: Groups) -> bool:
    """Whether every byte is sent exactly once, and nothing empty."""
    sent = [0] * len(one.sizes)
    for group in groups:
        for j, amount in group:
            if amount < 1:
                return False
            sent[j] += amount
    return all(group for group in groups) and tuple(sent) == one.sizes


def ordered_partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Every way to put the items into groups, one group after the other."""
    if not items:
        yield []
    for count in range(1, len(items) + 1):
        for group in combinations(items, count):
            rest = tuple(item for item in items if item not in group)
            for following in ordered_partitions(rest):
                yield [group, *following]


def best_by_enumeration(one: Windows, cost: TransferCost) -> int:
    """Best plan of whole parameters, by trying all of them."""
    return min(price(one, cost, groups) for groups in whole_plans(one))


def whole_plans(one: Windows) -> Iterator[list[list[tuple[int, int]]]]:
    """Every plan of whole parameters."""
    for groups in ordered_partitions(tuple(range(len(one.sizes)))):
        yield [[(j, one.sizes[j]) for j in group] for group in groups]


def best_split(one: Windows, cost: TransferCost, quantum: int = 1) -> int:
    """Best plan with split parameters: by target, the earliest end for every rest still to send.

    A piece is a multiple of the quantum, or all that is left of its parameter.
    """

    def feasible(target: int) -> bool:
        finish: dict[tuple[int, ...], int] = {one.sizes: 0}
        waiting = {one.sizes}
        while waiting:
            left = max(waiting)  # what is left only shrinks, so nothing leads to it any more
            waiting.remove(left)
            for pieces in product(*([*range(0, rest, quantum), rest] for rest in left)):
                group = [j for j, piece in enumerate(pieces) if piece]
                if not group:
                    continue
                begin = max([finish[left], *(one.heads[j] for j in group)])
                end = begin + cost.cost_ns(sum(pieces))
                after = tuple(rest - piece for rest, piece in zip(left, pieces, strict=True))
                if end + max(one.tails[j] for j in group) <= target:
                    finish[after] = min(end, finish.get(after, end))
                    waiting.add(after)
        return tuple(0 for _ in one.sizes) in finish

    low, high = one.compute_ns, price(one, cost, [list(enumerate(one.sizes))])
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(middle) else (middle + 1, high)
    return low


def preemptive_value(
    heads: Sequence[int], durations: Sequence[int | Fraction], tails: Sequence[int]
) -> int | Fraction:
    """Value of the best preemptive schedule: the worst set of jobs decides."""
    jobs = range(len(heads))
    return max(
        min(heads[j] for j in some) + sum(durations[j] for j in some) + min(tails[j] for j in some)
        for count in range(1, len(heads) + 1)
        for some in combinations(jobs, count)
    )


def best_sequence(heads: Sequence[int], durations: Sequence[int], tails: Sequence[int]) -> int:
    """Best value over all orders."""
    values = []
    for order in permutations(range(len(heads))):
        clock, value = 0, 0
        for job in order:
            clock = max(clock, heads[job]) + durations[job]
            value = max(value, clock + tails[job])
        values.append(value)
    return min(values)
