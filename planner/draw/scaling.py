"""What is drawn of a configuration of a job: where its time goes, and those next to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.draw.chart import shorter_title
from planner.printing import printable
from planner.units import format_ns

__all__ = [
    "PHASES",
    "LayerTime",
    "Point",
    "Range",
    "Regret",
    "Scaling",
    "ScalingChart",
    "epoch_text",
    "factor_text",
    "grouped",
    "slowdown_text",
]

PHASES = ("forward", "backward", "update", "communication", "weight reading")
"""What the time of a layer is spent on; the first three are computation."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """What one layer, or a range of layers, adds to an epoch.

    Attributes
    ----------
    name : str
        What a reader should see.
    phases_ns : tuple of int
        Its time in each of `PHASES`.
    """

    name: str
    phases_ns: tuple[int, ...]

    @property
    def total_ns(self) -> int:
        """All of its time."""
        return sum(self.phases_ns)


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration with its price.

    Attributes
    ----------
    workers : int
        Workers of each replica.
    replicas : int
        Replicas of the model.
    servers : int
        Parameter servers.
    epoch_ns : int
        Time of an epoch.
    """

    workers: int
    replicas: int
    servers: int
    epoch_ns: int

    @property
    def machines(self) -> int:
        """Machines in use."""
        return self.servers + self.workers * self.replicas

    @property
    def label(self) -> str:
        """Workers x replicas + servers, shortly."""
        return f"{self.workers}×{self.replicas}+{self.servers}"

    @property
    def words(self) -> str:
        """Workers x replicas + servers, in words."""
        plural = "s" if self.servers > 1 else ""
        return f"{self.workers} × {self.replicas} workers + {self.servers} server{plural}"


@dataclass(frozen=True, slots=True)
class Range:
    """Factors of a constant between which the configuration stays the best; None: no end known."""

    constant: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Regret:
    """How much slower than the best a configuration is if every constant is off.

    Attributes
    ----------
    worst, mean : float
        Relative loss, at worst and on average.
    error : float
        Relative error of every constant.
    """

    worst: float
    mean: float
    error: float

    @property
    def words(self) -> str:
        """What it means."""
        return (
            f"every constant off by {self.error:.0%}: at most {_share(self.worst)} slower than the "
            f"best, {_share(self.mean)} on average"
        )


def _share(value: float) -> str:
    if value == 0:
        return "0%"
    return "<0.01%" if value < 5e-5 else f"{value:.2%}"


@dataclass(frozen=True, slots=True)
class Scaling:
    """What is known of how a job scales.

    Attributes
    ----------
    layers : tuple of LayerTime
        Layer 0 first.
    best : Point
        The configuration these are of.
    ranking : tuple of Point
        Triples of workers, replicas and servers, the best first.
    landscape : tuple of Point
        The best of each pair of workers and replicas; empty if it was not asked for.
    front : tuple of Point
        The best for each number of machines, the fewest first; empty if it was not asked for.
    ranges : tuple of Range
        How far constants may be off; empty if it was not asked for.
    regret : Regret, optional
        What is lost if all constants are off.
    """

    layers: tuple[LayerTime, ...]
    best: Point
    ranking: tuple[Point, ...]
    landscape: tuple[Point, ...] = ()
    front: tuple[Point, ...] = ()
    ranges: tuple[Range, ...] = ()
    regret: Regret | None = None


@dataclass(frozen=True, slots=True)
class ScalingChart:
    """A configuration with the words around it.

    Attributes
    ----------
    title : str
        What the configuration is and what it costs.
    scaling : Scaling
        What is drawn.
    lower_bound_ns : int or None
        Proven bound on an epoch in every configuration.
    """

    title: str
    scaling: Scaling
    lower_bound_ns: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))


def epoch_text(epoch_ns: int) -> str:
    """Return the time of an epoch, which may be hours, as a person reads it."""
    seconds = epoch_ns / 10**9
    return f"{seconds:,.0f} s" if 10**4 <= seconds < 10**9 else format_ns(epoch_ns)


def factor_text(factor: float | None) -> str:
    """Return a factor of a constant as a person reads it; – if no end was found."""
    return "–" if factor is None else f"{factor:.3g}"


def slowdown_text(epoch_ns: int, best_ns: int) -> str:
    """Return how much slower than the best an epoch is: 0%, 3.21%, and from twice on 12.3×."""
    if epoch_ns == best_ns or not best_ns:
        return "0%"
    ratio = epoch_ns / best_ns
    if ratio >= 2:
        return f"{ratio:.4g}×"
    return "<0.01%" if ratio < 1.00005 else f"{ratio - 1:.2%}"


def grouped(layers: Sequence[LayerTime], most: int) -> list[LayerTime]:
    """Return at most `most` rows: single layers, or ranges of equally many if there are more."""
    if len(layers) <= most:
        return [LayerTime(printable(one.name), one.phases_ns) for one in layers]
    each = -(-len(layers) // most)
    found = []
    for start in range(0, len(layers), each):
        members = layers[start : start + each]
        sums = tuple(map(sum, zip(*(one.phases_ns for one in members), strict=True)))
        found.append(LayerTime(f"layers {start} … {start + len(members) - 1}", sums))
    return found
