"""Validate FSDP answers that are read back, and extract their timeline and memory curve."""

from collections.abc import Sequence

from msgspec import UNSET, Struct

from planner.families.fsdp import Plan, Unit
from planner.families.fsdp.checker import check_issues
from planner.families.fsdp.evaluation import MOMENTS, Load, Schedule, follow, levels
from planner.jsonio.fsdp import FsdpAnswer, UnitAnswer
from planner.jsonio.heads import check_head
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.validation import check_count, check_same, total
from planner.solving.timeline import Interval, Kind, Memory, Timeline


def timeline(answer: FsdpAnswer) -> Timeline:
    """Check an answer and return its schedule and memory curve.

    Raises InvalidInputError if there is no plan, a layer is in no unit, or times or memory are not
    those of the units.
    """
    fields = ("mesh", "buffers", "steps", "gathers", "reduces", "sums", "levels", "state_bytes")
    check_head(answer, "units", *fields, "peak_bytes", "iteration_ns", costs="iteration_ns")
    assert answer.units is not UNSET
    assert answer.buffers is not UNSET
    plan = Plan(0, _checked_units(answer.units), answer.buffers)
    if answer.buffers > len(plan.units):
        raise InvalidInputError("buffers", f"expected at most {len(plan.units)}, as many as units")
    if answer.layer_names is not UNSET:
        check_count(answer.layer_names, plan.units[-1].stop, "layer_names", "layers")
    loads = [_load(unit, f"units[{place}]") for place, unit in enumerate(answer.units)]
    assert answer.mesh is not UNSET
    schedule = follow(plan, loads, answer.channels, apart=answer.mesh.own_links)
    _check_times(answer, plan, loads, schedule)
    names = None if answer.layer_names is UNSET else answer.layer_names
    labels = [_label(unit, names) for unit in plan.units]
    return Timeline(
        _resources(answer),
        tuple(_intervals(answer, plan, schedule, labels)),
        memory=_memory(answer, plan, loads, schedule),
    )


def _checked_units(units: Sequence[UnitAnswer]) -> tuple[Unit, ...]:
    if not units:
        raise InvalidInputError("units", "expected at least one element, got an empty array")
    reached = 0
    made = []
    for place, unit in enumerate(units):
        start, stop = unit.layers
        if start != reached or stop <= start:
            raise InvalidInputError(
                f"units[{place}].layers", f"expected a range that begins with {reached}"
            )
        reached = stop
        made.append(Unit(start, stop, unit.keep, unit.recompute, unit.forward_at, unit.backward_at))
    try:
        check_issues(tuple(made))
    except InvalidPlanError as error:
        raise InvalidInputError(error.path, error.message) from None
    return tuple(made)


def _load(unit: UnitAnswer, path: str) -> Load:
    if not unit.parameter_bytes:
        raise InvalidInputError(f"{path}.parameter_bytes", "expected an integer >= 1, got 0")
    if not unit.gradient_bytes:
        check_same(unit.reduce_ns, 0, f"{path}.reduce_ns")
        check_same(unit.sum_ns, 0, f"{path}.sum_ns")
    if unit.share_bytes > unit.gradient_bytes:
        raise InvalidInputError(f"{path}.share_bytes", "more than gradient_bytes")
    if not unit.recompute:
        check_same(unit.recomputed_bytes, 0, f"{path}.recomputed_bytes")
    return Load(*(getattr(unit, name) for name in Load._fields))


def _check_times(answer: FsdpAnswer, plan: Plan, loads: Sequence[Load], schedule: Schedule) -> None:
    """Check that the stated times are those of the units."""
    total(schedule.iteration_ns, "units", "the time of an iteration")
    for name in ("steps", "gathers", "reduces", "sums"):
        _check_rows(getattr(answer, name), getattr(schedule, name), name)
    assert answer.steps is not UNSET
    for number, row in enumerate(answer.steps):
        check_same(row.unit, plan.unit_of(number), f"steps[{number}].unit")
        phase = "forward" if number < len(loads) else "backward"
        check_same(row.phase, phase, f"steps[{number}].phase")
    check_same(answer.iteration_ns, schedule.iteration_ns, "iteration_ns")
    computed = sum(load.forward_ns + load.backward_ns for load in loads)
    again = sum(
        load.forward_ns for load, unit in zip(loads, plan.units, strict=True) if unit.recompute
    )
    check_same(answer.compute_ns, computed - again, "compute_ns")
    check_same(answer.recompute_ns, again, "recompute_ns")
    check_same(answer.exposed_ns, schedule.iteration_ns - computed, "exposed_ns")


def _check_rows(rows: Sequence[Struct], right: Sequence[tuple[object, ...]], name: str) -> None:
    check_count(rows, len(right), name, "the units make")
    for place, (row, known) in enumerate(zip(rows, right, strict=True)):
        for field in known._fields:  # type: ignore[attr-defined]
            path = f"{name}[{place}].{field}"
            check_same(getattr(row, field), getattr(known, field), path)


def _memory(answer: FsdpAnswer, plan: Plan, loads: Sequence[Load], schedule: Schedule) -> Memory:
    assert answer.levels is not UNSET
    assert answer.state_bytes is not UNSET
    right = tuple(levels(plan, loads))
    _check_rows(answer.levels, right, "levels")
    peak = answer.state_bytes + max(level.moving for level in right)
    check_same(answer.peak_bytes, total(peak, "state_bytes", "the memory"), "peak_bytes")
    if answer.memory_bytes is not None and peak > answer.memory_bytes:
        raise InvalidInputError("peak_bytes", f"more than memory_bytes ({answer.memory_bytes})")
    rows = tuple(
        (
            getattr(schedule.steps[level.step], MOMENTS[level.stage]),
            answer.state_bytes + level.moving,
        )
        for level in right
    )
    return Memory(rows, answer.memory_bytes)


def _resources(answer: FsdpAnswer) -> tuple[str, ...]:
    """Return the timeline's rows: gathers first, all-reduces over replicas, then computation."""
    channels = ("transfers",) if answer.channels == "one" else ("all-gathers", "reduce-scatters")
    return (*channels, *(("all-reduces",) if answer.sums else ()), "computation")


def _intervals(
    answer: FsdpAnswer, plan: Plan, schedule: Schedule, labels: Sequence[str]
) -> list[Interval]:
    resources, count = _resources(answer), len(plan.units)
    rows = [
        Interval(
            "computation",
            step.start_ns,
            step.end_ns,
            "forward" if number < count else "backward",
            -1,
            labels[plan.unit_of(number)],
        )
        for number, step in enumerate(schedule.steps)
    ]
    scatters, behind = resources[0 if answer.channels == "one" else 1], resources[-2]
    kinds: list[tuple[int, int, int, str, Kind]] = [
        *((row.start_ns, row.end_ns, row.step, resources[0], "pull") for row in schedule.gathers),
        *((row.start_ns, row.end_ns, row.step, scatters, "push") for row in schedule.reduces),
        *((row.start_ns, row.end_ns, row.step, behind, "all_reduce") for row in schedule.sums),
    ]
    for number, (start, end, step, resource, kind) in enumerate(sorted(kinds)):
        rows.append(Interval(resource, start, end, kind, number, labels[plan.unit_of(step)]))
    return rows


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    last = unit.stop - 1
    if names is None:
        return f"layer {unit.start}" if last == unit.start else f"layers {unit.start} to {last}"
    return names[last] if last == unit.start else f"{names[unit.start]} to {names[last]}"
