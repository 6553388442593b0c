"""The JSON interface of ``planner calibrate``: measured epochs in, constants and provenance out."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.yan.configuration import Fixed, LayerChoice, check_choice
from planner.families.yan.problem import Problem
from planner.jsonio.decoding import decode, typed
from planner.jsonio.profiles import ProvenanceDocument
from planner.jsonio.types import as_dataclass, as_document, laid_out, says, unset_to_none
from planner.jsonio.yan import (
    ChoiceDocument,
    ConstantsDocument,
    FixedDocument,
    Worker,
    YanRequest,
    problem_of,
)
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE

if TYPE_CHECKING:  # fitting imports NumPy; the schema does not need it
    from planner.families.yan.calibration import Computation, Fit, MeasuredEpoch


class MeasurementDocument(FixedDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration that was run, and the time of an epoch."""

    layers: Annotated[tuple[ChoiceDocument, ...], Meta(min_length=1)]
    machines: Annotated[
        tuple[Worker, ...] | UnsetType,
        says("where machines differ: the servers', then each replica's workers'"),
    ] = UNSET
    epoch_ns: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="nanoseconds")]


class MeasurementsDocument(YanRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured epochs, and a request whose constants are the starting guess.

    The request's method is ignored.
    """

    measurements: tuple[MeasurementDocument, ...]


def decode_measurements(data: bytes) -> tuple[Problem, "tuple[MeasuredEpoch, ...]"]:
    """Read a problem and its measured epochs from JSON text; errors carry a path."""
    document = typed(decode(data), MeasurementsDocument)
    problem = problem_of(document)
    return problem, tuple(
        _measurement(problem, measurement, f"measurements[{place}]")
        for place, measurement in enumerate(document.measurements)
    )


def _measurement(problem: Problem, document: MeasurementDocument, path: str) -> "MeasuredEpoch":
    if len(document.layers) != len(problem.layers):
        raise InvalidInputError(
            f"{path}.layers",
            f"expected as many as the network has ({len(problem.layers)}), "
            f"got {len(document.layers)}",
        )
    choices = [as_dataclass(LayerChoice, choice) for choice in document.layers]
    workers = document.workers_per_replica
    for place, (choice, layer) in enumerate(zip(choices, problem.layers, strict=True)):
        where = f"{path}.layers[{place}]"
        check_choice(choice, layer, workers, problem.threads, where)
        if bool(choice.mapping) != bool(choices[0].mapping):
            raise InvalidInputError(
                f"{where}.mapping", "expected a mapping for every layer, or for none of them"
            )
    triple = document.parameter_servers, document.replicas, workers
    configuration = Fixed(*triple, tuple(choices)).configuration()
    configuration = replace(configuration, machines=unset_to_none(document.machines))
    from planner.families.yan.calibration import MeasuredEpoch

    return MeasuredEpoch(configuration, document.epoch_ns)


class ComputationConstants(Struct, frozen=True, kw_only=True):
    """The constants of computation, without those of a network."""

    muladd_ns: Fraction
    activation_ns: Fraction
    error_ns: Fraction
    interference: tuple[Fraction, ...]


class ComputationDocument(Struct, frozen=True, kw_only=True):
    """What ``planner calibrate compute`` writes."""

    constants: ComputationConstants
    provenance: ProvenanceDocument


class HeldOutErrors(Struct, frozen=True, kw_only=True):
    """How well constants that were fitted to the other measurements predict each of them."""

    folds: int
    mean_error: float
    largest_error: float
    kendall_tau_b: float | None
    spearman_rho: float | None
    regret: float
    predictions_ns: tuple[int, ...]


class FitProvenance(Struct, frozen=True, kw_only=True):
    """Where fitted constants come from, and how far they can be trusted."""

    kind: Literal["fitted"] = "fitted"
    source: str
    measurements: int
    held: tuple[str, ...]
    at_floor: tuple[str, ...]
    mean_error: float
    largest_error: float
    held_out: HeldOutErrors
    versions: dict[str, str]


class FitDocument(Struct, frozen=True, kw_only=True):
    """What ``planner calibrate fit`` writes."""

    constants: ConstantsDocument
    provenance: FitProvenance


def encode_computation(computation: "Computation") -> str:
    """Return the constants of computation and their provenance as JSON text."""
    constants = as_document(ComputationConstants, computation)
    return laid_out(as_document(ComputationDocument, computation, constants=constants))


def encode_fit(result: "Fit", source: str, versions: Mapping[str, str]) -> str:
    """Return fitted constants, as a request takes them, and their provenance as JSON text.

    `source` says where the measurements come from; `versions` are those of the software.
    """
    document = as_document(
        FitDocument,
        result,
        provenance=as_document(
            FitProvenance,
            result,
            source=source,
            measurements=len(result.predictions_ns),
            mean_error=result.fitted.mean,
            largest_error=result.fitted.largest,
            held_out=as_document(
                HeldOutErrors,
                result,
                mean_error=result.held_out.mean,
                largest_error=result.held_out.largest,
                kendall_tau_b=result.kendall,
                spearman_rho=result.spearman,
                regret=float(result.regret),
            ),
            versions=dict(versions),
        ),
    )
    return laid_out(document)
