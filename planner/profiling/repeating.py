"""Repeat a measurement until consecutive repetitions are steady.

Problem: Other load comes and goes during a measurement, and disturbs some of the repetitions.
Method: Repeat until the last `count` repetitions vary within the bounds of
`planner.solving.diagnostics`, or the time is up. The consecutive `count` repetitions with the least
variation count. Guarantee: With enough time the result keeps the bounds. Constant load stays
undetected. Complexity: O(n·l log n) per repetition, for n repetitions of l layers. Source: own.
"""

from collections.abc import Callable, Sequence
from statistics import median, quantiles

from planner.profiling.timing import Run
from planner.solving.diagnostics import Spread


def interquartile(times: Sequence[int]) -> int | None:
    """Return the interquartile range (ns), or None for a single time."""
    if len(times) == 1:
        return None
    low, _, high = quantiles(times, n=4, method="inclusive")
    return round(high - low)


def spread_of(runs: Sequence[Run]) -> Spread | None:
    """Return the relative spread of runs, or None for a single run."""
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
    """Repeat until the times are steady; return the index of the first counted run, and the spread.

    `go_on` tells whether there is time for another run; it is asked only while times are unsteady.
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
