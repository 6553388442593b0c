"""What ``planner calibrate compute`` writes: constants of computation, and their provenance."""

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from planner.jsonio.layout import laid_out, numbers
from planner.jsonio.profiles import ProvenanceDocument

if TYPE_CHECKING:  # measuring imports NumPy; the schema does not need it
    from planner.families.yan.calibration import Computation


class ComputationConstants(Struct, frozen=True, kw_only=True):
    """The constants of computation, without those of a network."""

    muladd_ns: float
    activation_ns: float
    error_ns: float
    interference: tuple[float, ...]


class ComputationDocument(Struct, frozen=True, kw_only=True):
    """What ``planner calibrate compute`` writes."""

    constants: ComputationConstants
    provenance: ProvenanceDocument


def encode_computation(computation: "Computation") -> str:
    """Return the constants of computation and their provenance as JSON text."""
    constants = numbers(ComputationConstants, computation)
    provenance = msgspec.convert(msgspec.to_builtins(computation.provenance), ProvenanceDocument)
    return laid_out(ComputationDocument(constants=constants, provenance=provenance))
