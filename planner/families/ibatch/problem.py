"""The batching problem of iBatch, and its plans.

Problem: cut layers 0 … L-1 into contiguous batches, each one communication. Communications run one
after the other, and so do computations, in layer order. *Pull*: parameters arrive before the
batch's forward computation. *Push*: gradients leave after its backward computation, from the last
layer to the first. Push is pull under time reversal: both have the same optimum, and a plan read
backwards solves the other. Solvers use the pull form, as boundaries 0 = l_0 < … < l_B = L.
Source: Wang, Pi, Zhou, "Scalable Distributed DL Training: Batching Communication and Computation"
(iBatch), section "Problem Formulation".
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from planner.model.contention import NO_CONTENTION, Interference, check_interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.network import AnyNetwork, batch_cost
from planner.model.profiles import Profile
from planner.model.validation import check_count, integers, set_integer, shown, total
from planner.solving.deadline import Deadline
from planner.solving.result import Infeasibility
from planner.solving.targets import Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIRECTIONS = ("pull", "push")
OBJECTIVES = ("makespan", "eq4")

COLLECTIVES = {"pull": "all_gather", "push": "reduce_scatter"}
"""The collective that sends a batch, by direction."""

Direction: TypeAlias = Literal["pull", "push"]
"""Pull parameters before the forward pass, or push gradients after the backward computation."""


class Arc(NamedTuple):
    """One possible batch, with its times (ns): a plan is a path of these from 0 to L."""

    start: int
    stop: int
    communication: int
    computation: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Which layers to send together.

    The communication cost has one of two forms: `startup_ns` and `transfer_ns` (Ts and T of the
    paper), or `layer_bytes` and `cost`.

    Parameters
    ----------
    compute_ns : sequence of int, shape (L,)
        Computation time of each layer (C of the paper), forward for pull, backward for push.
    startup_ns : int, optional
        Start-up cost of one communication (Ts).
    transfer_ns : sequence of int, shape (L,), optional
        Transfer time of each layer (T).
    layer_bytes : sequence of int, shape (L,), optional
        Bytes to send of each layer.
    cost : AffineCost, TableCost, or DepthCost of affine costs, optional
        Time of one communication as a function of its size.
    direction : {"pull", "push"}
        Parameters before computation, or gradients after it. Lists are in layer order either way.
    objective : {"makespan", "eq4"}
        The time from the first start to the last end, or the paper's Eq. 4 under its Eq. 5.
    max_batch_bytes : int, optional
        Cap on the size of each batch; needs `layer_bytes`.
    interference : Interference
        Contention between communication and computation; needs `layer_bytes`, `cost`, and the
        objective makespan, since Eq. 4 does not model contention.
    target : Target, optional
        System whose rules plans obey; it must shard parameters, and the direction must be pull.
    spread_ns : sequence of int, shape (L,), optional
        Interquartile range of each layer's measured computation times.

    Raises
    ------
    InvalidInputError
        If an input is invalid, with the path of the field.
    """

    compute_ns: Sequence[int]
    startup_ns: int | None = None
    transfer_ns: Sequence[int] | None = None
    layer_bytes: Sequence[int] | None = None
    cost: AffineCost | TableCost | DepthCost | None = None
    direction: Direction = "pull"
    objective: Literal["makespan", "eq4"] = "makespan"
    max_batch_bytes: int | None = None
    interference: Interference = NO_CONTENTION
    target: Target | None = None
    spread_ns: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, known in (("direction", DIRECTIONS), ("objective", OBJECTIVES)):
            value = getattr(self, name)
            if value not in known:
                raise InvalidInputError(name, f"expected {' or '.join(known)}, got {shown(value)}")
        if self.cost is None:
            if self.startup_ns is None:
                raise InvalidInputError("startup_ns", "missing (or layer_bytes with cost_table)")
            if self.transfer_ns is None:
                raise InvalidInputError("transfer_ns", "missing (or layer_bytes with cost_table)")
            set_integer(self, "startup_ns")
        else:
            if not isinstance(self.cost, AffineCost | TableCost | DepthCost):
                raise InvalidInputError(
                    "cost", f"expected an AffineCost or a TableCost, got {shown(self.cost)}"
                )
            if isinstance(self.cost, DepthCost) and not self.cost.is_concave:
                raise InvalidInputError("cost", "expected affine costs, of which the least counts")
            for name in ("startup_ns", "transfer_ns"):
                if getattr(self, name) is not None:
                    raise InvalidInputError(name, "not together with cost_table")
            if self.layer_bytes is None:
                raise InvalidInputError("layer_bytes", "missing: cost_table needs it")
        lists = {
            name: integers(getattr(self, name), name)
            for name in ("transfer_ns", "layer_bytes", "compute_ns", "spread_ns")
            if name == "compute_ns" or getattr(self, name) is not None
        }
        first = next(iter(lists))
        for name, values in lists.items():
            check_count(values, len(lists[first]), name, first)
            object.__setattr__(self, name, values)
        if self.max_batch_bytes is not None:
            if self.layer_bytes is None:
                raise InvalidInputError("layer_bytes", "missing: max_batch_bytes needs it")
            set_integer(self, "max_batch_bytes", minimum=1)
        check_interference(self.interference)
        if not self.interference.is_none:
            if self.cost is None:
                raise InvalidInputError("cost", "missing: interference needs it")
            if self.objective == "eq4":
                raise InvalidInputError("objective", "Eq. 4 knows no interference: makespan does")
        self._check_target()
        self._check_totals()

    def _check_target(self) -> None:
        if self.target is None:
            return
        title = self.target.title
        if not self.target.sharded:
            raise InvalidInputError(
                "target",
                f"{title} pulls no parameters: expected problem caramel or iteration",
            )
        if self.direction == "push":
            raise InvalidInputError(
                "target",
                f"{title} scatters gradients in the units that it gathers: expected direction "
                f"pull, or problem fsdp (planner plan --for {self.target.name}), which plans both",
            )
        if self.objective != "makespan":
            raise InvalidInputError("objective", f"expected makespan with target {title}")

    def _check_totals(self) -> None:
        if self.layer_bytes is not None:
            total(sum(self.layer_bytes), "layer_bytes", "the sum of the sizes")
        computation = total(sum(self.compute_ns), "compute_ns", "the sum of the times")
        if self.transfer_ns is not None and self.startup_ns is not None:
            total(sum(self.transfer_ns), "transfer_ns", "the sum of the times")
            serial = len(self.compute_ns) * self.startup_ns + sum(self.transfer_ns) + computation
            total(serial, "startup_ns", "the time of all start-ups, transfers and computations")
        elif self.cost is not None and self.layer_bytes is not None:
            dearest = self.cost.cost_ns(sum(self.layer_bytes))
            if isinstance(self.cost, TableCost):
                dearest = max(dearest, *(time for _, time in self.cost.points))
            dearest = self.interference.overlapped_ns(dearest)
            serial = (len(self.compute_ns) + 1) * dearest + computation
            total(serial, "cost_table", "the time of as many communications as layers")

    @classmethod
    def from_profile(
        cls,
        profile: Profile,
        network: AnyNetwork,
        *,
        direction: Direction = "pull",
        **options: Any,
    ) -> "Problem":
        """Return the problem of a profiled model over a network.

        Parameters
        ----------
        profile : Profile
            Its chain (see `Profile.chain`) gives the layers.
        network : AffineCost, TableCost or Nic
            Time of one communication, or the NICs it uses.
        direction, **options
            As in `Problem`.
        """
        layers = profile.chain().layers
        pull = direction == "pull"
        spreads = [
            layer.forward_spread_ns if pull else layer.backward_spread_ns for layer in layers
        ]
        return cls(
            compute_ns=tuple(layer.forward_ns if pull else layer.backward_ns for layer in layers),
            layer_bytes=tuple(
                layer.parameter_bytes if pull else layer.pushed_bytes for layer in layers
            ),
            cost=batch_cost(network),
            direction=direction,
            spread_ns=tuple(known or 0 for known in spreads) if any(spreads) else None,
            **options,
        )

    def plan(self, boundaries: Sequence[int]) -> "Plan":
        """Return the plan with batches between consecutive `boundaries` (0, l_1, …, L)."""
        batches = tuple(pairwise(boundaries))
        return Plan(batches if self.direction == "pull" else batches[::-1])

    def every_plan(self) -> Iterator["Plan"]:
        """Yield every plan within the cap, fewest batches first: 2^(L-1) without a cap."""
        for cuts in range(self.layers):
            for inner in combinations(range(1, self.layers), cuts):
                boundaries = (0, *inner, self.layers)
                if all(stop <= self.reach(start) for start, stop in pairwise(boundaries)):
                    yield self.plan(boundaries)

    def arcs(self, deadline: Deadline) -> list[Arc]:
        """Return every batch within the cap, O(L²); raise `TimeUpError` at the deadline."""
        computed, arcs = self.compute_prefix, []
        for start in range(self.layers):
            deadline.check()
            arcs += [
                Arc(start, stop, self.transfer_time(start, stop), computed[stop] - computed[start])
                for stop in range(start + 1, self.reach(start) + 1)
            ]
        return arcs

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.compute_ns)

    @cached_property
    def compute_prefix(self) -> list[int]:
        """Prefix sums PC of computation times; L+1 values."""
        return list(accumulate(self.compute_ns, initial=0))

    @cached_property
    def size_prefix(self) -> list[int] | None:
        """Prefix sums of sizes, if known; L+1 values."""
        if self.layer_bytes is None:
            return None
        return list(accumulate(self.layer_bytes, initial=0))

    @cached_property
    def transfer_prefix(self) -> list[int] | None:
        """Prefix sums PT such that batch (a, b] takes ``transfer_startup_ns + PT[b] - PT[a]``.

        None if costs do not add up: those of a table, or of a rate whose products with layer sizes
        are not whole nanoseconds (rounded up once per transfer).
        """
        if self.transfer_ns is not None:
            return list(accumulate(self.transfer_ns, initial=0))
        if not isinstance(self.cost, AffineCost) or self.layer_bytes is None:
            return None
        rate = self.cost.ns_per_byte
        if any(size * rate.numerator % rate.denominator for size in self.layer_bytes):
            return None
        return list(
            accumulate(
                (size * rate.numerator // rate.denominator for size in self.layer_bytes), initial=0
            )
        )

    @property
    def transfer_startup_ns(self) -> int:
        """Start-up cost Ts of one communication; of a table, the start-up of its cheapest point."""
        if self.startup_ns is not None:
            return self.startup_ns
        assert self.cost is not None
        return self.cost.startup_ns

    @property
    def is_monotone(self) -> bool:
        """Whether a larger batch never communicates faster."""
        return self.cost is None or self.cost.is_monotone

    def transfer_time(self, start: int, stop: int) -> int:
        """Return the time to communicate layers start … stop-1 together, start-up included (ns)."""
        prefix = self.transfer_prefix
        if prefix is not None:
            return self.transfer_startup_ns + prefix[stop] - prefix[start]
        assert self.cost is not None
        assert self.size_prefix is not None
        return self.cost.cost_ns(self.size_prefix[stop] - self.size_prefix[start])

    def transfer_times(self, start: int, stop: int) -> "NDArray[np.int64]":
        """Return the communication times of batches start … b-1 for b = start+1 … stop (ns)."""
        import numpy as np

        if self.transfer_prefix is not None:
            ends = np.array(self.transfer_prefix[start + 1 : stop + 1], dtype=np.int64)
            return self.transfer_startup_ns + (ends - self.transfer_prefix[start])
        assert self.cost is not None
        assert self.size_prefix is not None
        ends = np.array(self.size_prefix[start + 1 : stop + 1], dtype=np.int64)
        return self.cost.costs_ns(ends - self.size_prefix[start])

    def reach(self, start: int) -> int:
        """Return the largest `stop` such that layers start … stop-1 respect the cap."""
        if self.max_batch_bytes is None or self.size_prefix is None:
            return self.layers
        limit = self.size_prefix[start] + self.max_batch_bytes
        return bisect_right(self.size_prefix, limit, start) - 1

    def too_large(self) -> Infeasibility | None:
        """Return an infeasibility if single layers exceed the cap, otherwise None."""
        cap = self.max_batch_bytes
        if cap is None or self.layer_bytes is None or max(self.layer_bytes) <= cap:
            return None
        layers = tuple(i for i, size in enumerate(self.layer_bytes) if size > cap)
        largest = max(self.layer_bytes)
        return Infeasibility(
            f"layer {layers[0]} has {self.layer_bytes[layers[0]]} bytes, more than "
            f"max_batch_bytes = {cap}; the smallest cap that fits every layer is {largest}",
            ("max_batch_bytes",),
            layers,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Batches in transfer order.

    Attributes
    ----------
    batches : tuple of (int, int)
        Half-open ranges of layers: ``(a, b)`` holds layers a … b-1. For push the batch with the
        last layer comes first.
    """

    batches: tuple[tuple[int, int], ...]
