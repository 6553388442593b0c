"""All plans of whole parameters of tiny problems, for one op order; the best sharded plan."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from operator import add, sub

from planner.families.iteration import Plan, Problem, Transfer
from planner.families.iteration.baselines import enforced
from planner.model.costs import TransferCost
from planner.solving.transfers import Kind, Part
from tests.caramel.exact_oracles import ordered_partitions


def transfers(
    kind: Kind, groups: Iterable[Sequence[int]], sizes: Sequence[int]
) -> tuple[Transfer, ...]:
    return tuple(
        Transfer(tuple(Part(j, 0, sizes[j]) for j in group), kind=kind) for group in groups
    )


def _every(kind: Kind, sizes: Sequence[int]) -> list[tuple[Transfer, ...]]:
    """Return every way to put parameters into transfers, and the transfers into an order."""
    groupings = ordered_partitions(tuple(range(len(sizes))))
    return [transfers(kind, groups, sizes) for groups in groupings]


def replicated(problem: Problem, algorithm: str) -> Iterator[Plan]:
    """Every grouping and order of all-reduces."""
    for sent in _every("all_reduce", problem.pushed):
        yield enforced(problem, algorithm, sent)


def pushes_then_pulls(problem: Problem, algorithm: str) -> Iterator[Plan]:
    """Every grouping and order of pushes, and then of pulls."""
    for pushes, pulls in product(_every("push", problem.pushed), _every("pull", problem.pulled)):
        yield enforced(problem, algorithm, pushes + pulls)


def sharded(problem: Problem, algorithm: str) -> Iterator[Plan]:
    """Every grouping and order of pushes and pulls; each pull comes after the pushes it needs."""
    for pushes, pulls in product(_every("push", problem.pushed), _every("pull", problem.pulled)):
        for merged in _merged(pushes, pulls, frozenset()):
            yield enforced(problem, algorithm, merged)


def _merged(
    pushes: Sequence[Transfer], pulls: Sequence[Transfer], pushed: frozenset[int]
) -> Iterator[tuple[Transfer, ...]]:
    if not pulls:
        yield ()
        return
    if pushes:
        now = pushed | {part.parameter for part in pushes[0].parts}
        for rest in _merged(pushes[1:], pulls, now):
            yield (pushes[0], *rest)
    if all(part.parameter in pushed for part in pulls[0].parts):
        for rest in _merged(pushes, pulls[1:], pushed):
            yield (pulls[0], *rest)


def best_sharded(
    heads: Sequence[int],
    tails: Sequence[int],
    pushed: Sequence[int],
    pulled: Sequence[int],
    half: TransferCost,
    backward: int,
) -> int:
    """Return the least of what any plan's pulls end at, with their tails.

    Parameters are cut at every byte, and nothing is pulled before the backward pass has ended.
    Dynamic programming over how many bytes of each parameter were pushed and pulled so far: to be
    there earlier is never worse. Independent of windows being nested, and of any grouping.
    """
    count, whole = len(heads), (*pushed, *pulled)

    def in_time(most: int) -> bool:
        earliest = {(0,) * len(whole): 0}
        # In this order each state comes after all states with fewer bytes that it follows from.
        for state in product(*(range(size + 1) for size in whole)):
            if state not in earliest:
                continue
            now, there, back = earliest[state], state[:count], state[count:]
            for added in _amounts(map(sub, pushed, there)):
                start = max(now, *(head for head, one in zip(heads, added, strict=True) if one))
                end = start + half.cost_ns(sum(added))
                new = (*map(add, there, added), *back)
                earliest[new] = min(end, earliest.get(new, end))
            # Bytes can be pulled that were pushed, or, of another size, once all were pushed.
            able = (
                have - had if size == other else size - had if have == other else 0
                for have, had, other, size in zip(there, back, pushed, pulled, strict=True)
            )
            for added in _amounts(able):
                end = max(now, backward) + half.cost_ns(sum(added))
                if all(end + tail <= most for tail, one in zip(tails, added, strict=True) if one):
                    new = (*there, *map(add, back, added))
                    earliest[new] = min(end, earliest.get(new, end))
        return whole in earliest

    last = backward + max(tails) + half.cost_ns(sum(pushed)) + half.cost_ns(sum(pulled))
    return bisect_left(range(last), True, key=in_time)


def _amounts(most: Iterable[int]) -> list[tuple[int, ...]]:
    """Return every choice of bytes to send, at least one."""
    return [added for added in product(*(range(size + 1) for size in most)) if any(added)]
