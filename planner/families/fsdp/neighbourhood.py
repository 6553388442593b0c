"""Neighbourhood of the local search: everything that is one change away from a shape.

Changes: one buffer more or less; a unit kept or not, recomputed or not; another prefetch distance;
a unit boundary moved, removed or added.
Complexity: O(units) neighbours, each in O(units). Source: own.
"""

from collections.abc import Iterator

from planner.families.fsdp.min_memory import finest
from planner.families.fsdp.prefetch import Ahead, Shape
from planner.families.fsdp.problem import Problem


def changes(problem: Problem, shape: Shape, ahead: Ahead) -> Iterator[tuple[Shape, Ahead]]:
    """Yield every shape and prefetch distance that is one change away."""
    ranges, keep, recompute = shape.ranges, shape.keep, shape.recompute
    count = len(ranges)
    for buffers in (shape.buffers + 1, shape.buffers - 1):
        if 1 <= buffers <= count:
            yield shape._replace(buffers=buffers), ahead
    for u in range(count):
        yield shape._replace(keep=_but(keep, u)), ahead
    if problem.channels != "two":
        for distance in (1, 2, 3, 4, 6, 8, None):
            yield shape, Ahead(ahead.forward, distance)
            yield shape, Ahead(distance, ahead.backward)
    starts = [start for start, _ in finest(problem)]
    places = {start: place for place, start in enumerate(starts)}
    for u in range(1, count):
        place = places[ranges[u][0]]
        for other in (place - 1, place + 1, place - 3, place + 3):
            if 0 < other < len(starts) and ranges[u - 1][0] < starts[other] < ranges[u][1]:
                cut = starts[other]
                moved = (*ranges[: u - 1], (ranges[u - 1][0], cut), (cut, ranges[u][1]))
                yield shape._replace(ranges=(*moved, *ranges[u + 1 :])), ahead
    for u in range(1, count):
        whole = (ranges[u - 1][0], ranges[u][1])
        merged = (*ranges[: u - 1], whole, *ranges[u + 1 :])
        yield (
            shape._replace(
                ranges=merged,
                keep=(*keep[: u - 1], *keep[u:]),
                recompute=(*recompute[: u - 1], *recompute[u:]),
                buffers=min(shape.buffers, count - 1),
            ),
            ahead,
        )
    for u, (start, stop) in enumerate(ranges):
        inside = [cut for cut in starts if start < cut < stop]
        for cut in inside[len(inside) // 2 : len(inside) // 2 + 1]:
            halves = (*ranges[:u], (start, cut), (cut, stop), *ranges[u + 1 :])
            yield (
                shape._replace(
                    ranges=halves,
                    keep=(*keep[:u], keep[u], *keep[u:]),
                    recompute=(*recompute[:u], recompute[u], *recompute[u:]),
                ),
                ahead,
            )
    if problem.checkpoint_bytes is not None:
        for u, (start, stop) in enumerate(ranges):
            if any(problem.activations[start:stop]):
                yield shape._replace(recompute=_but(recompute, u)), ahead


def _but(values: tuple[bool, ...], place: int) -> tuple[bool, ...]:
    return (*values[:place], not values[place], *values[place + 1 :])
