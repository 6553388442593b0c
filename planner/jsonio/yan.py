"""The JSON interface of scaling: requests, and the problems they stand for."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.deadline import Deadline
from planner.jsonio.types import Count, PositiveRate, Rate, Seconds, fields_of, or_none
from planner.jsonio.yan_answer import YanAnswer, answer, refuse_sensitivity, with_extras
from planner.methods import known_method
from planner.validation import inside
from planner.yan.configuration import Fixed, LayerChoice
from planner.yan.layers import MAX_COUNT, MAX_SIDE, NeuronLayer
from planner.yan.problem import (
    MAX_FIXED,
    MAX_LAYERS,
    MAX_MACHINES,
    MAX_THREADS,
    MAX_TOP,
    Constants,
    Problem,
)
from planner.yan.solver import METHODS, solve

__all__ = [
    "ConstantsDocument",
    "FixedDocument",
    "NeuronLayerDocument",
    "YanRequest",
    "constants_of",
    "fixed_of",
    "layers_of",
    "problem_of",
    "run",
]


MethodName = Annotated[str, Meta(extra_json_schema={"enum": list(METHODS)})]
Machines = Annotated[int, Meta(ge=1, le=MAX_MACHINES)]
Threads = Annotated[int, Meta(ge=1, le=MAX_THREADS)]
Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]
Amount = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Memory = Annotated[int, Meta(ge=1, le=MAX_COUNT, description="bytes")]
Worker = Annotated[int, Meta(ge=0, le=MAX_MACHINES)]
Speeds = Annotated[
    tuple[PositiveRate, ...], Meta(min_length=1, description="one a machine, relative to constants")
]


class NeuronLayerDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer of neurons; a convolution has a shape and a kernel, a block a shape."""

    name: str
    kind: Literal["conv", "full", "block"]
    neurons: Amount
    connections: Amount
    weights: Annotated[int, Meta(ge=0, le=MAX_COUNT)]
    shape: (
        Annotated[tuple[Amount, Side, Side], Meta(description="channels, rows, columns")]
        | UnsetType
    ) = UNSET
    kernel: Side | UnsetType = UNSET
    stride: Side = 1
    pool: Side = 1
    forward_ns: Rate | UnsetType = UNSET
    backward_ns: Rate | UnsetType = UNSET


class ConstantsDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the machines and the network do."""

    muladd_ns: PositiveRate
    activation_ns: PositiveRate
    error_ns: PositiveRate
    latency_ns: Annotated[
        tuple[PositiveRate, ...], Meta(min_length=1, description="with 1, 2, … threads")
    ]
    nic_bits_per_s: PositiveRate
    bits_per_activation: PositiveRate | UnsetType = UNSET
    bits_per_weight: PositiveRate | UnsetType = UNSET
    interference: Annotated[
        tuple[PositiveRate, ...],
        Meta(min_length=1, max_length=MAX_THREADS, description="with 1, 2, … threads"),
    ]


class ChoiceDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one layer is run; without a mapping by the canonical one."""

    partitions: Amount
    threads: Threads
    copies: Machines
    mapping: (
        Annotated[
            tuple[Annotated[tuple[Worker, ...], Meta(min_length=1)], ...],
            Meta(min_length=1, description="a worker of the replica a copy, for each partition"),
        ]
        | UnsetType
    ) = UNSET


class FixedDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration to price; without layers the best ones complete it."""

    parameter_servers: Machines
    replicas: Machines
    workers_per_replica: Machines
    layers: Annotated[tuple[ChoiceDocument, ...], Meta(min_length=1)] | UnsetType = UNSET


class YanRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many servers, replicas, workers, partitions, copies and threads a job should have."""

    problem: Literal["yan"]
    machines: Machines
    cores: Count
    layers: Annotated[tuple[NeuronLayerDocument, ...], Meta(min_length=1, max_length=MAX_LAYERS)]
    constants: ConstantsDocument
    samples: Count
    read_every: Count
    read_model: Literal["mean", "min", "max"] = "mean"
    partitions: Literal["all", "powers_of_two"] = "all"
    max_copies: Machines | UnsetType = UNSET
    memory_bytes: Memory | UnsetType = UNSET
    machine_speeds: Speeds | UnsetType = UNSET
    nic_speeds: Speeds | UnsetType = UNSET
    fixed: (
        Annotated[tuple[FixedDocument, ...], Meta(min_length=1, max_length=MAX_FIXED)] | UnsetType
    ) = UNSET
    top: Annotated[int, Meta(ge=1, le=MAX_TOP)] = 8
    method: MethodName = "auto"
    time_limit_s: Seconds | UnsetType = UNSET
    pareto: bool = False
    landscape: bool = False
    sensitivity: bool = False
    note: Annotated[str, Meta(description="where the numbers come from")] | UnsetType = UNSET


def problem_of(request: YanRequest) -> Problem:
    """Return the typed problem.

    Raises
    ------
    InvalidInputError
        If it is none, with a path into the request.
    """
    return Problem(
        machines=request.machines,
        cores=request.cores,
        layers=layers_of(request.layers),
        constants=constants_of(request.constants),
        samples=request.samples,
        read_every=request.read_every,
        read_model=request.read_model,
        partitions=request.partitions,
        max_copies=or_none(request.max_copies),
        memory_bytes=or_none(request.memory_bytes),
        machine_speeds=or_none(request.machine_speeds),
        nic_speeds=or_none(request.nic_speeds),
        fixed=() if request.fixed is UNSET else fixed_of(request.fixed),
        top=request.top,
    )


def layers_of(documents: Sequence[NeuronLayerDocument]) -> tuple[NeuronLayer, ...]:
    """Return the typed layers.

    Raises
    ------
    InvalidInputError
        If one is none, with a path that starts with ``layers[``.
    """
    layers = []
    for place, document in enumerate(documents):
        with inside(f"layers[{place}]"):
            layers.append(NeuronLayer(**fields_of(document)))
    return tuple(layers)


def constants_of(document: ConstantsDocument) -> Constants:
    """Return the typed constants.

    Raises
    ------
    InvalidInputError
        If one is not above 0, with a path that starts with ``constants.``.
    """
    return Constants(**fields_of(document))


def fixed_of(documents: Sequence[FixedDocument]) -> tuple[Fixed, ...]:
    """Return the typed configurations; the problem they are for checks them."""
    return tuple(
        Fixed(
            document.parameter_servers,
            document.replicas,
            document.workers_per_replica,
            None
            if document.layers is UNSET
            else tuple(LayerChoice(**fields_of(choice)) for choice in document.layers),
        )
        for document in documents
    )


def run(request: YanRequest) -> YanAnswer:
    """Answer one request."""
    limit = or_none(request.time_limit_s)
    deadline = Deadline(limit)
    problem = problem_of(request)
    if request.sensitivity:
        known_method(request.method, METHODS)
        refuse_sensitivity(problem, request.method)
    result = solve(problem, method=request.method, time_limit=limit)
    return with_extras(
        answer(problem, result),
        problem,
        result,
        pareto=request.pareto,
        landscape=request.landscape,
        sensitivity=request.sensitivity,
        deadline=deadline,
    )
