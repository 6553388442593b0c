"""Inputs of gradient synchronisation on a BCube: the network, the gradient, and what has failed."""

from dataclasses import dataclass, field
from typing import Any

from planner.errors import InvalidInputError
from planner.network import AnyNetwork, Network, links
from planner.profiles import Profile
from planner.topologies import BCube, Failures
from planner.validation import MAX_VALUE, integers, set_integer, shown, total

__all__ = ["MAX_DAMAGED_NICS", "MAX_LAYERS", "Failures", "Problem"]

MAX_DAMAGED_NICS = 2**20
"""Networks with failures have at most so many NICs: re-planning looks at each of them."""

MAX_LAYERS = 2**12


@dataclass(frozen=True, slots=True)
class Problem:
    """Who aggregates what, over which link, in which step.

    Parameters
    ----------
    bcube : BCube
        The topology.
    network : Network
        Its links.
    gradient_bytes : int, optional
        Size of the gradient; may be left out where layers are given.
    layer_bytes : tuple of int
        Sizes of the layers' gradients, layer 0 first; each is cut into pieces of its own. Empty:
        the gradient is one.
    element_bytes : int
        Size of an element: pieces are whole elements, so sizes are multiples of it.
    failed : Failures
        What does not work.
    """

    bcube: BCube
    network: Network
    gradient_bytes: int | None = None
    layer_bytes: tuple[int, ...] = ()
    element_bytes: int = 1
    failed: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        set_integer(self, "element_bytes", minimum=1)
        if self.layer_bytes:
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
            # In the worst case all of it goes through one NIC.
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
        """Return the problem of a profiled model's gradient, in one, on a BCube.

        Parameters
        ----------
        profile : Profile
            What its layers send for their gradients is summed up.
        network : Nic or AffineCost
            The NICs of a server, one a level, or what a message over a link costs.
        bcube : BCube
            The topology.
        **options
            As above.
        """
        size = sum(layer.pushed_bytes for layer in profile.layers)
        return cls(bcube, links(network, bcube.k), size, **options)

    def _check_layers(self) -> None:
        object.__setattr__(self, "layer_bytes", integers(self.layer_bytes, "layer_bytes"))
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
        """Sizes of what is synchronised one after the other: the layers, or the gradient."""
        return self.layer_bytes or (self.size_bytes,)
