"""Memory model: the memory of a worker during training.

Method: a sum of the large terms. Replicated: parameters, gradients, optimiser state and the
activations of one iteration (the layers' saved bytes if known, else their outputs). Sharded: only
the worker's share of the state, with a copy of its parameters; the gathered parameters stay until
the end of the backward pass, and all gradients are counted. The buffer of the largest transfer is
added.
Guarantee: none for a real allocator; small terms, fragmentation and the framework are left out.
Complexity: O(layers).
Source: the terms as in Rajbhandari et al., "ZeRO", SC 2020, section 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from planner.model.profiles import Profile
from planner.model.units import format_bytes
from planner.model.validation import set_exact, set_integer


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
            set_integer(self, name)
        set_exact(self, "optimiser")

    @classmethod
    def of(
        cls,
        profile: Profile,
        optimiser: Fraction = Fraction(0),
        activation_bytes: int | None = None,
    ) -> "Footprint":
        """Return the footprint of a profiled model; gradients are as large as parameters.

        `activation_bytes` replaces the profile's estimate.
        """
        size = profile.parameter_bytes
        if activation_bytes is None:
            activation_bytes = sum(layer.saved_activation_bytes for layer in profile.layers)
        return cls(size, size, activation_bytes, optimiser)

    def static_bytes(self, mode: str, workers: int) -> int:
        """Return the static memory of a worker, without the transfers' buffers (bytes)."""
        state = self.optimiser * self.parameter_bytes
        if mode == "sharded":
            state = (state + self.parameter_bytes) / workers
        kept = self.parameter_bytes + self.gradient_bytes + self.activation_bytes
        return kept - int(-state // 1)

    def shortage(self, modes: Sequence[str], workers: int, available: int, transfer: int) -> str:
        """Return one sentence: the memory needed, its largest part, and what would help.

        `available`: memory of each worker; `transfer`: the smallest possible transfer (bytes).
        """
        needed = " and ".join(
            f"{_precise(self.static_bytes(mode, workers) + transfer, available)} {mode}"
            for mode in modes
        )
        parts = {
            "activations": self.activation_bytes,
            "optimiser state": int(self.optimiser * self.parameter_bytes),
            "parameters and gradients": self.parameter_bytes + self.gradient_bytes,
        }
        largest = max(parts, key=lambda name: parts[name])
        helps = {
            "activations": "a smaller batch size or recomputing them would help",
            "optimiser state": "a smaller optimiser or, sharded, more workers would help",
            "parameters and gradients": "only workers with more memory would help",
        }
        return (
            f"memory: a worker needs {needed} and memory_bytes leaves it "
            f"{format_bytes(available)}, mostly for {largest} ({format_bytes(parts[largest])}): "
            f"{helps[largest]}; activation_bytes (--activations) replaces the estimate of the "
            "activations, and ignore_memory (--ignore-memory) plans without this check"
        )


def _precise(size: int, another: int) -> str:
    """Return a size as text, in bytes if both sizes would look the same otherwise."""
    shown = format_bytes(size)
    return shown if shown != format_bytes(another) else f"{size:,} B"
