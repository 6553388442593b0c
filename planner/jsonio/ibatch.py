"""The JSON interface of iBatch's batching problem."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families import ibatch
from planner.families.ibatch.evaluation import (
    BatchTimes,
    check_batches,
    priced,
    timeline_of,
    times_of,
)
from planner.families.ibatch.for_target import check_modules, exported
from planner.jsonio.control import method_names
from planner.jsonio.heads import PlanOrReason, check_head, head, made_by
from planner.jsonio.network import Described, Network, described, measured_as
from planner.jsonio.outlook import ProspectField, prospect_answer
from planner.jsonio.regret import RegretField, regret_answers
from planner.jsonio.rereading import refuse_fields
from planner.jsonio.settled_network import settled, warnings_of
from planner.jsonio.targets import (
    ShardedTargetRequest,
    TargetField,
    TargetsField,
    target_answer,
    targets_answer,
)
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
    or_none,
)
from planner.jsonio.what_if import SpreadRequest
from planner.model.contention import ALONE, Interference
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.network import batch_cost
from planner.model.units import counted, format_ns
from planner.model.validation import check_count, check_same, shown
from planner.solving.result import Result
from planner.solving.scenarios import Prospect
from planner.solving.targets import FSDP2, PLANNER, target_of
from planner.solving.timeline import Timeline
from planner.solving.what_if import Regret

__all__ = [
    "BatchAnswer",
    "BlocksCost",
    "IbatchAnswer",
    "IbatchRequest",
    "answer",
    "headline",
    "timeline",
]


LayerParameters = Annotated[
    tuple[tuple[str, ...], ...],
    Meta(description="names of the parameters of each layer, layer 0 first, none given twice"),
]
MethodName = Annotated[
    str, Meta(extra_json_schema={"enum": method_names([*ibatch.METHODS, FSDP2.name])})
]


class IbatchRequest(SpreadRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which layers to send together.

    Give startup_ns and transfer_ns, or layer_bytes and cost_table or network.
    """

    family = ibatch.IBATCH
    chooses = "exact"
    spread_fields = "spread_ns and objective makespan"

    problem: Literal["ibatch"]
    direction: Literal["pull", "push"] = "pull"
    startup_ns: Time | UnsetType = UNSET
    transfer_ns: Times | UnsetType = UNSET
    layer_bytes: Sizes | UnsetType = UNSET
    cost_table: Rows | UnsetType = UNSET
    network: Network | UnsetType = UNSET
    compute_ns: Times
    spread_ns: (
        Annotated[Times, Meta(description="interquartile ranges of the times measured of layers")]
        | UnsetType
    ) = UNSET
    max_batch_bytes: PositiveSize | UnsetType = UNSET
    objective: Literal["makespan", "eq4"] = "makespan"
    method: MethodName = "auto"
    layer_names: tuple[str, ...] | UnsetType = UNSET
    layer_parameters: LayerParameters | UnsetType = UNSET
    target: ShardedTargetRequest = PLANNER

    def to_problem(self) -> ibatch.Problem:
        """Return the typed problem."""
        cost, interference = self._cost()
        problem = ibatch.Problem(
            compute_ns=self.compute_ns,
            startup_ns=or_none(self.startup_ns),
            transfer_ns=or_none(self.transfer_ns),
            layer_bytes=or_none(self.layer_bytes),
            cost=cost,
            direction=self.direction,
            objective=self.objective,
            max_batch_bytes=or_none(self.max_batch_bytes),
            interference=interference,
            target=target_of(self.target),
            spread_ns=or_none(self.spread_ns),
        )
        for name in ("layer_names", "layer_parameters"):
            values = or_none(getattr(self, name))
            if values is not None:
                check_count(values, problem.layers, name, "layers")
        _check_parameters(or_none(self.layer_parameters))
        if problem.target is not None:
            check_modules(or_none(self.layer_parameters), problem.target)
        return problem

    def settled(self) -> Described | None:
        """Return the network, with tables resolved to the cost of a batch, or None."""
        if self.network is UNSET:
            return None
        return settled(described(self.network), ibatch.COLLECTIVES[self.direction])

    def has_spreads(self, problem: ibatch.Problem) -> bool:
        """Return whether the problem knows the spreads of measured times."""
        return problem.objective == "makespan" and any(problem.spread_ns or ())

    def answer_of(self, problem: Any, result: Any) -> "IbatchAnswer":
        """Return the answer, as far as it follows from the problem and the result."""
        return answer(problem, result, or_none(self.layer_names), or_none(self.layer_parameters))

    def doubts(self, result: Any) -> tuple[str, ...]:
        """Return why the numbers of the network may be off."""
        network, sizes = self.settled(), or_none(self.layer_bytes)
        if network is None or result.plan is None or sizes is None:
            return ()
        sent = [sum(sizes[start:stop]) for start, stop in result.plan.batches]
        return tuple(warnings_of(network, sent))

    def _cost(self) -> tuple[AffineCost | TableCost | None, Interference]:
        """Return the cost of a communication (None without table or network) and contention."""
        if self.network is UNSET:
            return None if self.cost_table is UNSET else TableCost(self.cost_table), ALONE
        for name in ("startup_ns", "transfer_ns", "cost_table"):
            if getattr(self, name) is not UNSET:
                raise InvalidInputError(name, "not together with network")
        if self.layer_bytes is UNSET:
            raise InvalidInputError("layer_bytes", "missing: network needs it")
        network = self.settled()
        assert network is not None
        collective = ibatch.COLLECTIVES[self.direction]
        cost = batch_cost(measured_as(network, collective, beside=True))
        return cost, network.interference


REQUEST_RULES = {
    "dependentRequired": {"max_batch_bytes": ["layer_bytes"]},
    "oneOf": [
        {
            "required": ["startup_ns", "transfer_ns"],
            "properties": {"cost_table": False, "network": False},
        },
        {
            "required": ["layer_bytes", "cost_table"],
            "properties": {"startup_ns": False, "transfer_ns": False, "network": False},
        },
        {
            "required": ["layer_bytes", "network"],
            "properties": {"startup_ns": False, "transfer_ns": False, "cost_table": False},
        },
    ],
}
"""JSON Schema rules of a request that field types cannot express."""


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
    """When one batch communicates and computes, from the start of the phase."""

    layers: LayerRange
    transfer_start_ns: Moment
    startup_end_ns: Moment
    transfer_end_ns: Moment
    compute_start_ns: Moment
    compute_end_ns: Moment


class BlocksCost(Struct, frozen=True, kw_only=True):
    """Of a plan of whole blocks: how many there are, and what plans of layers reach."""

    count: Count
    layers_objective_ns: Moment | None


class IbatchAnswer(PlanOrReason, frozen=True, kw_only=True):
    """The batches in transfer order, what they cost and the proof; or why there are none."""

    problem: Literal["ibatch"] = "ibatch"
    direction: Literal["pull", "push"]
    objective: Literal["makespan", "eq4"]
    batches: tuple[LayerRange, ...] | UnsetType = UNSET
    makespan_ns: Moment | UnsetType = UNSET
    eq4_ns: Moment | UnsetType = UNSET
    eq5_holds: bool | UnsetType = UNSET
    overlap_ns: Moment | UnsetType = UNSET
    exposed_communication_ns: Moment | UnsetType = UNSET
    exposed_computation_ns: Moment | UnsetType = UNSET
    slowed_ns: Moment | UnsetType = UNSET
    schedule: tuple[BatchAnswer, ...] | UnsetType = UNSET
    layer_names: tuple[str, ...] | UnsetType = UNSET
    layer_parameters: LayerParameters | UnsetType = UNSET
    layer_bytes: Sizes | UnsetType = UNSET
    layers: tuple[Index, ...] | UnsetType = UNSET
    ranks: Count | UnsetType = UNSET
    blocks: BlocksCost | UnsetType = UNSET
    regret: RegretField = UNSET
    prospect: ProspectField = UNSET
    target: TargetField = UNSET
    targets: TargetsField = UNSET


def headline(answer: IbatchAnswer) -> str:
    """Return a one-line summary: the plan and its cost."""
    rows = () if answer.schedule is UNSET else answer.schedule
    end = max((max(row.transfer_end_ns, row.compute_end_ns) for row in rows), default=0)
    if not rows:
        return f"There is no plan ({made_by(answer)})"
    batches = counted(len(rows), "batch", "batches")
    computed = "forward" if answer.direction == "pull" else "backward"
    return (
        f"A {answer.direction} in {batches} beside the {computed} pass takes {format_ns(end)} "
        f"({made_by(answer)})"
    )


def timeline(answer: IbatchAnswer) -> Timeline:
    """Check an answer and return its schedule.

    Raises InvalidInputError, with a path, if there is no plan, a layer is in no batch, or the
    schedule or costs are not those of the batches.
    """
    check_head(answer, "schedule", "batches")
    assert answer.schedule is not UNSET
    assert answer.batches is not UNSET
    last = max((stop for _, stop in answer.batches), default=0)
    check_batches(answer.batches, last, answer.direction)
    for field in ("layer_names", "layer_parameters", "layer_bytes"):
        values = or_none(getattr(answer, field))
        if values is not None:
            check_count(values, last, field, "layers")
    _check_parameters(or_none(answer.layer_parameters))
    check_count(answer.schedule, len(answer.batches), "schedule", "batches")
    for position, (batch, row) in enumerate(zip(answer.batches, answer.schedule, strict=True)):
        if row.layers != batch:
            raise InvalidInputError(
                f"schedule[{position}].layers",
                f"expected {list(batch)} as in batches, got {list(row.layers)}",
            )
    times = _times_of(answer, answer.schedule)
    cost = priced(answer.direction, times)
    if answer.objective == "eq4" and not cost.eq5_holds:
        raise InvalidInputError("schedule", "breaks Eq. 5, which objective eq4 asks for")
    refuse_fields(answer, _costs(answer.batches, cost))
    objective = cost.makespan_ns if answer.objective == "makespan" else cost.eq4_ns
    check_same(answer.objective_ns, objective, "objective_ns")
    names = or_none(answer.layer_names)
    return timeline_of(answer.batches, times, names, direction=answer.direction)


def _times_of(answer: IbatchAnswer, rows: Sequence[BatchAnswer]) -> list[BatchTimes]:
    """Return when batches that last as long as these communicate and compute."""
    for position, row in enumerate(rows):
        if row.transfer_end_ns < row.transfer_start_ns or row.compute_end_ns < row.compute_start_ns:
            raise InvalidInputError(f"schedule[{position}]", "ends before it starts")
    return times_of(
        answer.direction,
        [row.transfer_end_ns - row.transfer_start_ns for row in rows],
        [row.compute_end_ns - row.compute_start_ns for row in rows],
        max(row.startup_end_ns - row.transfer_start_ns for row in rows),
    )


_SUMS = tuple(field.name for field in fields(ibatch.Evaluation) if field.name != "schedule")


def _costs(batches: Sequence[tuple[int, int]], evaluation: ibatch.Evaluation) -> dict[str, Any]:
    """Return the fields of an answer that say what batches cost."""
    rows = tuple(
        BatchAnswer(layers=batch, **when._asdict())
        for batch, when in zip(batches, evaluation.schedule, strict=True)
    )
    return {"schedule": rows} | {name: getattr(evaluation, name) for name in _SUMS}


def answer(
    problem: ibatch.Problem,
    result: Result[ibatch.Plan, ibatch.Evaluation],
    layer_names: tuple[str, ...] | None = None,
    layer_parameters: tuple[tuple[str, ...], ...] | None = None,
    *,
    regret: Sequence[Regret] | None = None,
    prospect: Prospect | None = None,
) -> IbatchAnswer:
    """Return the JSON form of a result, with layer names, regret and expected costs where given."""
    known: dict[str, Any] = {
        **head(IbatchAnswer, result),
        "direction": problem.direction,
        "objective": problem.objective,
        "layer_names": UNSET if layer_names is None else layer_names,
        "layer_parameters": UNSET if layer_parameters is None else layer_parameters,
        "layer_bytes": UNSET if problem.layer_bytes is None else tuple(problem.layer_bytes),
        "regret": regret_answers(regret),
        "prospect": prospect_answer(prospect, result.objective_ns or 0),
        "target": target_answer(problem.target),
    }
    if result.plan is None:
        return IbatchAnswer(**known)
    evaluation = result.evaluation
    assert evaluation is not None
    batches = result.plan.batches
    if problem.target is not None or layer_parameters is not None:
        known["targets"] = targets_answer(exported(problem, evaluation))
    if not problem.interference.is_none:
        computed = sum(times.compute_ns for times in evaluation.schedule)
        known["slowed_ns"] = computed - problem.compute_prefix[-1]
    return IbatchAnswer(**known, batches=batches, **_costs(batches, evaluation))
