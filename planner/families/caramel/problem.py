"""The problem and the plan of gradient transfers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from planner.families.caramel.activation_order import activation_order, backward_order
from planner.families.caramel.windows import Windows, drawn_orders, first_break, windows
from planner.model.contention import NO_CONTENTION, Interference, check_interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.network import AnyNetwork, ring_cost
from planner.model.profiles import Profile
from planner.model.validation import integer, set_integer, shown, total
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.targets import Target, check_summing
from planner.solving.transfers import Transfer

NetworkCost = AffineCost | TableCost | DepthCost

MAX_DRAWN_OPS = 2 * 10**6
"""Ops in all op orders drawn for one problem; more would take longer than planning does."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of Caramel's own method that run (the switches of its interface, §5).

    Attributes
    ----------
    serialization : bool
        Activation order, enforced on all workers.
    batching : bool
        Small parameters share transfers.
    scheduling : bool
        Transfers reach into the next forward pass.
    """

    serialization: bool = True
    batching: bool = True
    scheduling: bool = True


class OpOrder(NamedTuple):
    """Indices of the ops of each pass, in the order in which they run."""

    backward: tuple[int, ...]
    forward: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A dataflow graph, a network, and the options of the methods.

    Attributes
    ----------
    graph : Graph
        Computation of one iteration.
    cost : AffineCost, TableCost or DepthCost
        Cost of an all-reduce by its size.
    op_order : sequence of str, optional
        Names of all ops in the order in which they run; only the order within each pass counts.
        By default backward ops by activation order, forward ops in stable topological order. If
        given, every worker keeps to it under every method.
    workers : int
        Number of workers; each draws its own op order under methods that enforce none.
    servers : int, optional
        Parameter servers of the method `ps`; by default as many as workers.
    seed : int
        Seed of the drawn orders.
    threshold_bytes : int, optional
        Caramel's threshold between small and large parameters; by default from `cost`.
    stages : Stages
        Stages of Caramel's method to run.
    element_bytes : int
        Parameters are cut only at multiples of this.
    interference : Interference
        Contention between transfers and computation.
    target : Target, optional
        Export target whose rules plans keep to; by default only those of planner's own runtime.
    """

    graph: Graph
    cost: NetworkCost
    op_order: Sequence[str] | None = None
    workers: int = 8
    servers: int | None = None
    seed: int = 0
    threshold_bytes: int | None = None
    stages: Stages = field(default_factory=Stages)
    element_bytes: int = 1
    interference: Interference = NO_CONTENTION
    target: Target | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.graph, Graph):
            raise InvalidInputError("graph", f"expected a Graph, got {shown(self.graph)}")
        if not isinstance(self.cost, NetworkCost):
            raise InvalidInputError("network", f"expected a cost, got {shown(self.cost)}")
        check_interference(self.interference)
        check_summing(self.target)
        set_integer(self, "workers", minimum=1, maximum=2**16)
        set_integer(self, "seed")
        set_integer(self, "element_bytes", minimum=1)
        if self.servers is not None:
            set_integer(self, "servers", minimum=1, maximum=2**16)
            if self.servers > self.workers:
                raise InvalidInputError(
                    "servers",
                    f"expected at most as many as workers ({self.workers}), got {self.servers}",
                )
        if self.threshold_bytes is not None:
            set_integer(self, "threshold_bytes")
        if self.op_order is not None:
            object.__setattr__(self, "op_order", tuple(self.op_order))
            self._check_order(self.op_order)
        sizes = [parameter.size_bytes for parameter in self.graph.parameters]
        apart = sum(map(self.cost.cost_ns, sizes))
        together = self.cost.cost_ns(sum(sizes))
        computation = sum(op.duration_ns for op in self.graph.ops)
        what = "computation and four times the communication"  # leaves a margin for every method
        contention = self.interference
        slowest = contention.overlapped_ns(max(apart, together)) + len(sizes) * contention.delay_ns
        total(4 * slowest + computation, "network", what)

    @classmethod
    def from_profile(
        cls, profile: Profile, network: AnyNetwork, *, workers: int = 8, **options: Any
    ) -> "Problem":
        """Return the problem of a profiled model over a network.

        Parameters
        ----------
        profile : Profile
            Its graph, or its layers one after the other.
        network : AffineCost, TableCost, DepthCost or Nic
            Cost of an all-reduce, or NICs over which it runs along a ring.
        workers : int
            As above.
        **options
            As above; `element_bytes` and `op_order` default to those of the profile.
        """
        count = integer(workers, "workers", minimum=1, maximum=2**16)
        options.setdefault("element_bytes", profile.element_bytes)
        options.setdefault("op_order", profile.op_order)
        cost = ring_cost(network, count)
        return cls(profile.dataflow(), cost, workers=count, **options)

    @property
    def fixed_order(self) -> bool:
        """Whether all methods must keep to a given op order."""
        return self.op_order is not None

    @cached_property
    def activation(self) -> tuple[int, ...]:
        """Parameters in Caramel's activation order."""
        return self.graph.remembered("activation", lambda: activation_order(self.graph))

    @cached_property
    def order(self) -> OpOrder:
        """The op order that is priced: the given one, or by activation order."""
        graph = self.graph
        if self.op_order is None:
            backward = backward_order(graph, self.activation)
            return OpOrder(backward, graph.pass_order("forward"))
        indices = [graph.position[name] for name in self.op_order]
        return OpOrder(
            tuple(index for index in indices if graph.ops[index].phase == "backward"),
            tuple(index for index in indices if graph.ops[index].phase == "forward"),
        )

    @cached_property
    def mirrored(self) -> OpOrder:
        """The op order that completes gradients in the reverse order of their first reads.

        As far as the graph allows, transfer windows are nested under this order. A given op order
        replaces it.
        """
        if self.op_order is not None:
            return self.order
        graph, tails = self.graph, self.windows.tails
        last_read_first = sorted(range(len(tails)), key=lambda j: (tails[j], -j))
        backward = graph.remembered("mirrored", lambda: backward_order(graph, last_read_first))
        return OpOrder(backward, self.order.forward)

    def drawn_orders(self, deadline: Deadline) -> tuple[tuple[int, ...], ...]:
        """Return an order of the backward ops for each worker if no order is enforced.

        Raises `NotApplicableError` if there are too many workers and ops, or too little time.
        """
        if self.op_order is not None:
            return (self.order.backward,)
        if self.workers * len(self.graph.ops) > MAX_DRAWN_OPS:
            raise NotApplicableError(
                "workers",
                f"each would draw an order of {len(self.graph.ops)} ops: expected at most "
                f"{MAX_DRAWN_OPS} in all, got {self.workers} workers (an op_order keeps them to "
                "one order)",
            )
        graph, workers, seed = self.graph, self.workers, self.seed
        try:
            return graph.remembered(
                ("drawn_orders", workers, seed),
                lambda: drawn_orders(graph, workers, seed, deadline),
            )
        except TimeUpError:
            raise NotApplicableError(
                "time_limit_s",
                f"it passed before each of {workers} workers had drawn an order of the ops "
                "(an op_order keeps them to one order)",
            ) from None

    @cached_property
    def windows(self) -> Windows:
        """Transfer windows under `order`."""
        return windows(self.graph, *self.order)

    def _check_order(self, names: Sequence[str]) -> None:
        graph, path = self.graph, "op_order"
        for place, name in enumerate(names):
            if not isinstance(name, str) or name not in graph.position:
                raise InvalidInputError(f"{path}[{place}]", f"no op is called {shown(name)}")
        order = [graph.position[name] for name in names]
        broken = first_break(graph, order)
        if broken is not None:
            raise InvalidInputError(f"{path}[{broken[0]}]", broken[1])
        missing = set(graph.position).difference(names)
        if missing:
            first = min(missing, key=graph.position.__getitem__)
            raise InvalidInputError(path, f"{shown(first)} is missing")


Group = Transfer
"""Caramel's name for the gradients that travel in one transfer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Transfers in the order in which they leave, and the op orders they are planned for.

    Attributes
    ----------
    groups : tuple of Transfer
        In transfer order.
    backward_orders : tuple of tuple of int
        One order of the backward ops if all workers keep to it, else one per worker; a gradient is
        ready when the last worker has it.
    forward_order : tuple of int
        Order of the forward ops.
    barrier : bool
        Whether the forward pass waits for all transfers.
    traffic : Fraction
        Bytes sent per byte, relative to an all-reduce (more with parameter servers).
    late : bool
        Delayed release: a transfer starts when the first gradient of the next transfer is ready too
        (the last transfer: when all gradients are ready), and computation waits there for the
        previous transfer.
    """

    groups: tuple[Transfer, ...]
    backward_orders: tuple[tuple[int, ...], ...]
    forward_order: tuple[int, ...]
    barrier: bool = False
    traffic: Fraction = Fraction(1)
    late: bool = False

    @property
    def order(self) -> OpOrder:
        """The op order of the first worker."""
        return OpOrder(self.backward_orders[0], self.forward_order)
