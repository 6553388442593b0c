"""Validate FSDP answers that are read back, and extract their timeline and memory curve."""

from collections.abc import Sequence

from msgspec import UNSET

from planner.families.fsdp import Plan, Unit
from planner.families.fsdp.checker import check_issues
from planner.families.fsdp.evaluation import Evaluation, Load, priced
from planner.jsonio.fsdp import FsdpAnswer, UnitAnswer, costs
from planner.jsonio.heads import check_head
from planner.jsonio.rereading import refuse_fields
from planner.model.errors import InvalidInputError
from planner.model.validation import check_count, check_same, total
from planner.solving.timeline import Interval, Kind, Memory, Timeline

__all__ = ["plan_in", "timeline"]


def timeline(answer: FsdpAnswer) -> Timeline:
    """Check an answer and return its schedule and memory curve.

    Raises InvalidInputError if there is no plan, a layer is in no unit, or times or memory are not
    those of the units.
    """
    others = ("mesh", "buffers", "steps", "gathers", "reduces", "sums", "levels", "state_bytes")
    check_head(answer, "units", *others, "peak_bytes", "iteration_ns", costs="iteration_ns")
    assert answer.mesh is not UNSET
    assert answer.state_bytes is not UNSET
    plan, loads = plan_in(answer)
    apart = answer.mesh.own_links
    cost = priced(plan, loads, answer.channels, answer.state_bytes, apart=apart)
    total(cost.iteration_ns, "units", "the time of an iteration")
    peak = total(cost.peak_bytes, "state_bytes", "the memory")
    if answer.memory_bytes is not None and peak > answer.memory_bytes:
        raise InvalidInputError("peak_bytes", f"more than memory_bytes ({answer.memory_bytes})")
    refuse_fields(answer, costs(plan, cost))
    names = None if answer.layer_names is UNSET else answer.layer_names
    if names is not None:
        check_count(names, plan.units[-1].stop, "layer_names", "layers")
    labels = [_label(unit, names) for unit in plan.units]
    return Timeline(
        _resources(answer),
        tuple(_intervals(answer, plan, cost, labels)),
        memory=Memory(cost.memory, answer.memory_bytes),
    )


def plan_in(answer: FsdpAnswer) -> tuple[Plan, list[Load]]:
    """Return the plan in an answer, and what its units are.

    Raises
    ------
    InvalidInputError
        If its units leave out a layer, are none, or issue gathers when they cannot.
    """
    assert answer.units is not UNSET
    assert answer.buffers is not UNSET
    reached, units = 0, []
    for place, row in enumerate(answer.units):
        start, stop = row.layers
        if start != reached or stop <= start:
            raise InvalidInputError(
                f"units[{place}].layers", f"expected a range that begins with {reached}"
            )
        reached = stop
        units.append(Unit(start, stop, row.keep, row.recompute, row.forward_at, row.backward_at))
    if not units:
        raise InvalidInputError("units", "expected at least one element, got an empty array")
    check_issues(tuple(units))
    if answer.buffers > len(units):
        raise InvalidInputError("buffers", f"expected at most {len(units)}, as many as units")
    loads = [_load(row, f"units[{place}]") for place, row in enumerate(answer.units)]
    return Plan(0, tuple(units), answer.buffers), loads


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


def _resources(answer: FsdpAnswer) -> tuple[str, ...]:
    """Return the timeline's rows: gathers first, all-reduces over replicas, then computation."""
    channels = ("transfers",) if answer.channels == "one" else ("all-gathers", "reduce-scatters")
    return (*channels, *(("all-reduces",) if answer.sums else ()), "computation")


def _intervals(
    answer: FsdpAnswer, plan: Plan, cost: Evaluation, labels: Sequence[str]
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
        for number, step in enumerate(cost.steps)
    ]
    scatters, behind = resources[0 if answer.channels == "one" else 1], resources[-2]
    kinds: list[tuple[int, int, int, str, Kind]] = [
        *((row.start_ns, row.end_ns, row.step, resources[0], "pull") for row in cost.gathers),
        *((row.start_ns, row.end_ns, row.step, scatters, "push") for row in cost.reduces),
        *((row.start_ns, row.end_ns, row.step, behind, "all_reduce") for row in cost.sums),
    ]
    for number, (start, end, step, resource, kind) in enumerate(sorted(kinds)):
        rows.append(Interval(resource, start, end, kind, number, labels[plan.unit_of(step)]))
    return rows


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    last = unit.stop - 1
    if names is None:
        return f"layer {unit.start}" if last == unit.start else f"layers {unit.start} to {last}"
    return names[last] if last == unit.start else f"{names[unit.start]} to {names[last]}"
