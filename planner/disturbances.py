"""Why measured times may be off: numbers in, sentences out.

Problem. A busy machine measures times that are long, or that vary, and nobody who reads them later
can tell. What can be told is told while measuring, and goes with the numbers.

Method. Each number is held against a bound, a constant below with its reason. No number is
corrected.

Complexity. O(1).

Source. Own; the bounds are what the shipped profiles keep, which were measured on a quiet machine.
"""

from dataclasses import dataclass
from typing import NamedTuple

from planner.units import counted, format_ns

__all__ = [
    "LAYERS_SPREAD",
    "LAYERS_SUM",
    "TOTAL_SPREAD",
    "Circumstances",
    "Spread",
    "disturbances",
]

TOTAL_SPREAD = 0.10
"""Most that the middle half of whole iterations may differ, as a share of their median: plans are
told apart by a few percent, and the median of ten is then good to about 3 %."""

LAYERS_SPREAD = 0.30
"""The same of single layers, all taken together: they are shorter, and the shipped profiles, from a
quiet machine, have 3 to 26 %."""

LAYERS_SUM = 0.20
"""Most that the layers' times may sum to more or less than the whole pass, as a share of it: those
of the shipped profiles are within 11 %. Beyond it plans are made for a model of another length."""

HOOKED = 0.15
"""Most that iterations with the hooks that tell layers apart may differ from those without: the
shipped profiles have up to 11 %. Above it, the layers' times are those of the hooks."""

LOAD = 0.25
"""Processors that other processes may keep busy of those a measurement needs: what a quiet
machine's own services take stays well below it."""


class Spread(NamedTuple):
    """How much times vary: interquartile ranges over medians.

    Attributes
    ----------
    total : float
        Of whole iterations.
    layers : float
        Of single layers, all ranges together over all medians together.
    """

    total: float
    layers: float

    @property
    def excess(self) -> float:
        """The larger of the two, in bounds: up to 1 the times are steady."""
        return max(self.total / TOTAL_SPREAD, self.layers / LAYERS_SPREAD)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known about what a measurement was made under. None: it is not known.

    Attributes
    ----------
    threads : int
        Threads that computed at once, those of all processes of the measurement.
    processors : int
        Processors that the process may run on.
    others : float, optional
        Processors that other processes kept busy, on average.
    spread : Spread, optional
        How much the times vary; a single repetition cannot tell.
    forward_hooked, backward_hooked : float, optional
        A pass with hooks, over one without.
    forward_layers, backward_layers : (float, float), optional
        The sum of the layers' times of a pass, and the time of the whole pass without hooks, in ns.
    ranks : int
        Processes among which the threads are shared.
    each : tuple of int
        Threads of each rank of a job, wherever it runs; empty if nobody asked.
    """

    threads: int
    processors: int
    others: float | None = None
    spread: Spread | None = None
    forward_hooked: float | None = None
    backward_hooked: float | None = None
    forward_layers: tuple[float, float] | None = None
    backward_layers: tuple[float, float] | None = None
    ranks: int = 1
    each: tuple[int, ...] = ()


def disturbances(measured: Circumstances) -> tuple[str, ...]:
    """Return why the times may be off, the causes before what they did; empty: nothing was seen."""
    return (*_causes(measured), *_effects(measured))


def _causes(measured: Circumstances) -> list[str]:
    causes = []
    threads, processors = measured.threads, measured.processors
    have = counted(processors, "processor")
    if threads > processors:
        shared = f"{measured.ranks} ranks with {threads} threads in all"
        own = counted(threads, "thread")
        causes.append(
            f"{shared if measured.ranks > 1 else own} on {have} waited for each other: measure "
            "again with fewer threads"
        )
    if measured.others is not None:
        over = measured.others - max(processors - threads, 0)
        if over > LOAD:
            causes.append(
                f"other processes kept {measured.others:.1f} of {have} busy, and {threads} "
                f"{'was' if threads == 1 else 'were'} needed here: measure again without them"
            )
    return causes


def _effects(measured: Circumstances) -> list[str]:
    effects = []
    total, layers = measured.spread or (0.0, 0.0)
    for what, spread, bound in (
        ("whole iterations", total, TOTAL_SPREAD),
        ("single layers", layers, LAYERS_SPREAD),
    ):
        if spread > bound:
            effects.append(
                f"the middle half of the times of {what} spreads over {spread:.0%} of the median, "
                f"more than {bound:.0%}"
            )
    for which, times in (
        ("forward", measured.forward_layers),
        ("backward", measured.backward_layers),
    ):
        if times is not None and abs(times[0] - times[1]) > LAYERS_SUM * times[1]:
            effects.append(
                f"the layers' times of the {which} pass sum to {format_ns(round(times[0]))}, the "
                f"whole pass took {format_ns(round(times[1]))}: more than {LAYERS_SUM:.0%} apart"
            )
    for which, ratio in (
        ("forward", measured.forward_hooked),
        ("backward", measured.backward_hooked),
    ):
        if ratio is not None and abs(ratio - 1) > HOOKED:
            more = "more" if ratio > 1 else "less"
            effects.append(
                f"{which} passes took {abs(ratio - 1):.0%} {more} time with the hooks that tell "
                f"layers apart than without, more than {HOOKED:.0%}"
            )
    return effects
