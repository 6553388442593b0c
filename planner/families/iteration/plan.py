"""The ways of synchronising, and the plan of a whole iteration.

A way is an algorithm at one depth, or a mixture that each transfer chooses from by its size: large
transfers need bandwidth, small transfers few start-ups. The cost of a mixture is the minimum of
several lines, and so concave.

Guarantee: a mixture holds exactly the options that cost least for some size, for halves or
all-reduces. Complexity: quadratic in its options. Source: own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any, Literal, TypeAlias

from planner.families.caramel.problem import Plan as GradientPlan
from planner.model.costs import AffineCost, DepthCost, Line, TableCost, supporting_lines
from planner.solving.result import Infeasibility
from planner.solving.transfers import Transfer, undivided

MIXED = "mixed"
"""Each transfer takes the cheapest of the requested algorithms and depths."""

IN_ROUNDS = "bml_rounds"
"""BML's re-plan in rounds: next to `bml` after failures, for all-reduces only."""

MEASURED = "measured"
"""Collectives as measured, by the algorithm the library chose."""

BML = ("bml", IN_ROUNDS)
"""Algorithms that no library has."""

LINES = 6
"""Lines of a table used for bounds: more lines give a stronger and slower bound."""

_KINDS = ("push", "all_reduce")
"""Kinds of transfers with different costs."""


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """An algorithm on a cluster, at one depth.

    Attributes
    ----------
    algorithm : str
        One of `KNOWN`, or ``none`` for a single worker.
    steps : int
        Steps of an all-reduce of one part.
    half : AffineCost or TableCost
        Cost of a push by its size; and of a pull, unless `gather` is given.
    depth : int
        Number of parts in which everything is sent, each a step behind the one before.
    whole : AffineCost or TableCost, optional
        Cost of an all-reduce; by default both halves sequentially.
    shared : bool
        Whether a push leaves equal shares on all workers; else there are no sharded plans.
    gather : AffineCost or TableCost, optional
        Cost of a pull, if it differs from that of a push.
    messages_ns : tuple of int
        Parts of the start-ups of `half` and of an all-reduce that are further messages.
    """

    algorithm: str
    steps: int
    half: AffineCost | TableCost
    depth: int = 1
    whole: AffineCost | TableCost | None = None
    shared: bool = True
    gather: AffineCost | TableCost | None = None
    messages_ns: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.whole is None:
            assert isinstance(self.half, AffineCost)
            # Computed once: plans of thousands of transfers use it.
            both = AffineCost(2 * self.half.startup_ns, 2 * self.half.ns_per_byte)
            object.__setattr__(self, "whole", both)

    def refusal(self, mode: str) -> Infeasibility | None:
        """Return why there are no plans of a mode, or None."""
        if self.shared or mode == "replicated":
            return None
        reason = f"{self.algorithm} around the failures leaves workers without an equal share"
        if self.algorithm == IN_ROUNDS:
            reason = f"{self.algorithm} does not come apart into halves"
        return Infeasibility(reason, ("cluster.failed",))

    @property
    def all_reduce(self) -> AffineCost | TableCost:
        """Cost of an all-reduce by its size."""
        assert self.whole is not None
        return self.whole

    @property
    def pull(self) -> AffineCost | TableCost:
        """Cost of a pull by its size."""
        return self.half if self.gather is None else self.gather

    @property
    def halves(self) -> AffineCost | TableCost | DepthCost:
        """Lower bound on the cost of pushes and pulls."""
        return self.half if self.gather is None else _least_of((self.half, self.gather))

    def cost(self, kind: str) -> AffineCost | TableCost:
        """Return the cost of transfers of one kind by their size."""
        if kind == "all_reduce":
            return self.all_reduce
        return self.pull if kind == "pull" else self.half

    def changed(self, change: Callable[[Any], Any]) -> "Synchronisation":
        """Return the algorithm with each of its costs changed."""
        gather = None if self.gather is None else change(self.gather)
        return replace(self, half=change(self.half), whole=change(self.all_reduce), gather=gather)

    @property
    def options(self) -> tuple["Synchronisation", ...]:
        """Itself: the only option."""
        return (self,)


@dataclass(frozen=True, slots=True)
class MixedAlgorithms:
    """Several depths, or algorithms: each transfer takes the cheapest for its size.

    Attributes
    ----------
    algorithm : str
        Their algorithm, or `MIXED`.
    options : tuple of Synchronisation
        At least two.
    """

    algorithm: str
    options: tuple[Synchronisation, ...]

    @property
    def half(self) -> DepthCost:
        """Cost of a push, or a pull, by its size: the minimum over all options."""
        return _least_of(option.half for option in self.options)

    pull = halves = half

    @property
    def all_reduce(self) -> DepthCost:
        """Cost of an all-reduce by its size: the minimum over all options."""
        return _least_of(option.all_reduce for option in self.options)

    def cost(self, kind: str) -> DepthCost:
        """Return the cost of transfers of one kind by their size."""
        return self.all_reduce if kind == "all_reduce" else self.half

    def refusal(self, mode: str) -> Infeasibility | None:
        """Return why there are no plans of a mode, or None."""
        refusals = (option.refusal(mode) for option in self.options)
        return next((refusal for refusal in refusals if refusal), None)


Way: TypeAlias = Synchronisation | MixedAlgorithms
"""An algorithm at one depth, or several."""


def _least_of(costs: Iterable[AffineCost | TableCost]) -> DepthCost:
    """Return the minimum of several costs; its depths only number them."""
    return DepthCost(tuple(enumerate(costs, start=1)))


def lines_of(way: Way, kind: str) -> tuple[Line, ...]:
    """Return start-ups and times per byte of transfers of one kind; their minimum is the cost.

    A table gives the line through its ends, which is no bound: use `bounding_lines` for that.
    """
    costs = [affine(option.cost(kind)) for option in way.options]
    return tuple((Fraction(cost.startup_ns), cost.ns_per_byte) for cost in costs)


def affine(cost: AffineCost | TableCost) -> AffineCost:
    """Return an affine cost, or the line through the ends of a table."""
    if isinstance(cost, AffineCost):
        return cost
    (first, least), (last, most) = cost.points[0], cost.points[-1]
    return AffineCost(least, Fraction(most - least, last - first))


def bounding_lines(way: Way, kind: str, largest: int) -> tuple[tuple[Line, ...], ...]:
    """Return concave lower bounds on the cost of one kind of transfer, each the minimum of lines.

    The lines of kind "push" hold for pulls too. `largest`: bytes of the largest transfer.
    """
    if all(isinstance(option.cost(kind), AffineCost) for option in way.options):
        return (lines_of(way, kind),)
    cost = way.all_reduce if kind == "all_reduce" else way.halves
    lines = supporting_lines(cost, largest)
    return (
        tuple((lines[place * (len(lines) - 1) // (LINES - 1)],) for place in range(LINES))
        if (len(lines) > LINES)
        else tuple((line,) for line in lines)
    )


def fastest(way: Way, kind: str, size_bytes: int) -> Synchronisation:
    """Return the option that costs least for a transfer; of equally fast ones the first."""
    times = [startup + rate * size_bytes for startup, rate in lines_of(way, kind)]
    return way.options[times.index(min(times))]


@lru_cache(maxsize=128)
def mixture(algorithm: str, options: tuple[Synchronisation, ...], largest: int) -> Way:
    """Return the options that are cheapest for some size, as a mixture if there are several.

    Of options of equal cost the first counts. `largest`: bytes of the largest transfer.
    """
    needed = options
    for option in options[::-1]:
        rest = tuple(other for other in needed if other is not option)
        if rest and not any(_is_needed(option, rest, kind, largest) for kind in _KINDS):
            needed = rest
    return MixedAlgorithms(algorithm, needed) if len(needed) > 1 else needed[0]


def _is_needed(
    option: Synchronisation, rest: Iterable[Synchronisation], kind: str, largest: int
) -> bool:
    """Return whether an option costs less than all others for some size of one kind."""
    least, most, own = 1, largest, affine(option.cost(kind))
    for other in rest:
        cost = affine(other.cost(kind))
        later, slower = cost.startup_ns - own.startup_ns, own.ns_per_byte - cost.ns_per_byte
        if slower > 0:  # less below the size at which both cost the same
            most = min(most, ceil(later / slower) - 1)
        elif slower < 0:
            least = max(least, floor(later / slower) + 1)
        elif later <= 0:
            return False
    return least <= most


How = tuple[str, int]
"""An algorithm, and a depth."""

Mode = Literal["replicated", "sharded"]
"""Whether every worker updates all parameters, or its share of them."""

MODES: tuple[Mode, ...] = ("replicated", "sharded")
"""Every mode by the name requests use."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Transfers in the order in which they leave, and their algorithms.

    Attributes
    ----------
    algorithm : str
        Synchronisation algorithm (`planner.families.iteration.synchronisation`) of all transfers
        that name no other.
    transfers : tuple of Transfer
        In transfer order.
    backward_orders : tuple of tuple of int
        One order of the backward ops if all workers keep to it, else one per worker; a gradient is
        ready when the last worker has it.
    forward_order : tuple of int
        Order of the forward ops.
    barrier : bool
        Whether the forward pass waits for all transfers.
    late : bool
        Delayed release, as in `planner.caramel.Plan`.
    """

    algorithm: str
    transfers: tuple[Transfer, ...]
    backward_orders: tuple[tuple[int, ...], ...]
    forward_order: tuple[int, ...]
    barrier: bool = False
    late: bool = False

    def how(self, transfer: Transfer) -> How:
        """Return the algorithm and the depth of one of the plan's transfers."""
        return transfer.algorithm or self.algorithm, transfer.depth

    @property
    def used(self) -> tuple[How, ...]:
        """Algorithms and depths of the transfers, the one that carries most bytes first."""
        carried: dict[How, int] = {}
        for transfer in self.transfers:
            how = self.how(transfer)
            carried[how] = carried.get(how, 0) + transfer.size_bytes
        return tuple(sorted(carried, key=lambda how: -carried[how]))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Every algorithm of the plan, its own first."""
        return tuple(dict.fromkeys((self.algorithm, *(name for name, _ in self.used))))

    @property
    def way(self) -> str:
        """Name of the alternative that the plan belongs to: its algorithm, or `MIXED`."""
        return self.algorithm if len(self.algorithms) == 1 else MIXED

    @property
    def mode(self) -> Mode:
        """Whether every worker keeps the whole state of each parameter, or its share."""
        whole = all(transfer.kind == "all_reduce" for transfer in self.transfers)
        return "replicated" if whole else "sharded"

    @property
    def as_gradients(self) -> GradientPlan:
        """The same as a plan of gradient transfers, whatever kinds its transfers have."""
        orders = self.backward_orders, self.forward_order
        return GradientPlan(self.transfers, *orders, self.barrier, late=self.late)


def from_gradients(algorithm: str, plan: GradientPlan) -> Plan:
    """Return a plan of gradient transfers as a plan of a whole iteration, all at depth 1."""
    orders = plan.backward_orders, plan.forward_order
    return Plan(algorithm, undivided(plan.groups), *orders, plan.barrier, plan.late)
