"""The JSON requests of scaling (Yan et al.), and their typed problems."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from planner.families.yan.configuration import Plan
from planner.families.yan.family import METHODS, YAN
from planner.families.yan.from_profile import ProfiledProblem
from planner.families.yan.layers import MAX_COUNT, MAX_SIDE
from planner.families.yan.model import Estimate
from planner.families.yan.problem import (
    MAX_FIXED,
    MAX_LAYERS,
    MAX_MACHINES,
    MAX_THREADS,
    MAX_TOP,
    Constants,
    Problem,
)
from planner.jsonio.control import method_names
from planner.jsonio.interfaces import Interface
from planner.jsonio.types import Count, PositiveRate, Rate, as_dataclass, fields_of, says
from planner.jsonio.what_if import WhatIfRequest
from planner.jsonio.yan_answer import YanAnswer, answer, scaling, top_rows
from planner.solving.compare import Case
from planner.solving.deadline import Deadline
from planner.solving.result import Result

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(METHODS)})]
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
    shape: Annotated[tuple[Amount, Side, Side] | UnsetType, says("channels, rows, columns")] = UNSET
    kernel: Side | UnsetType = UNSET
    stride: Side = 1
    pool: Side = 1
    forward_ns: Rate | UnsetType = UNSET
    backward_ns: Rate | UnsetType = UNSET


class ConstantsDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The speeds of the machines and the network, and related constants."""

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
    """How one layer is run; the default mapping is the canonical one."""

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
    """A configuration to price; without `layers` the best choices for the layers complete it."""

    parameter_servers: Machines
    replicas: Machines
    workers_per_replica: Machines
    layers: Annotated[tuple[ChoiceDocument, ...], Meta(min_length=1)] | UnsetType = UNSET


class YanRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks for the best numbers of servers, replicas, workers, partitions, copies and threads."""

    problem: Literal["yan"]
    samples: Count
    machines: Machines
    cores: Count
    layers: Annotated[tuple[NeuronLayerDocument, ...], Meta(min_length=1, max_length=MAX_LAYERS)]
    constants: ConstantsDocument
    read_every: Count
    read_model: Literal["mean", "min", "max"] = "mean"
    partitions: Literal["all", "powers_of_two"] | UnsetType = UNSET
    max_copies: Machines | UnsetType = UNSET
    memory_bytes: Memory | UnsetType = UNSET
    machine_speeds: Speeds | UnsetType = UNSET
    fixed: (
        Annotated[tuple[FixedDocument, ...], Meta(min_length=1, max_length=MAX_FIXED)] | UnsetType
    ) = UNSET
    top: Annotated[int, Meta(ge=1, le=MAX_TOP)] = 8
    method: MethodName = "auto"
    pareto: bool = False
    note: Annotated[str, says("where the numbers come from")] | UnsetType = UNSET

    def to_problem(self) -> ProfiledProblem:
        """Return the typed problem, in the form that a profile gives."""
        constants = Constants(**fields_of(self.constants))
        return ProfiledProblem(as_dataclass(Problem, self, constants=constants), 1, ())


def problem_of(request: YanRequest) -> Problem:
    """Return the typed problem of a request."""
    return request.to_problem().problem


def to_answer(
    case: Case[Problem], result: Result[Plan, Estimate], deadline: Deadline | None
) -> YanAnswer:
    """Return the answer to a case; with a deadline, also the extras that the request asks for.

    At the deadline the Pareto front is cut; the part it covers is correct.
    """
    made, request = answer(case.made, result), case.request
    if request is None or deadline is None or not request.pareto or result.plan is None:
        return made
    from planner.families.yan.pareto import pareto_front

    return replace(made, pareto=top_rows(pareto_front(case.problem, deadline=deadline)))


INTERFACE = Interface(
    family=YAN,
    request=YanRequest,
    answer=YanAnswer,
    to_answer=to_answer,
    view=scaling,
)
