"""Data for pictures and texts of plans that are not timelines.

Readers of answers return these; drawing code takes them.
"""

from dataclasses import dataclass

from planner.model.units import format_ns, unit_of

PHASES = ("forward", "backward", "update", "communication", "weight reading")
"""Parts of a layer's time; the first three are computation."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The time of one layer, or of a range of layers, in an epoch."""

    name: str
    phases_ns: tuple[int, ...]  # time in each of `PHASES`

    @property
    def total_ns(self) -> int:
        """The layer's total time."""
        return sum(self.phases_ns)


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration and its epoch time."""

    workers: int  # of each replica
    replicas: int  # of the model
    servers: int  # parameter servers
    epoch_ns: int

    @property
    def machines(self) -> int:
        """Number of machines in use."""
        return self.servers + self.workers * self.replicas

    @property
    def label(self) -> str:
        """Workers x replicas + servers, abbreviated."""
        return f"{self.workers}×{self.replicas}+{self.servers}"

    @property
    def words(self) -> str:
        """Workers x replicas + servers, in words."""
        plural = "s" if self.servers > 1 else ""
        return f"{self.workers} × {self.replicas} workers + {self.servers} server{plural}"


@dataclass(frozen=True, slots=True)
class Scaling:
    """Data of a scaling picture; fields that were not requested are empty."""

    layers: tuple[LayerTime, ...]  # layer 0 first
    best: Point  # the configuration of these times
    ranking: tuple[Point, ...]  # triples of workers, replicas and servers, the best first
    front: tuple[Point, ...] = ()  # the best one per number of machines, the fewest first


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """A group size and its cost."""

    group_size: int
    overhead: float  # share of scheduling in an iteration
    group_time_ns: int


@dataclass(frozen=True, slots=True)
class Groups:
    """A chosen group size among others, and the limits on overhead and on the time of a group."""

    points: tuple[GroupPoint, ...]  # in increasing order, including the chosen one
    chosen: GroupPoint
    max_overhead: float
    max_group_ns: int | None = None

    def breaks(self, point: GroupPoint) -> str:
        """Return the limit that a size violates, in words, or an empty text."""
        if point.overhead > self.max_overhead:
            return "too much overhead"
        if self.max_group_ns is not None and point.group_time_ns > self.max_group_ns:
            return "too long a group"
        return ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The time of a synchronisation by each method."""

    method: str  # of the plan
    times_ns: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """The methods, the fastest first."""
        return tuple(sorted(self.times_ns, key=lambda pair: pair[1]))


@dataclass(frozen=True, slots=True)
class Compared:
    """One algorithm in a comparison."""

    name: str
    topology: str  # ``bcube`` or ``fattree``
    time_ns: int  # of one synchronisation
    switches: int  # of its network


def epoch_unit(time_ns: int) -> tuple[str, int]:
    """Return the unit of a long time (up to days), and the unit's length in ns."""
    for unit, scale in (("days", 86_400 * 10**9), ("h", 3_600 * 10**9)):
        if time_ns >= 2 * scale:
            return unit, scale
    return unit_of(time_ns)


def epoch_text(epoch_ns: int) -> str:
    """Return an epoch time as text, in a unit up to days."""
    unit, scale = epoch_unit(epoch_ns)
    if scale <= 10**9:
        return format_ns(epoch_ns)
    value = epoch_ns / scale
    return f"{value:.4g} {unit}" if value < 10**4 else f"{value:,.0f} {unit}"


def share_text(share: float) -> str:
    """Return a share as a percentage."""
    return f"{share:.2%}" if share >= 0.001 or not share else f"{100 * share:.2g}%"
