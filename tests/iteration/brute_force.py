"""All plans of whole parameters of tiny problems, for one op order."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from planner.families.iteration import Plan, Problem, Transfer
from planner.solving.transfers import Kind, Part

Groups = tuple[tuple[int, ...], ...]


def groupings(items: Sequence[int]) -> Iterator[Groups]:
    """Every way to put items into groups, and the groups into an order."""
    if not items:
        yield ()
        return
    for size in range(1, len(items) + 1):
        for first in combinations(items, size):
            rest = [item for item in items if item not in first]
            for others in groupings(rest):
                yield (first, *others)


def transfers(kind: Kind, groups: Groups, sizes: Sequence[int]) -> tuple[Transfer, ...]:
    return tuple(
        Transfer(tuple(Part(j, 0, sizes[j]) for j in group), kind=kind) for group in groups
    )


def _plan(problem: Problem, algorithm: str, sent: Sequence[Transfer]) -> Plan:
    order = problem.base.order
    return Plan(algorithm, tuple(sent), (order.backward,), order.forward)


def replicated(problem: Problem, algorithm: str) -> Iterator[Plan]:
    """Every grouping and order of all-reduces."""
    for groups in groupings(range(len(problem.pushed))):
        yield _plan(problem, algorithm, transfers("all_reduce", groups, problem.pushed))


def pushes_then_pulls(problem: Problem, algorithm: str) -> Iterator[Plan]:
    """Every grouping and order of pushes, and then of pulls."""
    every = list(groupings(range(len(problem.pushed))))
    for pushed in every:
        for pulled in every:
            yield _plan(
                problem,
                algorithm,
                transfers("push", pushed, problem.pushed)
                + transfers("pull", pulled, problem.pulled),
            )


def sharded(problem: Problem, algorithm: str) -> Iterator[Plan]:
    """Every grouping and order of pushes and pulls; each pull comes after the pushes it needs."""
    for apart in pushes_then_pulls(problem, algorithm):
        pushes = [transfer for transfer in apart.transfers if transfer.kind == "push"]
        pulls = [transfer for transfer in apart.transfers if transfer.kind == "pull"]
        for merged in _merged(pushes, pulls, frozenset()):
            yield _plan(problem, algorithm, merged)


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
