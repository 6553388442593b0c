"""What communication costs, fitted to timed transfers; needs no torch.

Problem. Planners take the time of a transfer as a function of its size. Of a network only samples
are known: a few sizes, each timed several times, with noise.

Method. Three models of the same samples, for each depth (number of chunks in flight):

- the *table* of `planner.measured`: the never falling function of the size with the least sum of
  absolute deviations from all samples;
- the *affine* cost nearest to the medians: non-negative least squares on relative errors;
- *two points*: the line through the medians of 64 B and of 4 MB, Caramel's model.

Guarantee. The table never falls, and its last slope is above 0 unless all times are equal. Medians
that lie on a line are fitted exactly, but for rounding to whole nanoseconds.

Complexity. O(n log n) a merge of n samples, at most as many merges as sizes.

Source. Caramel §4.2 for the two points; the rest is own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low, quantiles
from typing import Literal

from planner.caramel.network import LARGE_BYTES, SMALL_BYTES, two_point_model
from planner.costs import AffineCost, DepthCost, TableCost, fit_affine
from planner.errors import InvalidInputError
from planner.measured import COLLECTIVES, Collective, never_falling
from planner.validation import integer

__all__ = [
    "COLLECTIVES",
    "ELEMENT_BYTES",
    "Collective",
    "DepthFit",
    "Model",
    "NetworkFit",
    "Sweep",
    "Timing",
    "fit_network",
    "relative_errors",
    "sweep_sizes",
]

Model = Literal["table", "affine", "two_point"]

ELEMENT_BYTES = 4
"""Transfers consist of numbers of so many bytes."""

_APART = 1.4
"""Sizes closer than this factor say more about noise than about the slope between them."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one size.

    Attributes
    ----------
    size_bytes : int
        Size of the message; of a pull or push, of the whole batch.
    depth : int
        Chunks in flight.
    times_ns : tuple of int
        One for each round: that of the slowest rank.
    """

    size_bytes: int
    depth: int
    times_ns: tuple[int, ...]

    @property
    def median_ns(self) -> int:
        """The median; of two in the middle the lower one."""
        return median_low(self.times_ns)

    @property
    def quartiles_ns(self) -> tuple[int, int]:
        """The first and the third quartile."""
        if len(self.times_ns) < 2:
            return self.times_ns[0], self.times_ns[0]
        low, _, high = quantiles(self.times_ns, n=4, method="inclusive")
        return round(low), round(high)

    @property
    def spread_ns(self) -> int:
        """The interquartile range."""
        low, high = self.quartiles_ns
        return high - low


@dataclass(frozen=True, slots=True)
class Sweep:
    """Timed transfers of one collective among all ranks of a job.

    Attributes
    ----------
    collective : str
        One of `COLLECTIVES`.
    algorithm : str
        Who carries it out, such as ``ring``.
    ranks : int
        How many ranks take part.
    warmup, repetitions : int
        Rounds before the measurement, and measured rounds.
    timings : tuple of Timing
        By depth, then by size.
    """

    collective: Collective
    algorithm: str
    ranks: int
    warmup: int
    repetitions: int
    timings: tuple[Timing, ...]

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths that were timed, the least first."""
        return tuple(sorted({timing.depth for timing in self.timings}))

    def at(self, depth: int) -> tuple[Timing, ...]:
        """Return the timings at one depth, the smallest size first."""
        timings = [timing for timing in self.timings if timing.depth == depth]
        return tuple(sorted(timings, key=lambda timing: timing.size_bytes))


@dataclass(frozen=True, slots=True)
class DepthFit:
    """The models at one depth.

    Attributes
    ----------
    table : TableCost
        The table.
    affine : AffineCost
        The affine cost nearest to all sizes.
    two_point : AffineCost or None
        The line through 64 B and 4 MB; None if they were not both timed, or if it would fall or
        start below 0.
    """

    table: TableCost
    affine: AffineCost
    two_point: AffineCost | None


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """The models of a sweep.

    Attributes
    ----------
    by_depth : tuple of (int, DepthFit)
        Depths, increasing from 1, each with its models.
    """

    by_depth: tuple[tuple[int, DepthFit], ...]

    def cost(self, model: Model) -> AffineCost | TableCost | DepthCost | None:
        """Return what a problem takes; None if this model is missing at some depth."""
        costs = [(depth, getattr(fit, model)) for depth, fit in self.by_depth]
        if any(cost is None for _, cost in costs):
            return None
        shallowest: AffineCost | TableCost = costs[0][1]
        return DepthCost(tuple(costs)) if len(costs) > 1 else shallowest


def sweep_sizes(largest: int) -> tuple[int, ...]:
    """Return the sizes of a sweep: powers of two from 64 B, 4 MB (4·10⁶ B), and the largest.

    Powers of two within a factor of 1.4 of the others are left out, and so is 4 MB if it is that
    close to `largest`.

    Raises
    ------
    InvalidInputError
        If `largest` is below 128 bytes, or no multiple of 4.
    """
    integer(largest, "largest", minimum=2 * SMALL_BYTES)
    if largest % ELEMENT_BYTES:
        raise InvalidInputError(
            "largest", f"expected a multiple of {ELEMENT_BYTES} bytes, got {largest}"
        )
    fixed = [SMALL_BYTES, largest]
    if _apart(LARGE_BYTES, fixed) and largest > LARGE_BYTES:
        fixed.append(LARGE_BYTES)
    powers = [2**power for power in range(SMALL_BYTES.bit_length(), largest.bit_length())]
    return tuple(sorted([*fixed, *(size for size in powers if _apart(size, fixed))]))


def _apart(size: int, others: Sequence[int]) -> bool:
    return all(max(size, other_size) >= _APART * min(size, other_size) for other_size in others)


def fit_network(sweep: Sweep) -> NetworkFit:
    """Fit all models to a sweep.

    Raises
    ------
    InvalidInputError
        If there are fewer than two sizes at some depth, or a time is not positive.
    """
    return NetworkFit(tuple((depth, _fit(sweep.at(depth))) for depth in sweep.depths))


def relative_errors(cost: AffineCost | TableCost, timings: Sequence[Timing]) -> tuple[float, ...]:
    """Return for each size by how much a cost exceeds the measured median, relative to it."""
    return tuple(cost.cost_ns(timing.size_bytes) / timing.median_ns - 1 for timing in timings)


def _fit(timings: Sequence[Timing]) -> DepthFit:
    medians = [(timing.size_bytes, timing.median_ns) for timing in timings]
    affine = fit_affine(medians).cost  # which checks them
    return DepthFit(
        TableCost(never_falling((timing.size_bytes, timing.times_ns) for timing in timings)),
        affine,
        _two_point(dict(medians)),
    )


def _two_point(medians: dict[int, int]) -> AffineCost | None:
    if SMALL_BYTES not in medians or LARGE_BYTES not in medians:
        return None
    try:
        return two_point_model([medians[SMALL_BYTES]], [medians[LARGE_BYTES]])
    except InvalidInputError:
        return None
