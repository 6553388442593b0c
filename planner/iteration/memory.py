"""What a worker has to remember while it trains.

Problem: does a plan fit into a worker's memory, and how large may its transfers be?

Method: the large terms are added up.

- replicated: parameters, gradients, the optimiser's state and the activations of one iteration;
- sharded: the same, but for the state only the worker's share, with the copy of the parameters that
  it updates; the gathered parameters are kept from the forward pass to the end of the backward
  pass, and all gradients are counted, as if none had left before the last was there.

Beside them the largest transfer, whose gradients are copied into one buffer.

Guarantee: none for a real allocator; small terms, fragmentation and the framework are left out.

Complexity: O(layers).
Source: the terms as in Rajbhandari et al., "ZeRO", SC 2020, section 3.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.profiles import Profile
from planner.validation import exact, integer

__all__ = ["Footprint"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of the parts of a training job.

    Attributes
    ----------
    parameter_bytes, gradient_bytes, activation_bytes : int
        Of the whole model; activations of one iteration on one worker.
    optimiser : Fraction
        Bytes of optimiser state for each byte of parameters.
    """

    parameter_bytes: int
    gradient_bytes: int
    activation_bytes: int = 0
    optimiser: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for name in ("parameter_bytes", "gradient_bytes", "activation_bytes"):
            integer(getattr(self, name), name)
        object.__setattr__(self, "optimiser", exact(self.optimiser, "optimiser"))

    @classmethod
    def of(cls, profile: Profile, optimiser: Fraction = Fraction(0)) -> "Footprint":
        """Return that of a profiled model; gradients are as large as parameters before sending."""
        size = profile.parameter_bytes
        activations = sum(layer.activation_bytes for layer in profile.layers)
        return cls(size, size, activations, optimiser)

    def resident_bytes(self, mode: str, workers: int) -> int:
        """Return what is there all the time, without the transfers' buffers.

        Parameters
        ----------
        mode : {"replicated", "sharded"}
            Who keeps the optimiser's state.
        workers : int
            Number of workers.
        """
        state = self.optimiser * self.parameter_bytes
        if mode == "sharded":
            state = (state + self.parameter_bytes) / workers
        kept = self.parameter_bytes + self.gradient_bytes + self.activation_bytes
        return kept - int(-state // 1)
