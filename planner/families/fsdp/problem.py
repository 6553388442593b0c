"""The problem of fully sharded training: what to gather together, when, and what to keep.

Every rank stores a share of all parameters. Layers 0 … L-1 are cut into contiguous *units*. A
unit's parameters are gathered before its forward computation, and kept, or freed and gathered again
before its backward computation; then its gradients are scattered. The computation of a unit in one
pass is a *step*: steps 0 … U-1 are forward, in order; steps U … 2U-1 are backward, from unit U-1 to
0. Time 0 is the start of the forward pass, after the optimiser's step; the iteration ends when
everything has been computed and scattered.

Source: Rajbhandari et al., "ZeRO", SC 2020; Zhao et al., "PyTorch FSDP", VLDB 2023; rules of
``torch/distributed/fsdp/_fully_shard``, torch 2.13.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from planner.model.costs import TransferCost
from planner.model.errors import InvalidInputError
from planner.model.validation import (
    check_count,
    inside,
    integer,
    integers,
    one_of,
    set_exact,
    set_integer,
    shown,
    total,
)

Channels: TypeAlias = Literal["one", "two", "shared"]
"""Channels of gathers and reduce-scatters.

"one": one communicator, one transfer after the other. "two": two independent channels. "shared":
two channels, each half as fast while both are busy.
"""

CHANNELS: tuple[Channels, ...] = get_args(Channels)


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Number of ranks over which parameters are sharded, and the cost of their collectives.

    Parameters
    ----------
    shards : int
        Ranks that together hold one replica of all parameters.
    replicas : int
        Number of replicas; several mean hybrid sharding.
    all_gather, reduce_scatter : AffineCost, TableCost or DepthCost
        Time of the collective among the ranks of a replica, by all bytes of a unit.
    all_reduce : AffineCost, TableCost or DepthCost, optional
        Time of the sum over replicas, by the bytes of a rank's share of a unit; required exactly
        with several replicas. It follows the reduce-scatter on a channel of its own.
    own_links : bool
        Whether the sum over replicas has links of its own, as where shards are those of a host.
        Otherwise it shares links, unless the channels are independent ("two").
    """

    shards: int
    replicas: int = 1
    all_gather: TransferCost
    reduce_scatter: TransferCost
    all_reduce: TransferCost | None = None
    own_links: bool = True

    def __post_init__(self) -> None:
        set_integer(self, "shards", minimum=1)
        set_integer(self, "replicas", minimum=1)
        for name in ("all_gather", "reduce_scatter", "all_reduce"):
            value = getattr(self, name)
            if name == "all_reduce" and (value is None) != (self.replicas == 1):
                expected = "none with one replica" if value is not None else "missing: replicas"
                raise InvalidInputError(name, expected)
            if value is not None and not isinstance(value, TransferCost):
                raise InvalidInputError(name, f"expected a cost, got {shown(value)}")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.shards * self.replicas

    def gather_ns(self, size: int) -> int:
        """Return the time to gather `size` bytes of parameters."""
        return self.all_gather.cost_ns(size)

    def reduce_ns(self, size: int) -> int:
        """Return the time to reduce-scatter `size` bytes of gradients; 0 for frozen units."""
        return self.reduce_scatter.cost_ns(size) if size else 0

    def sum_ns(self, share: int) -> int:
        """Return the time to sum a rank's share of gradients over replicas."""
        return 0 if self.all_reduce is None or not share else self.all_reduce.cost_ns(share)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A chain of layers whose parameters are sharded.

    Parameters
    ----------
    forward_ns, backward_ns : sequence of int, shape (L,)
        Computation time of each layer.
    parameter_bytes : sequence of int, shape (L,)
        Bytes to gather of each layer; merge a layer without parameters into a neighbour.
    gradient_bytes : sequence of int, shape (L,), optional
        Bytes to scatter of each layer; by default `parameter_bytes`. 0 for a frozen layer.
    activation_bytes : sequence of int, shape (L,), optional
        Bytes that each layer saves from its forward to its backward computation; by default 0.
    checkpoint_bytes : sequence of int, shape (L,), optional
        Bytes that each layer saves if it is recomputed, such as its input; by default no layer can
        be recomputed.
    meshes : sequence of Mesh
        Meshes to choose from; all with the same number of ranks.
    channels : {"one", "two", "shared"}
        See `Channels`.
    memory_bytes : int, optional
        Memory of a rank; by default unlimited.
    optimiser : Fraction
        Bytes that a rank stores for each byte of its share, in addition to that byte: optimiser
        state, and parameters in a higher precision.
    tied : sequence of (int, int)
        Pairs of layers that share a parameter, and so must be in one unit.
    blocks : sequence of int, optional
        First layers of the blocks wrapped by default, such as transformer blocks; by default all.
    element_bytes : int
        Bytes of one gathered parameter: some rules count elements.
    names : sequence of str, shape (L,), optional
        Names of the layers.
    """

    forward_ns: Sequence[int]
    backward_ns: Sequence[int]
    parameter_bytes: Sequence[int]
    meshes: Sequence[Mesh]
    gradient_bytes: Sequence[int] | None = None
    activation_bytes: Sequence[int] | None = None
    checkpoint_bytes: Sequence[int] | None = None
    channels: Channels = "one"
    memory_bytes: int | None = None
    optimiser: Fraction = Fraction(0)
    tied: Sequence[tuple[int, int]] = ()
    blocks: Sequence[int] | None = None
    element_bytes: int = 4
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        one_of(self.channels, CHANNELS, "channels")
        for name in (
            *("forward_ns", "backward_ns", "parameter_bytes", "gradient_bytes"),
            *("activation_bytes", "checkpoint_bytes"),
        ):
            values = getattr(self, name)
            if values is None:
                continue
            values = integers(values, name, minimum=int(name == "parameter_bytes"))
            check_count(values, len(self.forward_ns), name, "forward_ns")
            object.__setattr__(self, name, values)
            total(sum(values), name, "the sum")
        if self.memory_bytes is not None:
            set_integer(self, "memory_bytes")
        set_exact(self, "optimiser")
        set_integer(self, "element_bytes", minimum=1)
        if self.names is not None:
            check_count(self.names, self.layers, "names", "forward_ns")
            object.__setattr__(self, "names", tuple(self.names))
        self._check_meshes()
        self._check_memory()
        self._check_tied()
        self._check_checkpoints()
        self._check_blocks()

    def _check_meshes(self) -> None:
        meshes = tuple(self.meshes)
        object.__setattr__(self, "meshes", meshes)
        if not meshes:
            raise InvalidInputError("meshes", "expected at least one element, got an empty array")
        whole = 2 * sum(self.parameter_bytes) + sum(self.gradients)
        for place, mesh in enumerate(meshes):
            if mesh.ranks != meshes[0].ranks:
                raise InvalidInputError(
                    f"meshes[{place}]",
                    f"expected {meshes[0].ranks} ranks as in meshes[0], got {mesh.shards} x "
                    f"{mesh.replicas}",
                )
            with inside(f"meshes[{place}]"):
                dearest = max(mesh.gather_ns(whole), mesh.reduce_ns(whole) + mesh.sum_ns(whole))
                longest = 3 * self.layers * dearest
                longest += 2 * sum(self.forward_ns) + sum(self.backward_ns)
                total(longest, "all_gather", "the time of all computations and transfers")

    def _check_memory(self) -> None:
        """Reject sizes with which the memory of a rank could exceed 63 bits."""
        state = max(self.state_bytes(mesh.shards) for mesh in self.meshes)
        moving = 2 * sum(self.parameter_bytes) + 3 * sum(self.gradients) + sum(self.activations)
        total(state + moving, "parameter_bytes", "the memory of a rank, in bytes,")

    def _check_tied(self) -> None:
        pairs = []
        for place, pair in enumerate(self.tied):
            path = f"tied[{place}]"
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InvalidInputError(path, f"expected two layers, got {shown(pair)}")
            first, last = sorted(
                integer(layer, f"{path}[{k}]", 0, self.layers - 1) for k, layer in enumerate(pair)
            )
            pairs.append((first, last))
        object.__setattr__(self, "tied", tuple(pairs))

    def _check_checkpoints(self) -> None:
        for layer, size in enumerate(self.checkpoint_bytes or ()):
            if size > self.activations[layer]:
                raise InvalidInputError(
                    f"checkpoint_bytes[{layer}]",
                    f"expected at most activation_bytes[{layer}] ({self.activations[layer]}), got "
                    f"{size}",
                )

    def _check_blocks(self) -> None:
        if self.blocks is None:
            return
        blocks = integers(self.blocks, "blocks")
        for place, start in enumerate(blocks):
            least = blocks[place - 1] + 1 if place else 0
            integer(start, f"blocks[{place}]", least, self.layers - 1 if place else 0)
        object.__setattr__(self, "blocks", blocks)

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.forward_ns)

    @cached_property
    def gradients(self) -> tuple[int, ...]:
        """Bytes to scatter of each layer."""
        return tuple(self.parameter_bytes if self.gradient_bytes is None else self.gradient_bytes)

    @cached_property
    def activations(self) -> tuple[int, ...]:
        """Bytes saved of each layer without recomputation."""
        return (0,) * self.layers if self.activation_bytes is None else tuple(self.activation_bytes)

    @cached_property
    def checkpoints(self) -> tuple[int, ...]:
        """Bytes saved of each recomputed layer; equal to `activations` if unknown."""
        return self.activations if self.checkpoint_bytes is None else tuple(self.checkpoint_bytes)

    @cached_property
    def compute_ns(self) -> int:
        """Time of all computations without recomputation."""
        return sum(self.forward_ns) + sum(self.backward_ns)

    @cached_property
    def prefixes(self) -> dict[str, tuple[int, ...]]:
        """Prefix sums of layers, L+1 values each, by the attribute's name."""
        return {
            name: tuple(accumulate(getattr(self, name), initial=0))
            for name in (
                *("forward_ns", "backward_ns", "parameter_bytes"),
                *("gradients", "activations", "checkpoints"),
            )
        }

    @cached_property
    def cuts(self) -> tuple[bool, ...]:
        """Whether a unit may begin at each layer: never between tied layers."""
        crossed = [0] * (self.layers + 1)
        for first, last in self.tied:
            crossed[first + 1] += 1
            crossed[last + 1] -= 1
        return tuple(not depth for depth in accumulate(crossed[: self.layers]))

    @cached_property
    def share_sums(self) -> dict[int, tuple[int, ...]]:
        """Prefix sums of a rank's share of each layer's gradients (bytes), by a mesh's shards."""
        return {
            mesh.shards: tuple(
                accumulate((-(-size // mesh.shards) for size in self.gradients), initial=0)
            )
            for mesh in self.meshes
        }

    @cached_property
    def known(self) -> dict[Any, Any]:
        """Cache of unit loads, used by `planner.families.fsdp.evaluation`."""
        return {}

    def apart(self, mesh: Mesh) -> bool:
        """Return whether sums over replicas share no links with other transfers."""
        return mesh.own_links or self.channels == "two"

    def state_bytes(self, shards: int) -> int:
        """Return the bytes a rank always stores: its share of each layer, rounded up."""
        amount = 1 + self.optimiser
        above, below = amount.numerator, amount.denominator * shards
        return sum(-(-size * above // below) for size in self.parameter_bytes)

    def within(self, memory_bytes: int | None) -> "Problem":
        """Return the problem with another memory limit."""
        return replace(self, memory_bytes=memory_bytes)


# ---
# Plans of fully sharded training, in terms of ``fully_shard``.
#
# Units are calls of ``fully_shard``; `Unit.keep` is ``reshard_after_forward=False``;
# `Unit.forward_at` and `Unit.backward_at` give the prefetch lists. Gathers are issued in order of
# use.


class Unit(NamedTuple):
    """Layers whose parameters are gathered together, and whose gradients are scattered together.

    Attributes
    ----------
    start, stop : int
        Half-open range of layers.
    keep : bool
        Whether the parameters stay gathered until the backward computation.
    recompute : bool
        Whether the activations are computed a second time, layer by layer.
    forward_at : int
        Step that issues the gather for the forward pass, when that step's own parameters have
        arrived. The unit's own step issues the gather as soon as the step before has ended.
    backward_at : int or None
        The same for the backward pass; None exactly if `keep`. A step after the unit's forward
        step. The last unit's forward step may issue its gather too, as FSDP2's streams do.
    """

    start: int
    stop: int
    keep: bool
    recompute: bool
    forward_at: int
    backward_at: int | None


@dataclass(frozen=True)
class Plan:
    """What every rank does in an iteration.

    Attributes
    ----------
    mesh : int
        Place in `Problem.meshes`.
    units : tuple of Unit
        In order of layers.
    buffers : int
        Most reduce-scatters whose input is held (``set_reduce_scatter_max_input_buffers``): before
        a unit's gradients are copied, the reduce-scatter this many units earlier has ended.
    """

    mesh: int
    units: tuple[Unit, ...]
    buffers: int = 1

    @property
    def issues(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the steps whose gathers it issues, in order of use."""
        issued: list[list[int]] = [[] for _ in range(2 * len(self.units))]
        last = len(issued) - 1
        for u, unit in enumerate(self.units):
            issued[unit.forward_at].append(u)
        for u, unit in reversed(list(enumerate(self.units))):
            if unit.backward_at is not None:
                issued[unit.backward_at].append(last - u)
        return tuple(map(tuple, issued))

    def unit_of(self, step: int) -> int:
        """Return the unit that a step computes."""
        return step if step < len(self.units) else 2 * len(self.units) - 1 - step


def at_use(mesh: int, units: Iterable[Sequence[Any]], buffers: int = 1) -> Plan:
    """Return the plan that issues every gather in its own step.

    `units` are rows of `Unit`'s start, stop, keep and recompute; what follows is ignored.
    """
    rows = tuple(units)
    last = 2 * len(rows) - 1
    made = (
        Unit(start, stop, keep, recompute, u, None if keep else last - u)
        for u, (start, stop, keep, recompute, *_) in enumerate(rows)
    )
    return Plan(mesh, tuple(made), buffers)


def layer_ranges(cuts: Iterable[int], layers: int) -> list[tuple[int, int]]:
    """Return the ranges of layers that begin at the cuts; the first cut is 0."""
    return list(pairwise((*cuts, layers)))
