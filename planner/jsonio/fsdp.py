"""The JSON interface of fully sharded training (FSDP)."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from planner.families import fsdp
from planner.families.fsdp.checker import check_form
from planner.families.fsdp.evaluation import Load, Transfer, evaluation_of
from planner.families.fsdp.problem import Unit
from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base, check_priced
from planner.jsonio.control import method_names
from planner.jsonio.interfaces import Interface, of_result
from planner.jsonio.network import NetworkDocument, described, measured_as
from planner.jsonio.types import (
    Count,
    Index,
    LayerRange,
    Moment,
    PositiveSize,
    Rate,
    Size,
    Sizes,
    Times,
    as_dataclass,
    as_document,
    says,
    unset_to_none,
)
from planner.jsonio.what_if import WhatIfAnswer, WhatIfRequest
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.measured import Collective
from planner.model.network import batch_cost
from planner.model.units import counted, format_bytes, format_ns
from planner.model.validation import check_count, inside
from planner.solving.result import Result
from planner.solving.timeline import KIND_NAMES, Interval, Kind, Memory, Timeline, Window

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(fsdp.METHODS)})]
ChannelsName = Literal["one", "two", "shared"]
StepIndex = Annotated[int, Meta(ge=0, le=2**32)]
Pair = Annotated[tuple[Index, Index], says("two layers that share a parameter")]


class MeshDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of ranks that parameters are sharded over, and the costs of its collectives."""

    shards: Count
    replicas: Count = 1
    all_gather: NetworkDocument
    reduce_scatter: NetworkDocument
    all_reduce: NetworkDocument | UnsetType = UNSET
    own_links: bool = True


class FsdpRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks which layers to gather together, when, and what to keep in memory."""

    problem: Literal["fsdp"]
    forward_ns: Times
    backward_ns: Times
    parameter_bytes: Sizes
    gradient_bytes: Sizes | UnsetType = UNSET
    activation_bytes: Sizes | UnsetType = UNSET
    checkpoint_bytes: Sizes | UnsetType = UNSET
    meshes: Annotated[tuple[MeshDocument, ...], Meta(min_length=1)]
    channels: ChannelsName = "one"
    memory_bytes: Size | UnsetType = UNSET
    optimiser: Rate | UnsetType = field(name="optimiser_ratio", default=UNSET)
    tied: tuple[Pair, ...] = ()
    blocks: Annotated[tuple[Index, ...], Meta(min_length=1)] | UnsetType = UNSET
    element_bytes: PositiveSize = 4
    names: tuple[str, ...] | UnsetType = field(name="layer_names", default=UNSET)
    method: MethodName = "auto"

    def to_problem(self) -> fsdp.Problem:
        """Return the typed problem."""
        if self.names is not UNSET:
            check_count(self.names, len(self.forward_ns), "layer_names", "layers")
        meshes = tuple(_mesh(mesh, f"meshes[{i}]") for i, mesh in enumerate(self.meshes))
        return as_dataclass(fsdp.Problem, self, meshes=meshes)


def _mesh(document: MeshDocument, path: str) -> fsdp.Mesh:
    costs: dict[str, AffineCost | TableCost] = {}
    names: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_reduce")
    for name in names:
        network = getattr(document, name)
        if network is not UNSET:
            with inside(f"{path}.{name}"):
                costs[name] = batch_cost(measured_as(described(network), name))
    with inside(path):
        return as_dataclass(fsdp.Mesh, document, **costs)


class UnitAnswer(Struct, frozen=True, kw_only=True):
    """Layers that are gathered together: one call of fully_shard."""

    layers: LayerRange
    parameter_bytes: Moment
    gradient_bytes: Moment
    share_bytes: Moment
    activation_bytes: Moment
    recomputed_bytes: Moment
    forward_ns: Moment
    backward_ns: Moment
    gather_ns: Moment
    reduce_ns: Moment
    sum_ns: Moment
    keep: bool
    recompute: bool
    forward_at: StepIndex
    backward_at: StepIndex | None


class MeshAnswer(Struct, frozen=True, kw_only=True):
    """The mesh of a plan."""

    shards: Count
    replicas: Count
    own_links: bool


class StepAnswer(Struct, frozen=True, kw_only=True):
    """When a unit is computed in one pass."""

    unit: Index
    phase: Literal["forward", "backward"]
    ready_ns: Moment
    start_ns: Moment
    end_ns: Moment
    left_ns: Moment


class SentAnswer(Struct, frozen=True, kw_only=True):
    """The times of a gather before a step, or of a reduce-scatter or a sum of replicas after it."""

    step: StepIndex
    issued_ns: Moment
    start_ns: Moment
    end_ns: Moment


class LevelAnswer(Struct, frozen=True, kw_only=True):
    """Memory at a moment, in addition to the memory that is held throughout."""

    step: StepIndex
    stage: Literal["wait", "copy", "compute", "end", "scatter"]
    parameters: Moment
    gradients: Moment
    activations: Moment
    buffers: Moment


class FsdpAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The units, the times of their collectives, the cost, and the memory in use over time."""

    problem: Literal["fsdp"] = "fsdp"
    channels: ChannelsName
    memory_bytes: Size | None
    mesh: MeshAnswer = WITH_PLAN
    buffers: Count = WITH_PLAN
    units: tuple[UnitAnswer, ...] = WITH_PLAN
    iteration_ns: Moment = WITH_PLAN
    compute_ns: Moment = WITH_PLAN
    recompute_ns: Moment = WITH_PLAN
    exposed_ns: Moment = WITH_PLAN
    steps: tuple[StepAnswer, ...] = WITH_PLAN
    gathers: tuple[SentAnswer, ...] = WITH_PLAN
    reduces: tuple[SentAnswer, ...] = WITH_PLAN
    sums: tuple[SentAnswer, ...] = WITH_PLAN
    state_bytes: Moment = WITH_PLAN
    peak_bytes: Moment = WITH_PLAN
    levels: tuple[LevelAnswer, ...] = WITH_PLAN
    layer_names: tuple[str, ...] | UnsetType = UNSET
    layers: tuple[Index, ...] | UnsetType = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        mesh = str(self.mesh.shards)
        if self.mesh.replicas > 1:
            mesh = f"{self.mesh.replicas} x {mesh}"
        kept = sum(unit.keep for unit in self.units)
        return (
            f"An iteration in {counted(len(self.units), 'unit')}, {kept} of them kept, on {mesh} "
            f"ranks takes {format_ns(self.iteration_ns)} and {format_bytes(self.peak_bytes)}"
        )


def answer(problem: fsdp.Problem, result: Result[fsdp.Plan, fsdp.Evaluation]) -> FsdpAnswer:
    """Return the JSON form of a result."""
    known: dict[str, Any] = {
        **base_fields(FsdpAnswer, result),
        "channels": problem.channels,
        "memory_bytes": problem.memory_bytes,
        "layer_names": UNSET if problem.names is None else tuple(problem.names),
    }
    plan, evaluation = result.plan, result.evaluation
    if plan is None:
        return FsdpAnswer(**known)
    assert evaluation is not None
    mesh = problem.meshes[plan.mesh]
    return as_document(
        FsdpAnswer,
        evaluation,
        **known,
        mesh=as_document(MeshAnswer, mesh, own_links=problem.apart(mesh)),
        buffers=plan.buffers,
        units=tuple(
            as_document(UnitAnswer, load, unit, layers=(unit.start, unit.stop))
            for unit, load in zip(plan.units, evaluation.loads, strict=True)
        ),
        steps=_steps(plan, evaluation),
    )


def _steps(plan: fsdp.Plan, evaluation: fsdp.Evaluation) -> tuple[StepAnswer, ...]:
    phases = ["forward"] * len(plan.units) + ["backward"] * len(plan.units)
    return tuple(
        as_document(StepAnswer, step, unit=plan.unit_of(number), phase=phases[number])
        for number, step in enumerate(evaluation.steps)
    )


def plan_of(answer: FsdpAnswer) -> tuple[fsdp.Plan, list[Load]]:
    """Return the plan of an answer, whose form is checked, and the loads of its units."""
    units = tuple(
        Unit(*unit.layers, unit.keep, unit.recompute, unit.forward_at, unit.backward_at)
        for unit in answer.units
    )
    plan = fsdp.Plan(0, units, answer.buffers)
    check_form(plan, units[-1].stop if units else 0)
    return plan, [Load(*(getattr(unit, name) for name in Load._fields)) for unit in answer.units]


def timeline(answer: FsdpAnswer) -> Timeline:
    """Check an answer and return its schedule and memory curve.

    Raises InvalidInputError if there is no plan, a layer is in no unit, or the stated cost is not
    that of the units.
    """
    check_base(answer, "units", costs="iteration_ns")
    (plan, loads), names = plan_of(answer), unset_to_none(answer.layer_names)
    if names is not None:
        check_count(names, plan.units[-1].stop, "layer_names", "layers")
    evaluation = evaluation_of(
        plan, loads, answer.state_bytes, answer.channels, apart=answer.mesh.own_links
    )
    check_priced(
        answer, as_document(FsdpAnswer, evaluation, answer, steps=_steps(plan, evaluation))
    )
    if answer.memory_bytes is not None and evaluation.peak_bytes > answer.memory_bytes:
        raise InvalidInputError("peak_bytes", f"more than memory_bytes ({answer.memory_bytes})")
    labels = [_label(unit, names) for unit in plan.units]
    bars = [
        Interval("computation", step.start_ns, step.end_ns, step.phase, -1, labels[step.unit])
        for step in answer.steps
    ]
    end_ns, shared = evaluation.iteration_ns, answer.channels == "one"
    lanes: tuple[tuple[str, Kind, Sequence[Transfer]], ...] = (
        ("network" if shared else "all-gathers", "all_gather", evaluation.gathers),
        ("network" if shared else "reduce-scatters", "reduce_scatter", evaluation.reduces),
        ("all-reduces", "all_reduce", evaluation.sums),
    )
    sent = [(row, resource, kind) for resource, kind, rows in lanes for row in rows]
    windows: list[Window] = []
    for row, resource, kind in sorted(sent, key=lambda lane: lane[0].start_ns):
        number, unit = len(windows), plan.unit_of(row.step)
        phase = "forward" if row.step < len(plan.units) else "backward"
        label = f"{KIND_NAMES[kind]} {number + 1}, {phase}: {labels[unit]}"
        layers = () if names is None else names[plan.units[unit].start : plan.units[unit].stop]
        carried = layers if len(layers) == 1 else (f"{layer}.*" for layer in layers)
        due_ns = answer.steps[row.step].start_ns if kind == "all_gather" else end_ns
        when = (row.issued_ns, row.start_ns, row.end_ns, due_ns)
        windows.append(Window(number, *when, label, kind, tuple(carried)))
        bars.append(Interval(resource, row.start_ns, row.end_ns, kind, number, label))
    resources = dict.fromkeys(lane[0] for lane in lanes if lane[2] or lane[1] != "all_reduce")
    memory = Memory(evaluation.memory, answer.memory_bytes)
    return Timeline((*resources, "computation"), tuple(bars), tuple(windows), memory=memory)


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    last = unit.stop - 1
    if names is None:
        return f"layer {unit.start}" if last == unit.start else f"layers {unit.start} to {last}"
    return names[last] if last == unit.start else f"{names[unit.start]} to {names[last]}"


INTERFACE = Interface(
    family=fsdp.FSDP,
    request=FsdpRequest,
    answer=FsdpAnswer,
    to_answer=of_result(answer),
    view=timeline,
)
