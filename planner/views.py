"""What there is to show of a plan that is no timeline: data for whoever draws or writes it.

Readers of answers return them, and pictures and texts are made of them; neither needs the other.
"""

from dataclasses import dataclass

from planner.units import format_ns, unit_of

__all__ = [
    "MAX_CELLS",
    "PHASES",
    "Compared",
    "ConstantsRegret",
    "GroupPoint",
    "Groups",
    "HotSpots",
    "LayerTime",
    "Point",
    "Pulls",
    "Range",
    "Scaling",
    "epoch_text",
    "epoch_unit",
    "share_text",
]

PHASES = ("forward", "backward", "update", "communication", "weight reading")
"""What the time of a layer is spent on; the first three are computation."""


MAX_CELLS = 32
"""So many turns and nodes are shown at most, the first ones."""


Pulls = tuple[tuple[int, ...], ...]


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
class ConstantsRegret:
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
    regret : ConstantsRegret, optional
        What is lost if all constants are off.
    """

    layers: tuple[LayerTime, ...]
    best: Point
    ranking: tuple[Point, ...]
    landscape: tuple[Point, ...] = ()
    front: tuple[Point, ...] = ()
    ranges: tuple[Range, ...] = ()
    regret: ConstantsRegret | None = None


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """A group size with what it costs.

    Attributes
    ----------
    group_size : int
        Iterations scheduled at once.
    overhead : float
        Share of scheduling in the time of an iteration.
    group_time_ns : int
        Time of a group.
    """

    group_size: int
    overhead: float
    group_time_ns: int


@dataclass(frozen=True, slots=True)
class Groups:
    """A chosen group size among others, and the limits.

    Attributes
    ----------
    points : tuple of GroupPoint
        Sizes in order, the chosen one among them.
    chosen : GroupPoint
        The plan.
    max_overhead : float
        Limit on the overhead.
    max_group_ns : int or None
        Limit on the time of a group, if there is one.
    """

    points: tuple[GroupPoint, ...]
    chosen: GroupPoint
    max_overhead: float
    max_group_ns: int | None = None

    def breaks(self, point: GroupPoint) -> str:
        """Return which limit a size breaks, in words; nothing if it breaks none."""
        if point.overhead > self.max_overhead:
            return "too much overhead"
        if self.max_group_ns is not None and point.group_time_ns > self.max_group_ns:
            return "too long a group"
        return ""


@dataclass(frozen=True, slots=True)
class HotSpots:
    """A synchronisation.

    Attributes
    ----------
    nodes : int
        Number of nodes.
    method : str
        The one that was planned.
    times_ns : tuple of (str, int)
        What each method takes.
    maps : tuple of (str, tuple of tuple of int, shape (turns, nodes))
        For some orders, the planned one first, how many others pull gradients from each node in
        each turn; the first turns and nodes. Empty for plans through a driver, and without others.
    """

    nodes: int
    method: str
    times_ns: tuple[tuple[str, int], ...]
    maps: tuple[tuple[str, Pulls], ...] = ()

    @property
    def ranking(self) -> tuple[tuple[str, int], ...]:
        """The methods, the fastest first."""
        return tuple(sorted(self.times_ns, key=lambda pair: pair[1]))


@dataclass(frozen=True, slots=True)
class Compared:
    """One algorithm in a comparison.

    Attributes
    ----------
    name : str
        Its name.
    topology : str
        ``bcube`` or ``fattree``.
    time_ns : int
        Time of one synchronisation.
    switches : int
        Switches of the network it runs on.
    """

    name: str
    topology: str
    time_ns: int
    switches: int


def epoch_unit(time_ns: int) -> tuple[str, int]:
    """Return the unit in which people say a time, which may be days, and its length in ns."""
    for unit, scale in (("days", 86_400 * 10**9), ("h", 3_600 * 10**9)):
        if time_ns >= 2 * scale:
            return unit, scale
    return unit_of(time_ns)


def epoch_text(epoch_ns: int) -> str:
    """Return the time of an epoch, which may be days, as a person reads it."""
    unit, scale = epoch_unit(epoch_ns)
    if scale <= 10**9:
        return format_ns(epoch_ns)
    value = epoch_ns / scale
    return f"{value:.4g} {unit}" if value < 10**4 else f"{value:,.0f} {unit}"


def share_text(share: float) -> str:
    """Return a share as a person reads it."""
    return f"{share:.2%}" if share >= 0.001 or not share else f"{100 * share:.2g}%"
