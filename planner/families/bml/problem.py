"""The problem of gradient synchronisation on a BCube: network, gradient, failures."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from planner.model.errors import InvalidInputError
from planner.model.network import AnyNetwork, Network, links
from planner.model.profiles import Profile
from planner.model.topologies import BCube, Failures
from planner.model.validation import MAX_VALUE, integers, set_integer, shown, total

MAX_DAMAGED_NICS = 2**20
"""Largest network with failures, in NICs: re-planning visits each NIC."""

MAX_LAYERS = 2**12


@dataclass(frozen=True, slots=True)
class Problem:
    """Gradient synchronisation on a BCube.

    Parameters
    ----------
    bcube : BCube
        The topology.
    network : Network
        Its links.
    gradient_bytes : int, optional
        Size of the gradient; may be left out if layers are given.
    layer_bytes : tuple of int
        Sizes of the layers' gradients, layer 0 first; each is cut into pieces of its own. Empty:
        the gradient is one.
    element_bytes : int
        Size of an element; pieces are whole elements, so sizes must be multiples of it.
    failed : Failures
        Failed servers, NICs and switches.
    """

    bcube: BCube
    network: Network
    gradient_bytes: int | None = None
    layer_bytes: tuple[int, ...] = ()
    element_bytes: int = 1
    failed: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        set_integer(self, "element_bytes", minimum=1)
        sizes = integers(self.layer_bytes, "layer_bytes") if self.layer_bytes else ()
        object.__setattr__(self, "layer_bytes", sizes)
        if sizes:
            self._check_layers()
        elif self.gradient_bytes is None:
            raise InvalidInputError("gradient_bytes", "missing: expected it, or layer_bytes")
        set_integer(self, "gradient_bytes")
        for path, sizes in (
            ("layer_bytes[{}]", self.layer_bytes),
            ("gradient_bytes", (self.size_bytes,)),
        ):
            for place, size in enumerate(sizes):
                if size % self.element_bytes:
                    raise InvalidInputError(
                        path.format(place),
                        f"expected a multiple of element_bytes ({self.element_bytes}), got {size}",
                    )
        self.failed.check(self.bcube)
        if self.failed and self.bcube.nics > MAX_DAMAGED_NICS:
            raise InvalidInputError(
                "failed",
                f"expected a network of at most {MAX_DAMAGED_NICS} NICs where something has "
                f"failed, got {self.bcube.nics}",
            )
        if self.failed:
            # In the worst case all bytes pass one NIC.
            total(
                self.bcube.servers * self.size_bytes,
                "gradient_bytes",
                "what all servers send together where something has failed",
            )
        total(
            self.network.full_transfer_ns(self.size_bytes),
            "link_bytes_per_s",
            "the time to send the gradient",
        )

    @classmethod
    def from_profile(
        cls, profile: Profile, network: AnyNetwork, bcube: BCube, **options: Any
    ) -> "Problem":
        """Return the problem of a profiled model's gradient, not cut into layers, on a BCube.

        Parameters
        ----------
        profile : Profile
            The model; the gradient bytes of its layers are summed.
        network : Nic or AffineCost
            The NICs of a server, one for each level, or the cost of a message over a link.
        bcube : BCube
            The topology.
        **options
            `element_bytes` and `failed`, as above.
        """
        size = sum(layer.pushed_bytes for layer in profile.layers)
        return cls(bcube, links(network, bcube.k), size, **options)

    def _check_layers(self) -> None:
        if len(self.layer_bytes) > MAX_LAYERS:
            raise InvalidInputError(
                "layer_bytes",
                f"expected at most {MAX_LAYERS} layers, got {len(self.layer_bytes)}",
            )
        size = sum(self.layer_bytes)
        if size > MAX_VALUE:
            raise InvalidInputError("layer_bytes", f"expected a sum <= {MAX_VALUE}, got {size}")
        if self.gradient_bytes is None:
            object.__setattr__(self, "gradient_bytes", size)
        elif self.gradient_bytes != size:
            raise InvalidInputError(
                "gradient_bytes",
                f"expected the sum of layer_bytes ({size}), got {shown(self.gradient_bytes)}",
            )

    @property
    def size_bytes(self) -> int:
        """Size of the gradient in bytes."""
        assert self.gradient_bytes is not None
        return self.gradient_bytes

    @property
    def chunks(self) -> tuple[int, ...]:
        """Sizes of the sequential synchronisations: the layers, or the whole gradient."""
        return self.layer_bytes or (self.size_bytes,)


# ---
# The transfers, which all plans of gradient synchronisation consist of.
#
# The gradient is cut into pieces, numbered within each thread. In the `aggregate` stage a piece is
# summed along a tree of servers towards its owner. In the `broadcast` stage it is sent back along
# the same tree: broadcast step D - 1 - d reverses aggregation step d.

Stage = Literal["aggregate", "broadcast"]


class Transfer(NamedTuple):
    """One server sends a range of one thread's pieces to a neighbour.

    Attributes
    ----------
    server : int
        The sender.
    thread : int
        The thread whose pieces are sent.
    stage : str
        "aggregate": partial sums; "broadcast": sums over all servers.
    step : int
        From 0 in each stage.
    level : int
        Level of the link.
    peer : int
        The receiver.
    offset, length : int
        The range of pieces.
    """

    server: int
    thread: int
    stage: Stage
    step: int
    level: int
    peer: int
    offset: int
    length: int
