"""The best sharded plan of tiny problems, with parameters cut at every byte: an oracle.

Nothing is pulled before the backward pass has ended.
Dynamic programming over how many bytes of each parameter were pushed and pulled so far: to be
there earlier is never worse. Independent of windows being nested, and of any grouping.
"""

from collections.abc import Sequence
from itertools import product

from planner.model.costs import TransferCost


def best_sharded(
    heads: Sequence[int],
    tails: Sequence[int],
    pushed: Sequence[int],
    pulled: Sequence[int],
    half: TransferCost,
    backward: int,
) -> int:
    """Return the least of what any plan's pulls end at, with their tails."""
    low, high = 0, backward + max(tails) + half.cost_ns(sum(pushed)) + half.cost_ns(sum(pulled))
    while low < high:
        middle = (low + high) // 2
        if _in_time(heads, [middle - tail for tail in tails], pushed, pulled, half, backward):
            high = middle
        else:
            low = middle + 1
    return high


def _in_time(
    heads: Sequence[int],
    due: Sequence[int],
    pushed: Sequence[int],
    pulled: Sequence[int],
    half: TransferCost,
    backward: int,
) -> bool:
    nothing = (0,) * len(heads)
    earliest = {(nothing, nothing): 0}
    reached = {0: {(nothing, nothing)}}  # by how many bytes are there in all
    for sent in range(sum(pushed) + sum(pulled)):
        for state in reached.pop(sent, ()):
            now, (there, back) = earliest[state], state
            for added in product(
                *(range(size - had + 1) for size, had in zip(pushed, there, strict=True))
            ):
                if any(added):
                    start = max(now, *(head for head, one in zip(heads, added, strict=True) if one))
                    new = (tuple(map(sum, zip(there, added, strict=True))), back)
                    _note(earliest, reached, new, start + half.cost_ns(sum(added)))
            able = [
                have - had if whole == size else size if have == whole else 0
                for have, had, whole, size in zip(there, back, pushed, pulled, strict=True)
            ]
            able = [min(one, size - had) for one, size, had in zip(able, pulled, back, strict=True)]
            for added in product(*(range(one + 1) for one in able)):
                if any(added):
                    end = max(now, backward) + half.cost_ns(sum(added))
                    if all(end <= last for last, one in zip(due, added, strict=True) if one):
                        new = (there, tuple(map(sum, zip(back, added, strict=True))))
                        _note(earliest, reached, new, end)
    return (tuple(pushed), tuple(pulled)) in earliest


State = tuple[tuple[int, ...], tuple[int, ...]]


def _note(
    earliest: dict[State, int], reached: dict[int, set[State]], state: State, end: int
) -> None:
    earliest[state] = min(end, earliest.get(state, end))
    reached.setdefault(sum(map(sum, state)), set()).add(state)
