"""Which repetitions of a measurement count: the steadiest in a row.

Problem. Other load comes and goes while a model is measured. More repetitions do not help if all of
them count.

Method. Rounds go on until the last `count` of them vary no more than is allowed, or time is up;
then those in a row that vary least count.

Guarantee. With time left, what counts keeps the bounds (`planner.disturbances`). Load that stays
the same all the time is not seen here.

Complexity. O(n·l log n) a round for n repetitions of l layers.

Source. Own.
"""

from collections.abc import Callable, Sequence
from statistics import median, quantiles

from planner.disturbances import Spread
from planner.profiling.timing import Run

__all__ = ["interquartile", "repeated", "spread_of"]


def interquartile(times: Sequence[int]) -> int | None:
    """Return the interquartile range; one time alone has none."""
    if len(times) == 1:
        return None
    low, _, high = quantiles(times, n=4, method="inclusive")
    return round(high - low)


def spread_of(runs: Sequence[Run]) -> Spread | None:
    """Return how much runs vary; None if there is only one."""
    if len(runs) < 2:
        return None
    layers = [
        times
        for each in ([run.forward_ns for run in runs], [run.backward_ns for run in runs])
        for times in zip(*each, strict=True)
    ]
    wholes = [sum(run.whole_ns) for run in runs]
    return Spread(
        (interquartile(wholes) or 0) / max(median(wholes), 1),
        sum(interquartile(times) or 0 for times in layers) / max(sum(map(median, layers)), 1),
    )


def repeated(
    one_more: Callable[[], Run], count: int, go_on: Callable[[], bool]
) -> tuple[int, Spread | None]:
    """Repeat until the times are steady; return the first run that counts, and the spread.

    Parameters
    ----------
    one_more : callable
        Measures once.
    count : int
        Runs that count.
    go_on : callable
        Whether there is time for another one, asked while the times are not steady.
    """
    runs = [one_more() for _ in range(count)]
    first, least = 0, spread_of(runs)
    last = least
    while last is not None and last.excess > 1 and go_on():
        runs.append(one_more())
        last = spread_of(runs[-count:])
        if last is not None and least is not None and last.excess < least.excess:
            first, least = len(runs) - count, last
    return first, least
