"""Fit cost models to timed transfers; needs no torch.

Problem: planners need the time of a transfer as a function of its size; samples are noisy and of a
few sizes. Three models per depth: the non-decreasing *table* of `planner.model.measured` (isotonic
regression, least absolute deviations); the *affine* cost, by non-negative least squares on relative
errors of medians; *two points*, the line through the medians of 64 B and 4 MB.

Guarantee: the table never falls, and its last slope is above 0 unless all times are equal. Medians
on a line are fitted exactly, up to rounding to nanoseconds.
Complexity: O(n log n) per merge of n samples; at most as many merges as sizes.
Source: Caramel §4.2 for the two points; the rest is own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean, median_low, quantiles
from typing import Any, Literal

from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.measured import Collective, never_falling
from planner.model.validation import integer, integers

Model = Literal["table", "affine", "two_point"]

ELEMENT_BYTES = 4  # transfers consist of numbers of this size

SMALL_BYTES, LARGE_BYTES = 64, 4 * 10**6
"""Sizes of the two micro-benchmarks."""

_APART = 1.4  # sizes closer than this factor show noise rather than a slope


@dataclass(frozen=True, slots=True)
class Timing:
    """The measured times of one size."""

    size_bytes: int  # of the message; of a pull or push, of the whole batch
    depth: int  # chunks in flight
    times_ns: tuple[int, ...]  # per round, of the slowest rank

    @property
    def median_ns(self) -> int:
        """The median; for an even count, the lower middle value."""
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
    """Timed transfers of one collective among all ranks of a job."""

    collective: Collective  # one of `COLLECTIVES`
    algorithm: str  # that carries it out, such as ``ring``
    ranks: int
    warmup: int  # rounds before the measurement
    repetitions: int  # measured rounds
    timings: tuple[Timing, ...]  # by depth, then by size

    @property
    def depths(self) -> tuple[int, ...]:
        """Timed depths, in increasing order."""
        return tuple(sorted({timing.depth for timing in self.timings}))

    def at(self, depth: int) -> tuple[Timing, ...]:
        """Return the timings at one depth, in increasing size."""
        timings = [timing for timing in self.timings if timing.depth == depth]
        return tuple(sorted(timings, key=lambda timing: timing.size_bytes))


@dataclass(frozen=True, slots=True)
class DepthFit:
    """The models at one depth."""

    table: TableCost
    affine: AffineCost  # nearest to all sizes
    two_point: AffineCost | None  # None if 64 B or 4 MB is missing, or the line is invalid


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """The models of a sweep."""

    by_depth: tuple[tuple[int, DepthFit], ...]  # depths increase from 1

    def cost(self, model: Model) -> AffineCost | TableCost | DepthCost | None:
        """Return the cost by one model; None if the model is missing at some depth."""
        costs = [(depth, getattr(fit, model)) for depth, fit in self.by_depth]
        if any(cost is None for _, cost in costs):
            return None
        shallowest: AffineCost | TableCost = costs[0][1]
        return DepthCost(tuple(costs)) if len(costs) > 1 else shallowest


def sweep_sizes(largest: int) -> tuple[int, ...]:
    """Return the sizes of a sweep: powers of two from 64 B, 4 MB (4·10⁶ B), and the largest.

    Powers of two within a factor of 1.4 of the other sizes are left out; so is 4 MB if that close
    to `largest`. Raises InvalidInputError if `largest` is below 128 bytes or not a multiple of 4.
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
    """Fit all models to a sweep, which needs two sizes at each depth and times above 0."""
    return NetworkFit(tuple((depth, _fit(sweep.at(depth))) for depth in sweep.depths))


def relative_errors(cost: AffineCost | TableCost, timings: Sequence[Timing]) -> tuple[float, ...]:
    """Return, for each size, the relative error of a cost against the measured median."""
    return tuple(cost.cost_ns(timing.size_bytes) / timing.median_ns - 1 for timing in timings)


def _fit(timings: Sequence[Timing]) -> DepthFit:
    medians = [(timing.size_bytes, timing.median_ns) for timing in timings]
    affine = fit_affine(medians)  # checks the medians, too
    return DepthFit(
        TableCost(never_falling((timing.size_bytes, timing.times_ns) for timing in timings)),
        affine,
        _two_point(dict(medians)),
    )


def _two_point(medians: dict[int, int]) -> AffineCost | None:
    try:
        return two_point_model([medians[SMALL_BYTES]], [medians[LARGE_BYTES]])
    except (KeyError, InvalidInputError):  # one was not measured, or the line is invalid
        return None


def two_point_model(small_ns: Sequence[int], large_ns: Sequence[int]) -> AffineCost:
    """Return the line through the mean times of transfers of 64 B and of 4 MB.

    With two sizes this is linear regression. A line that starts below 0 or falls (a noisy
    measurement) is an error.
    """
    small, large = (
        mean(map(Fraction, integers(times, name)))
        for times, name in ((small_ns, "small_ns"), (large_ns, "large_ns"))
    )
    rate = (large - small) / (LARGE_BYTES - SMALL_BYTES)
    startup = small - SMALL_BYTES * rate
    if rate < 0 or startup < 0:
        raise InvalidInputError(
            "large_ns",
            f"expected times that grow, less than in proportion to the size, got {float(small):g} "
            f"ns for {SMALL_BYTES} B and {float(large):g} ns for {LARGE_BYTES} B",
        )
    return AffineCost(round(startup), rate)


def fit_affine(samples: Iterable[tuple[int, int]]) -> AffineCost:
    """Fit start-up cost and time per byte to measured transfers.

    Non-negative least squares on the *relative* error: measured times span decades, and a model
    that is wrong for small transfers batches wrongly. Samples are pairs (bytes, ns) with at least
    two different sizes, and times above 0.
    """
    import numpy as np
    from scipy.optimize import nnls

    table = _checked_samples(samples)
    sizes = np.array([size for size, _ in table], dtype=float)
    times = np.array([time for _, time in table], dtype=float)
    scale = max(float(sizes.max()), 1.0)
    design = np.column_stack([1.0 / times, sizes / scale / times])
    (startup, rate), _ = nnls(design, np.ones_like(times))
    return AffineCost(round(startup), Fraction(repr(float(rate / scale))))


def _checked_samples(samples: Iterable[Any]) -> list[tuple[int, int]]:
    table = [
        (integer(size, f"samples[{i}][0]"), integer(time, f"samples[{i}][1]", minimum=1))
        for i, (size, time) in enumerate(samples)
    ]
    if len({size for size, _ in table}) < 2:
        raise InvalidInputError("samples", "expected transfers of at least two different sizes")
    return table
