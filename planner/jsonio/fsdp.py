"""The JSON interface of fully sharded training (FSDP)."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, Unpack

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from planner.families import fsdp
from planner.families.fsdp.checker import check_issues
from planner.families.fsdp.evaluation import MOMENTS, Load
from planner.families.fsdp.problem import Unit
from planner.jsonio.control import method_names
from planner.jsonio.heads import check_head, head, made_by
from planner.jsonio.interfaces import Interface
from planner.jsonio.network import Network, described, measured_as
from planner.jsonio.schedules import check_order, check_serial, placed
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
    filled,
    or_none,
)
from planner.jsonio.what_if import WhatIfAnswer, WhatIfRequest, planned
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.measured import Collective
from planner.model.network import batch_cost
from planner.model.units import counted, format_bytes, format_ns
from planner.model.validation import check_count, check_same, inside
from planner.solving.deadline import Control
from planner.solving.result import Result
from planner.solving.timeline import Interval, Kind, Memory, Timeline

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(fsdp.METHODS)})]
ChannelsName = Literal["one", "two", "shared"]
StepIndex = Annotated[int, Meta(ge=0, le=2**32)]
Pair = Annotated[tuple[Index, Index], Meta(description="two layers that share a parameter")]


class MeshDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Over how many ranks parameters are sharded, and what its collectives cost."""

    shards: Count
    replicas: Count = 1
    all_gather: Network
    reduce_scatter: Network
    all_reduce: Network | UnsetType = UNSET
    own_links: bool = True


class FsdpRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to gather together, when, and what to keep."""

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
    optimiser_ratio: Rate | UnsetType = UNSET
    tied: tuple[Pair, ...] = ()
    blocks: Annotated[tuple[Index, ...], Meta(min_length=1)] | UnsetType = UNSET
    element_bytes: PositiveSize = 4
    layer_names: tuple[str, ...] | UnsetType = UNSET
    method: MethodName = "auto"

    def to_problem(self) -> fsdp.Problem:
        """Return the typed problem."""
        names = or_none(self.layer_names)
        if names is not None:
            check_count(names, len(self.forward_ns), "layer_names", "layers")
        return fsdp.Problem(
            forward_ns=self.forward_ns,
            backward_ns=self.backward_ns,
            parameter_bytes=self.parameter_bytes,
            gradient_bytes=or_none(self.gradient_bytes),
            activation_bytes=or_none(self.activation_bytes),
            checkpoint_bytes=or_none(self.checkpoint_bytes),
            meshes=tuple(_mesh(mesh, f"meshes[{i}]") for i, mesh in enumerate(self.meshes)),
            channels=self.channels,
            memory_bytes=or_none(self.memory_bytes),
            optimiser=Fraction(0) if self.optimiser_ratio is UNSET else self.optimiser_ratio,
            tied=self.tied,
            blocks=or_none(self.blocks),
            element_bytes=self.element_bytes,
            names=names,
        )


def _mesh(document: MeshDocument, path: str) -> fsdp.Mesh:
    def cost(name: Collective) -> AffineCost | TableCost | None:
        network = getattr(document, name)
        if network is UNSET:
            return None
        with inside(f"{path}.{name}"):
            return batch_cost(measured_as(described(network), name))

    gather, scatter = cost("all_gather"), cost("reduce_scatter")
    assert gather is not None
    assert scatter is not None
    with inside(path):
        return fsdp.Mesh(
            shards=document.shards,
            replicas=document.replicas,
            all_gather=gather,
            reduce_scatter=scatter,
            all_reduce=cost("all_reduce"),
            own_links=document.own_links,
        )


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
    """When parameters are gathered for a step, or gradients scattered or summed up behind it."""

    step: StepIndex
    issued_ns: Moment
    start_ns: Moment
    end_ns: Moment


class LevelAnswer(Struct, frozen=True, kw_only=True):
    """What is in memory at a moment beside what is there all the time."""

    step: StepIndex
    stage: Literal["wait", "copy", "compute", "end", "scatter"]
    parameters: Moment
    gradients: Moment
    activations: Moment
    buffers: Moment


class FsdpAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The units and when they are gathered, what that costs, and what is in memory when."""

    problem: Literal["fsdp"] = "fsdp"
    channels: ChannelsName
    memory_bytes: Size | None
    mesh: MeshAnswer | UnsetType = UNSET
    buffers: Count | UnsetType = UNSET
    units: tuple[UnitAnswer, ...] | UnsetType = UNSET
    iteration_ns: Moment | UnsetType = UNSET
    compute_ns: Moment | UnsetType = UNSET
    recompute_ns: Moment | UnsetType = UNSET
    exposed_ns: Moment | UnsetType = UNSET
    steps: tuple[StepAnswer, ...] | UnsetType = UNSET
    gathers: tuple[SentAnswer, ...] | UnsetType = UNSET
    reduces: tuple[SentAnswer, ...] | UnsetType = UNSET
    sums: tuple[SentAnswer, ...] | UnsetType = UNSET
    state_bytes: Moment | UnsetType = UNSET
    peak_bytes: Moment | UnsetType = UNSET
    levels: tuple[LevelAnswer, ...] | UnsetType = UNSET
    layer_names: tuple[str, ...] | UnsetType = UNSET
    layers: tuple[Index, ...] | UnsetType = UNSET


def run(request: FsdpRequest, **control: Unpack[Control[Any]]) -> FsdpAnswer:
    """Answer one request; `control` is that of the family's `solve`."""
    problem = request.to_problem()
    foreseen = planned(fsdp.FSDP, request, problem, control)
    return replace(answer(problem, foreseen.result), **foreseen.fields)


def answer(problem: fsdp.Problem, result: Result[fsdp.Plan, fsdp.Evaluation]) -> FsdpAnswer:
    """Return the JSON form of a result."""
    known: dict[str, Any] = {
        **head(FsdpAnswer, result),
        "channels": problem.channels,
        "memory_bytes": problem.memory_bytes,
        "layer_names": UNSET if problem.names is None else tuple(problem.names),
    }
    plan, evaluation = result.plan, result.evaluation
    if plan is None:
        return FsdpAnswer(**known)
    assert evaluation is not None
    mesh, count = problem.meshes[plan.mesh], len(plan.units)
    return filled(
        FsdpAnswer,
        evaluation,
        **known,
        mesh=MeshAnswer(shards=mesh.shards, replicas=mesh.replicas, own_links=problem.apart(mesh)),
        buffers=plan.buffers,
        units=tuple(
            _unit(unit, load) for unit, load in zip(plan.units, evaluation.loads, strict=True)
        ),
        steps=tuple(
            filled(
                StepAnswer,
                step,
                unit=plan.unit_of(number),
                phase="forward" if number < count else "backward",
            )
            for number, step in enumerate(evaluation.steps)
        ),
        gathers=tuple(filled(SentAnswer, transfer) for transfer in evaluation.gathers),
        reduces=tuple(filled(SentAnswer, transfer) for transfer in evaluation.reduces),
        sums=tuple(filled(SentAnswer, transfer) for transfer in evaluation.sums),
        levels=tuple(filled(LevelAnswer, level) for level in evaluation.levels),
    )


def _unit(unit: Unit, load: Load) -> UnitAnswer:
    return filled(
        UnitAnswer,
        load,
        layers=(unit.start, unit.stop),
        keep=unit.keep,
        recompute=unit.recompute,
        forward_at=unit.forward_at,
        backward_at=unit.backward_at,
    )


def headline(answer: FsdpAnswer) -> str:
    """Return a one-line summary: the plan and its cost."""
    if answer.units is UNSET or answer.iteration_ns is UNSET:
        return f"There is no plan ({made_by(answer)})"
    assert answer.mesh is not UNSET
    assert answer.peak_bytes is not UNSET
    mesh = str(answer.mesh.shards)
    if answer.mesh.replicas > 1:
        mesh = f"{answer.mesh.replicas} x {mesh}"
    kept = sum(unit.keep for unit in answer.units)
    return (
        f"An iteration in {counted(len(answer.units), 'unit')}, {kept} of them kept, on {mesh} "
        f"ranks takes {format_ns(answer.iteration_ns)} and {format_bytes(answer.peak_bytes)} "
        f"({made_by(answer)})"
    )


def plan_of(answer: FsdpAnswer) -> tuple[fsdp.Plan, list[Load]]:
    """Return the plan of an answer and the loads of its units, after checking the ranges."""
    assert answer.units is not UNSET
    assert answer.buffers is not UNSET
    reached, units = 0, []
    for place, unit in enumerate(answer.units):
        start, stop = unit.layers
        if start != reached or stop <= start:
            raise InvalidInputError(
                f"units[{place}].layers", f"expected a range that begins with {reached}"
            )
        reached = stop
        units.append(
            Unit(start, stop, unit.keep, unit.recompute, unit.forward_at, unit.backward_at)
        )
    if not 0 < answer.buffers <= len(units):
        raise InvalidInputError("buffers", f"expected at most {len(units)}, as many as units")
    try:
        check_issues(tuple(units))
    except InvalidPlanError as error:
        raise InvalidInputError(error.path, error.message) from None
    loads = [Load(*(getattr(unit, name) for name in Load._fields)) for unit in answer.units]
    return fsdp.Plan(0, tuple(units), answer.buffers), loads


def timeline(answer: FsdpAnswer) -> Timeline:
    """Check an answer and return its schedule and memory curve.

    Raises InvalidInputError if there is no plan, a layer is in no unit, or times contradict each
    other.
    """
    fields = ("mesh", "buffers", "steps", "gathers", "reduces", "sums", "levels", "state_bytes")
    check_head(answer, "units", *fields, "peak_bytes", "iteration_ns", costs="iteration_ns")
    steps = or_none(answer.steps) or ()
    plan, names = plan_of(answer)[0], or_none(answer.layer_names)
    if names is not None:
        check_count(names, plan.units[-1].stop, "layer_names", "layers")
    check_count(steps, 2 * len(plan.units), "steps", "the units make")
    for number, step in enumerate(steps):
        check_same(step.unit, plan.unit_of(number), f"steps[{number}].unit")
    computed = placed("steps", steps)
    check_order(computed, "ready_ns", "start_ns", "end_ns", "left_ns")
    check_serial(computed)
    labels = [_label(unit, names) for unit in plan.units]
    bars = [
        Interval("computation", step.start_ns, step.end_ns, step.phase, -1, labels[step.unit])
        for step in steps
    ]
    shared = answer.channels == "one"
    lanes: dict[str, tuple[str, Kind]] = {
        "gathers": ("transfers" if shared else "all-gathers", "pull"),
        "reduces": ("transfers" if shared else "reduce-scatters", "push"),
        "sums": ("all-reduces", "all_reduce"),
    }
    sent = sorted(
        (row.start_ns, row.end_ns, row.step, *lanes[name], path, row)
        for name in lanes
        for path, row in placed(name, or_none(getattr(answer, name)) or ())
    )
    check_order([item[-2:] for item in sent], "issued_ns", "start_ns", "end_ns")
    resources = dict.fromkeys(resource for resource, _ in lanes.values())
    if not answer.sums:
        del resources["all-reduces"]
    for resource in resources:
        check_serial([item[-2:] for item in sent if item[3] == resource])
    for number, (start, end, step, resource, kind, path, _) in enumerate(sent):
        if step >= len(steps):
            raise InvalidInputError(f"{path}.step", f"there are {len(steps)} steps")
        bars.append(Interval(resource, start, end, kind, number, labels[plan.unit_of(step)]))
    last = max(steps[-1].left_ns, *(bar.end_ns for bar in bars))
    check_same(answer.iteration_ns, last, "iteration_ns")
    return Timeline((*resources, "computation"), tuple(bars), memory=_memory(answer, steps))


def _memory(answer: FsdpAnswer, steps: Sequence[StepAnswer]) -> Memory:
    rows = []
    assert answer.state_bytes is not UNSET
    assert answer.peak_bytes is not UNSET
    for path, level in placed("levels", or_none(answer.levels) or ()):
        if level.step >= len(steps):
            raise InvalidInputError(f"{path}.step", f"there are {len(steps)} steps")
        moving = level.parameters + level.gradients + level.activations + level.buffers
        time = getattr(steps[level.step], MOMENTS[level.stage])
        rows.append((time, answer.state_bytes + moving))
    check_same(answer.peak_bytes, max((size for _, size in rows), default=0), "peak_bytes")
    if answer.memory_bytes is not None and answer.peak_bytes > answer.memory_bytes:
        raise InvalidInputError("peak_bytes", f"more than memory_bytes ({answer.memory_bytes})")
    return Memory(tuple(rows), answer.memory_bytes)


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    last = unit.stop - 1
    if names is None:
        return f"layer {unit.start}" if last == unit.start else f"layers {unit.start} to {last}"
    return names[last] if last == unit.start else f"{names[unit.start]} to {names[last]}"


INTERFACE = Interface(
    plans=(fsdp.Plan,),
    evaluation=fsdp.Evaluation,
    request=FsdpRequest,
    answer=FsdpAnswer,
    run=run,
    headline=headline,
    view=timeline,
    told=answer,
)
