"""Warnings that measured times may be off: each number is compared with a bound.

A busy machine measures times that are too long or vary, and later readers cannot tell. So the
warnings are made while measuring, and stored with the numbers. No number is corrected.

The bounds below hold for the shipped profiles, which were measured on a quiet machine. Source: own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from planner.model.units import counted, format_ns

TOTAL_SPREAD = 0.10
"""Largest interquartile range of whole iterations, as a share of their median. Plans differ by a
few percent; with this spread, the median of ten iterations is accurate to about 3 %."""

LAYERS_SPREAD = 0.30
"""Largest interquartile range of single layers, as a share of their median: they are shorter, so
that their times spread more. The shipped profiles, from a quiet machine, have 3 to 26 %."""

LAYERS_SUM = 0.20
"""Largest difference between the sum of the layers' times and the whole pass without the hooks that
time layers, as a share of the pass. The shipped profiles are within 11 %. Beyond it, plans are made
for a model of another length, or the layers' times are mostly those of the hooks."""

LOAD = 0.25
"""Number of the measurement's processors that other processes may keep busy. The services of a
quiet machine stay well below it."""

FAULTS_PER_MS = 20
"""Largest number of page faults in a millisecond of an iteration. A fault takes a
microsecond or more (1.6 on the virtual machine at hand), so with these a pass takes 2 or 3 %
longer. How many there are depends on where in memory its tensors lie: another copy of the model may
have none."""

KEEP_MEMORY = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647"
"""Environment variables with which glibc keeps memory that is freed, to use it again."""


class Spread(NamedTuple):
    """Variation of times: interquartile ranges over medians."""

    total: float  # of whole iterations
    layers: float  # all layers' ranges together, over all medians together


@dataclass(frozen=True, slots=True)
class MeasurementConditions:
    """Conditions of a measurement; None means unknown."""

    threads: int  # threads computing at once, in all processes
    processors: int  # available to the process
    others: float | None = None  # processors kept busy by other processes, on average
    spread: Spread | None = None  # unknown for a single repetition
    forward_layers: tuple[float, float] | None = None  # layers, whole pass (ns)
    backward_layers: tuple[float, float] | None = None
    faults: tuple[float, float] | None = None  # page faults, whole iteration (ns)


def disturbances(measured: MeasurementConditions) -> tuple[str, ...]:
    """Return the warnings, causes before effects; empty if nothing is suspicious."""
    return tuple(_disturbances(measured))


def _disturbances(measured: MeasurementConditions) -> Iterator[str]:
    threads, processors = measured.threads, measured.processors
    have = counted(processors, "processor")
    if threads > processors:
        yield (
            f"{counted(threads, 'thread')} on {have} waited for each other: measure "
            "again with fewer threads"
        )
    if measured.others is not None and measured.others - max(processors - threads, 0) > LOAD:
        yield (
            f"other processes kept {measured.others:.1f} of {have} busy, and {threads} "
            f"{'was' if threads == 1 else 'were'} needed here: measure again without them"
        )
    total, layers = measured.spread or (0.0, 0.0)
    for what, spread, bound in (
        ("whole iterations", total, TOTAL_SPREAD),
        ("single layers", layers, LAYERS_SPREAD),
    ):
        if spread > bound:
            yield (
                f"the middle half of the times of {what} spreads over {spread:.0%} of the median, "
                f"more than {bound:.0%}"
            )
    faults, whole_ns = measured.faults or (0.0, 0.0)
    if faults * 1e6 > FAULTS_PER_MS * whole_ns:
        yield (
            f"an iteration took {faults:,.0f} page faults, because memory that it freed went back "
            "to the system; other iterations may take none: measure, and train, with "
            f"{KEEP_MEMORY}"
        )
    passes = (("forward", measured.forward_layers), ("backward", measured.backward_layers))
    for which, times in passes:
        if times is not None and abs(times[0] - times[1]) > LAYERS_SUM * times[1]:
            yield (
                f"the layers' times of the {which} pass sum to {format_ns(round(times[0]))}, the "
                f"whole pass took {format_ns(round(times[1]))}: more than {LAYERS_SUM:.0%} apart"
            )
