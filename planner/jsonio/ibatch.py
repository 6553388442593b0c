"""The JSON interface of iBatch's batching problem."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from planner.families import ibatch
from planner.families.ibatch.evaluation import BatchTimes, check_batches, timeline_of
from planner.families.ibatch.methods import check_modules, exported
from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base
from planner.jsonio.control import ShardedTargetRequest, method_names, target_answer, targets_answer
from planner.jsonio.interfaces import Interface
from planner.jsonio.links import resolved
from planner.jsonio.network import Described, NetworkDocument, described, measured_as
from planner.jsonio.transfers import check_order, check_serial, placed
from planner.jsonio.types import (
    Count,
    Index,
    LayerRange,
    Moment,
    PositiveSize,
    Rows,
    Sizes,
    Time,
    Times,
    as_dataclass,
    as_document,
    says,
    unset_to_none,
)
from planner.jsonio.what_if import OutlookField, TargetedAnswer, WhatIfRequest
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.network import batch_cost
from planner.model.units import counted, format_ns
from planner.model.validation import check_count, check_same, shown
from planner.solving.compare import Case
from planner.solving.result import Result
from planner.solving.targets import FSDP2, PLANNER, target_of
from planner.solving.timeline import Timeline

LayerParameters = Annotated[
    tuple[tuple[str, ...], ...],
    says("names of the parameters of each layer, layer 0 first, none given twice"),
]
MethodName = Annotated[
    str, Meta(extra_json_schema={"enum": method_names([*ibatch.METHODS, FSDP2.name])})
]


class IbatchRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks which layers to send together.

    Give startup_ns and transfer_ns, or layer_bytes and cost_table or network.
    """

    chooses = "exact"

    problem: Literal["ibatch"]
    direction: Literal["pull", "push"] = "pull"
    startup_ns: Time | UnsetType = UNSET
    transfer_ns: Times | UnsetType = UNSET
    layer_bytes: Sizes | UnsetType = UNSET
    cost_table: Rows | UnsetType = UNSET
    network: NetworkDocument | UnsetType = UNSET
    compute_ns: Times
    spread_ns: (
        Annotated[Times, says("interquartile ranges of the times measured of layers")] | UnsetType
    ) = UNSET
    max_batch_bytes: PositiveSize | UnsetType = UNSET
    objective: Literal["makespan", "eq4"] = "makespan"
    method: MethodName = "auto"
    layer_names: tuple[str, ...] | UnsetType = UNSET
    layer_parameters: LayerParameters | UnsetType = UNSET
    outlook: OutlookField = UNSET
    target: ShardedTargetRequest = PLANNER

    def to_problem(self) -> ibatch.Problem:
        """Return the typed problem."""
        cost, interference = self._cost()
        problem = as_dataclass(
            ibatch.Problem,
            self,
            cost=cost,
            interference=interference,
            target=target_of(self.target),
        )
        for name in ("layer_names", "layer_parameters"):
            values = unset_to_none(getattr(self, name))
            if values is not None:
                check_count(values, problem.layers, name, "layers")
        _check_parameters(unset_to_none(self.layer_parameters))
        if problem.target is not None:
            check_modules(unset_to_none(self.layer_parameters), problem.target)
        return problem

    def resolved_network(self) -> Described | None:
        """Return the network, with tables resolved to the cost of a batch, or None."""
        if self.network is UNSET:
            return None
        return resolved(described(self.network), ibatch.COLLECTIVES[self.direction])

    def lacks_spreads(self, problem: ibatch.Problem, /) -> str:
        """Return what the request lacks to have measured spreads; empty if it has them."""
        known = problem.objective == "makespan" and any(problem.spread_ns or ())
        return "" if known else "spread_ns and objective makespan, or scenarios"

    def _cost(self) -> tuple[AffineCost | TableCost | None, Interference]:
        """Return the cost of a communication (None without table or network) and contention."""
        if self.network is UNSET:
            return None if self.cost_table is UNSET else TableCost(self.cost_table), NO_CONTENTION
        for name in ("startup_ns", "transfer_ns", "cost_table"):
            if getattr(self, name) is not UNSET:
                raise InvalidInputError(name, "not together with network")
        if self.layer_bytes is UNSET:
            raise InvalidInputError("layer_bytes", "missing: network needs it")
        network = self.resolved_network()
        assert network is not None
        collective = ibatch.COLLECTIVES[self.direction]
        cost = batch_cost(measured_as(network, collective, contention=True))
        return cost, network.interference


def _check_parameters(layers: LayerParameters | None) -> None:
    first: dict[str, int] = {}
    for position, names in enumerate(layers or ()):
        for place, name in enumerate(names):
            if name in first:
                raise InvalidInputError(
                    f"layer_parameters[{position}][{place}]",
                    f"{shown(name)} given twice, first in layer_parameters[{first[name]}]",
                )
            first[name] = position


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """The times of one batch's transfer and computation, from the start of the phase."""

    layers: LayerRange
    transfer_start_ns: Moment
    startup_end_ns: Moment
    transfer_end_ns: Moment
    compute_start_ns: Moment
    compute_end_ns: Moment


class IbatchAnswer(TargetedAnswer, frozen=True, kw_only=True):
    """The batches in transfer order, their cost and a lower bound; or why there is no plan."""

    problem: Literal["ibatch"] = "ibatch"
    direction: Literal["pull", "push"]
    objective: Literal["makespan", "eq4"]
    batches: tuple[LayerRange, ...] = WITH_PLAN
    makespan_ns: Moment = WITH_PLAN
    eq4_ns: Moment = WITH_PLAN
    eq5_holds: bool = WITH_PLAN
    overlap_ns: Moment = WITH_PLAN
    exposed_communication_ns: Moment = WITH_PLAN
    exposed_computation_ns: Moment = WITH_PLAN
    slowed_ns: Moment | UnsetType = UNSET
    schedule: tuple[BatchAnswer, ...] = WITH_PLAN
    layer_names: tuple[str, ...] | UnsetType = UNSET
    layer_parameters: LayerParameters | UnsetType = UNSET
    layer_bytes: Sizes | UnsetType = UNSET
    layers: tuple[Index, ...] | UnsetType = UNSET
    ranks: Count | UnsetType = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        end = max(max(row.transfer_end_ns, row.compute_end_ns) for row in self.schedule)
        batches = counted(len(self.schedule), "batch", "batches")
        computed = "forward" if self.direction == "pull" else "backward"
        return f"A {self.direction} in {batches} during the {computed} pass takes {format_ns(end)}"


def to_answer(
    case: Case[ibatch.Problem], result: Result[ibatch.Plan, ibatch.Evaluation], _: object
) -> IbatchAnswer:
    """Return the answer to a case, with the names of the request's or the profile's layers."""
    if case.request is not None:
        known = (
            unset_to_none(case.request.layer_names),
            unset_to_none(case.request.layer_parameters),
        )
        return answer(case.problem, result, *known)
    assert case.profile is not None
    assert case.place is not None
    chain = case.profile.chain()
    names = tuple(layer.name for layer in chain.layers)
    made = answer(case.problem, result, names, chain.layer_parameters())
    return replace(made, ranks=case.place.ranks or UNSET)


def timeline(answer: IbatchAnswer) -> Timeline:
    """Check an answer and return its schedule.

    Raises InvalidInputError, with a path, if there is no plan, a layer is in no batch, or times
    contradict each other.
    """
    check_base(answer, "schedule")
    last = max((stop for _, stop in answer.batches), default=0)
    check_batches(answer.batches, last, answer.direction)
    for field in ("layer_names", "layer_parameters", "layer_bytes"):
        values = unset_to_none(getattr(answer, field))
        if values is not None:
            check_count(values, last, field, "layers")
    _check_parameters(unset_to_none(answer.layer_parameters))
    check_count(answer.schedule, len(answer.batches), "schedule", "batches")
    for position, (batch, row) in enumerate(zip(answer.batches, answer.schedule, strict=True)):
        if row.layers != batch:
            raise InvalidInputError(
                f"schedule[{position}].layers",
                f"expected {list(batch)} as in batches, got {list(row.layers)}",
            )
    _check_times(answer, answer.schedule)
    times = [
        BatchTimes(*(getattr(row, name) for name in BatchTimes._fields)) for row in answer.schedule
    ]
    names = unset_to_none(answer.layer_names)
    return timeline_of(answer.batches, times, names, direction=answer.direction)


def _check_times(answer: IbatchAnswer, schedule: Sequence[BatchAnswer]) -> None:
    """Check that transfers and computations are serial, and end at the objective."""
    rows = placed("schedule", schedule)
    transfer = ("transfer_start_ns", "startup_end_ns", "transfer_end_ns")
    compute = ("compute_start_ns", "compute_end_ns")
    pulls = answer.direction == "pull"
    check_order(rows, *(transfer + compute if pulls else compute + transfer))
    check_serial(rows, transfer[0], transfer[-1])
    check_serial(rows, *compute)
    end = getattr(schedule[-1], "compute_end_ns" if pulls else "transfer_end_ns")
    if answer.objective == "makespan":
        check_same(answer.objective_ns, end, "objective_ns")
    check_same(answer.makespan_ns, end, "makespan_ns")


def answer(
    problem: ibatch.Problem,
    result: Result[ibatch.Plan, ibatch.Evaluation],
    layer_names: tuple[str, ...] | None = None,
    layer_parameters: tuple[tuple[str, ...], ...] | None = None,
) -> IbatchAnswer:
    """Return the JSON form of a result, with the names of layers and parameters where given."""
    known: dict[str, Any] = {
        "direction": problem.direction,
        "objective": problem.objective,
        "layer_names": UNSET if layer_names is None else layer_names,
        "layer_parameters": UNSET if layer_parameters is None else layer_parameters,
        "layer_bytes": UNSET if problem.layer_bytes is None else tuple(problem.layer_bytes),
        **base_fields(IbatchAnswer, result),
        "target": target_answer(problem.target),
    }
    if result.plan is None:
        return IbatchAnswer(**known)
    evaluation = result.evaluation
    assert evaluation is not None
    schedule = tuple(
        BatchAnswer(layers=batch, **when._asdict())
        for batch, when in zip(result.plan.batches, evaluation.schedule, strict=True)
    )
    if problem.target is not None or layer_parameters is not None:
        known["targets"] = targets_answer(exported(problem, evaluation))
    if not problem.interference.is_none:
        computed = sum(times.compute_ns for times in evaluation.schedule)
        known["slowed_ns"] = computed - problem.compute_prefix[-1]
    return as_document(
        IbatchAnswer, evaluation, **known, batches=result.plan.batches, schedule=schedule
    )


INTERFACE = Interface(
    family=ibatch.IBATCH,
    request=IbatchRequest,
    answer=IbatchAnswer,
    to_answer=to_answer,
    view=timeline,
)
