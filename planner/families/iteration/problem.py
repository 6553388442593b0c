"""The problem of a whole iteration: a model, a cluster, and the options to consider."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from planner.families import caramel
from planner.families.iteration.memory import Footprint
from planner.families.iteration.plan import (
    MEASURED,
    MIXED,
    MODES,
    How,
    Mode,
    Synchronisation,
    Way,
    mixture,
)
from planner.families.iteration.synchronisation import (
    ALGORITHMS,
    KNOWN,
    cut_off,
    least,
    synchronisations,
)
from planner.model.clusters import Cluster
from planner.model.contention import Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.model.layers import graph_of_layers
from planner.model.profiles import Profile
from planner.model.validation import MAX_VALUE, exact, integers, one_of, set_integer, shown, total
from planner.solving.targets import Target, check_summing
from planner.solving.transfers import Kind


@dataclass(frozen=True)
class Problem:
    """One training iteration of a model on a cluster.

    Attributes
    ----------
    graph : Graph
        Computation of one iteration on one worker; parameter sizes are the bytes sent for their
        gradients.
    cluster : Cluster
        The workers and their network.
    pull_bytes : sequence of int, optional
        Bytes of each parameter itself, if they differ from those of its gradient.
    footprint : Footprint, optional
        Memory model of a worker; None if memory does not bind.
    max_transfer_bytes : int, optional
        Largest transfer.
    algorithms : sequence of str
        Synchronisation algorithms to consider.
    modes : sequence of str
        Modes to consider.
    op_order : sequence of str, optional
        As in `planner.caramel.Problem`.
    element_bytes : int
        Parameters are cut only at multiples of this.
    seed : int
        Seed of the op orders drawn by methods that enforce none.
    target : Target, optional
        Export target whose rules plans keep to, one that sums gradients; by default only those of
        planner's own runtime.
    """

    graph: Graph
    cluster: Cluster
    pull_bytes: Sequence[int] | None = None
    footprint: Footprint | None = None
    max_transfer_bytes: int | None = None
    algorithms: Sequence[str] = ALGORITHMS
    modes: Sequence[Mode] = MODES
    op_order: Sequence[str] | None = None
    element_bytes: int = 1
    seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.cluster, Cluster):
            raise InvalidInputError("cluster", f"expected a Cluster, got {shown(self.cluster)}")
        if self.footprint is not None and not isinstance(self.footprint, Footprint):
            raise InvalidInputError(
                "footprint", f"expected a Footprint, got {shown(self.footprint)}"
            )
        if self.max_transfer_bytes is not None:
            set_integer(self, "max_transfer_bytes", minimum=1)
        set_integer(self, "element_bytes", minimum=1)
        set_integer(self, "seed")
        check_summing(self.target)
        self._check_algorithms()
        if isinstance(self.graph, Graph):  # else the next check reports it
            self._check_times(self.pushed, "cluster")
        _ = self.base  # checks graph, op order, element size and sums
        if self.pull_bytes is not None:
            sizes = integers(self.pull_bytes, "pull_bytes", minimum=1)
            if len(sizes) != len(self.graph.parameters):
                raise InvalidInputError(
                    "pull_bytes",
                    f"expected {len(self.graph.parameters)}, one a parameter, got {len(sizes)}",
                )
            total(sum(sizes), "pull_bytes", "the sum of the sizes")
            object.__setattr__(self, "pull_bytes", sizes)
            self._check_times(sizes, "pull_bytes")
        self._check_memory()

    def _check_memory(self) -> None:
        """Check that the memory of a worker is in range, whatever is sent at once."""
        if self.footprint is None:
            return
        largest = max(sum(self.pushed), sum(self.pulled))
        for mode in self.modes:
            needed = self.footprint.static_bytes(mode, self.cluster.workers) + largest
            if needed > MAX_VALUE:
                raise InvalidInputError(
                    "footprint",
                    "expected parameters, gradients, optimiser state, activations and a transfer "
                    f"of at most {MAX_VALUE} bytes on a worker, got {shown(needed)}",
                )

    def _check_times(self, sizes: Sequence[int], path: str) -> None:
        """Check that no method's sum of times is too large, whatever it sends at once."""
        computation = sum(op.duration_ns for op in self.graph.ops)
        what = "the computation and the time of four times as many transfers as parameters"
        for option in self.single:
            for cost in (option.all_reduce, option.half, option.pull):
                dearest = cost.cost_ns(sum(sizes))
                if isinstance(cost, TableCost):
                    dearest = max(dearest, *(time for _, time in cost.points))
                dearest = self.interference.overlapped_ns(dearest)
                total(4 * (len(sizes) + 1) * dearest + computation, path, what)

    def _check_algorithms(self) -> None:
        for field, known in (("algorithms", KNOWN), ("modes", MODES)):
            names = getattr(self, field)
            if isinstance(names, str) or not names:
                raise InvalidInputError(field, "expected at least one name")
            for place, name in enumerate(names):
                one_of(name, known, f"{field}[{place}]")
            object.__setattr__(self, field, tuple(dict.fromkeys(names)))
        measured = self.cluster.network is not None and not self.cluster.failed
        if measured and self.algorithms == ALGORITHMS:
            object.__setattr__(self, "algorithms", (MEASURED,))
        if not self.single and cut_off(self.cluster) is None:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self._usable[1])
            reasons = reasons or f"{MIXED} chooses among other algorithms"
            raise InvalidInputError("algorithms", f"none can be used on the cluster: {reasons}")

    @classmethod
    def from_profile(
        cls,
        profile: Profile,
        cluster: Cluster,
        *,
        computation: Fraction | int = 1,
        optimiser: Fraction | int = 0,
        activation_bytes: int | None = None,
        ignore_memory: bool = False,
        **options: Any,
    ) -> "Problem":
        """Return the problem of a profiled model.

        Parameters
        ----------
        profile : Profile
            The model. If its layers' gradients are sent in other sizes than their parameters have,
            the layers are planned, even if there is a graph.
        cluster : Cluster
            The cluster to run on.
        computation : Fraction or int
            Factor on all computation times: 1/50 for workers that compute 50 times as fast as those
            the profile was measured on.
        optimiser : Fraction or int
            Bytes of optimiser state for each byte of parameters: 1 for momentum, 2 for Adam.
        activation_bytes : int, optional
            Memory for the activations of an iteration, in place of the profile's estimate.
        ignore_memory : bool
            Plan as if memory did not bind.
        **options
            As above; `element_bytes` and `op_order` default to those of the profile.
        """
        options.setdefault("element_bytes", profile.element_bytes)
        factor = exact(computation, "computation_scale", positive=True)
        graph, pulled = profile.dataflow(), None
        sent = [layer for layer in profile.layers if layer.pushed_bytes]
        if any(layer.pushed_bytes != layer.parameter_bytes for layer in sent):
            graph = graph_of_layers(profile.layers, pairwise(range(len(profile.layers))))
            pulled = tuple(max(layer.parameter_bytes, 1) for layer in sent)
        else:
            options.setdefault("op_order", profile.op_order)
        footprint = Footprint.of(profile, exact(optimiser, "optimiser_ratio"), activation_bytes)
        try:
            graph = graph.scaled(factor)
        except InvalidInputError as error:
            raise InvalidInputError("computation_scale", str(error)) from None
        try:
            return cls(
                graph,
                cluster,
                pull_bytes=pulled,
                footprint=None if ignore_memory else footprint,
                **options,
            )
        except InvalidInputError as error:
            if error.path != "footprint":
                raise
            raise InvalidInputError("profile", error.message) from None

    @cached_property
    def _usable(self) -> tuple[tuple[Synchronisation, ...], tuple[tuple[str, str], ...]]:
        try:
            usable = synchronisations(self.cluster, self.algorithms)
            _ = [option.all_reduce for option in usable[0]]
        except InvalidInputError as error:  # a transfer takes too long
            raise InvalidInputError("cluster.nic", f"{error.path}: {error.message}") from None
        return usable

    @property
    def single(self) -> tuple[Synchronisation, ...]:
        """Algorithms the cluster allows, at every depth, with their costs."""
        return self._usable[0]

    @cached_property
    def by_name(self) -> Mapping[str, Way]:
        """Algorithms the cluster allows by name, with the depths that cost least for some size."""
        largest = max(sum(self.pushed), sum(self.pulled))
        names = dict.fromkeys(option.algorithm for option in self.single)
        return {
            name: mixture(
                name, tuple(option for option in self.single if option.algorithm == name), largest
            )
            for name in names
        }

    @cached_property
    def cheapest(self) -> tuple[Way, ...]:
        """The ways that cost least for some size: one mixture, if algorithms may be mixed."""
        if MIXED in self.algorithms and self.single and MEASURED not in self.by_name:
            return (mixture(MIXED, self.single, max(sum(self.pushed), sum(self.pulled))),)
        return tuple(self.by_name.values())

    @property
    def _mixed(self) -> bool:
        """Whether several algorithms are mixed; measured costs are not mixed with assumed ones."""
        several = len({option.algorithm for way in self.cheapest for option in way.options}) > 1
        return MIXED in self.algorithms and several and MEASURED not in self.by_name

    @property
    def options(self) -> tuple[Way, ...]:
        """Algorithms the cluster allows, and their mixture."""
        mixed = self.cheapest if self._mixed else ()
        return (*self.by_name.values(), *mixed)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Algorithms that cannot be used, with the reason."""
        if MIXED not in self.algorithms or self._mixed or not self.single:
            return self._usable[1]
        if MEASURED in self.by_name:
            return (
                *self._usable[1],
                (MIXED, "what was measured is not mixed with what is assumed"),
            )
        name = self.cheapest[0].options[0].algorithm
        return (*self._usable[1], (MIXED, f"{name} costs least for transfers of every size"))

    @cached_property
    def costs(self) -> Mapping[How, Synchronisation]:
        """Cost of transfers by each algorithm at each depth."""
        return {(option.algorithm, option.depth): option for option in self.single}

    @cached_property
    def gradients(self) -> Mapping[str, caramel.Problem]:
        """The problem of gradient transfers alone, under each of `options`."""
        return {option.algorithm: self._transfers(option.all_reduce) for option in self.options}

    def _transfers(self, cost: AffineCost | TableCost | DepthCost) -> caramel.Problem:
        return caramel.Problem(
            graph=self.graph,
            cost=cost,
            op_order=self.op_order,
            workers=self.cluster.workers,
            seed=self.seed,
            element_bytes=self.element_bytes,
            interference=self.interference,
        )

    @property
    def interference(self) -> Interference:
        """Contention between an all-reduce and computation."""
        return self.cluster.interference

    @cached_property
    def _half(self) -> Interference:
        return self.interference.half

    def contention(self, kind: Kind) -> Interference:
        """Return the contention between a transfer of one kind and computation."""
        return self.interference if kind == "all_reduce" else self._half

    @cached_property
    def base(self) -> caramel.Problem:
        """The problem without start-ups on the best possible network: for op orders and windows."""
        return self._transfers(least(self.cluster).all_reduce)

    @cached_property
    def pushed(self) -> tuple[int, ...]:
        """Bytes sent for the gradient of each parameter."""
        return tuple(parameter.size_bytes for parameter in self.graph.parameters)

    @cached_property
    def pulled(self) -> tuple[int, ...]:
        """Bytes of each parameter."""
        return self.pushed if self.pull_bytes is None else tuple(self.pull_bytes)

    def transfer_limit(self, mode: Mode) -> int | None:
        """Return the largest transfer within cap and memory limit (bytes); None if unlimited.

        Below `element_bytes` there is no plan, unless all parameters are smaller.
        """
        memory = self.cluster.worker_memory_bytes
        left = None
        if memory is not None and self.footprint is not None:
            left = memory - self.footprint.static_bytes(mode, self.cluster.workers)
        return min(
            (limit for limit in (left, self.max_transfer_bytes) if limit is not None), default=None
        )

    def binding(self, mode: Mode) -> str:
        """Return the name of the limit on transfers that binds: the cap, or the memory."""
        capped = self.transfer_limit(mode) == self.max_transfer_bytes
        return "max_transfer_bytes" if capped else "memory_bytes"
