"""Answers of fully sharded training, read again: checked, and as a timeline with its memory."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import UNSET

from planner.errors import InvalidInputError, InvalidPlanError
from planner.fsdp.checker import check_issues
from planner.fsdp.evaluation import MOMENTS
from planner.fsdp.plan import Unit
from planner.jsonio.fsdp import FsdpAnswer, LevelAnswer, SentAnswer, UnitAnswer
from planner.jsonio.heads import check_head
from planner.timeline import Interval, Kind, Memory, Timeline
from planner.validation import check_count, check_same

__all__ = ["timeline"]


def timeline(answer: FsdpAnswer) -> Timeline:
    """Return the schedule in an answer, with what is in memory.

    Raises
    ------
    InvalidInputError
        If the answer holds no plan, or contradicts itself: its units leave out a layer, its steps
        are not theirs, something begins before what it waits for, or its peak is not that of its
        levels.
    """
    fields = ("steps", "gathers", "reduces", "levels", "state_bytes", "peak_bytes", "buffers")
    check_head(answer, "units", *fields, "iteration_ns", costs="iteration_ns")
    assert answer.units is not UNSET
    assert answer.steps is not UNSET
    assert answer.gathers is not UNSET
    assert answer.reduces is not UNSET
    units = _checked_units(answer.units)
    if answer.layer_names is not UNSET:
        check_count(answer.layer_names, units[-1].stop, "layer_names", "layers")
    _check_steps(answer, units)
    _check_transfers(answer, units)
    names = None if answer.layer_names is UNSET else answer.layer_names
    resources = ("transfers",) if answer.channels == "one" else ("all-gathers", "reduce-scatters")
    rows = [
        Interval(
            "computation",
            step.start_ns,
            step.end_ns,
            step.phase,
            -1,
            _label(units[step.unit], names),
        )
        for step in answer.steps
    ]
    sent: list[tuple[SentAnswer, str, Kind]] = [
        *((row, resources[0], "pull") for row in answer.gathers),
        *((row, resources[-1], "push") for row in answer.reduces),
    ]
    sent.sort(key=lambda item: (item[0].start_ns, item[0].end_ns))
    for number, (row, resource, kind) in enumerate(sent):
        label = _label(units[_unit_of(row.step, len(units))], names)
        rows.append(Interval(resource, row.start_ns, row.end_ns, kind, number, label))
    return Timeline((*resources, "computation"), tuple(rows), memory=_memory(answer))


def _checked_units(units: Sequence[UnitAnswer]) -> tuple[Unit, ...]:
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
    if not made:
        raise InvalidInputError("units", "expected at least one element, got an empty array")
    try:
        check_issues(tuple(made))
    except InvalidPlanError as error:
        raise InvalidInputError(error.path, error.message) from None
    return tuple(made)


def _check_steps(answer: FsdpAnswer, units: Sequence[Unit]) -> None:
    assert answer.steps is not UNSET
    assert answer.iteration_ns is not UNSET
    steps = answer.steps
    check_count(steps, 2 * len(units), "steps", "steps of all units")
    computed = 0
    for number, step in enumerate(steps):
        path = f"steps[{number}]"
        check_same(step.unit, _unit_of(number, len(units)), f"{path}.unit")
        check_same(step.phase, "forward" if number < len(units) else "backward", f"{path}.phase")
        check_same(step.ready_ns, steps[number - 1].left_ns if number else 0, f"{path}.ready_ns")
        if not step.ready_ns <= step.start_ns <= step.end_ns <= step.left_ns:
            raise InvalidInputError(path, "expected ready, start, end and left in this order")
        computed += step.end_ns - step.start_ns
    if answer.compute_ns is not UNSET and answer.recompute_ns is not UNSET:
        check_same(answer.compute_ns + answer.recompute_ns, computed, "compute_ns")
        if answer.exposed_ns is not UNSET:
            check_same(answer.exposed_ns, answer.iteration_ns - computed, "exposed_ns")


def _check_transfers(answer: FsdpAnswer, units: Sequence[Unit]) -> None:
    assert answer.steps is not UNSET
    assert answer.gathers is not UNSET
    assert answer.reduces is not UNSET
    steps, count = answer.steps, len(units)
    needed = [*range(count)]
    needed += [2 * count - 1 - u for u in reversed(range(count)) if not units[u].keep]
    check_same([row.step for row in answer.gathers], needed, "gathers")
    for number, row in enumerate(answer.gathers):
        unit = units[_unit_of(row.step, count)]
        at = unit.forward_at if row.step < count else unit.backward_at
        assert at is not None
        path = f"gathers[{number}]"
        issued = steps[at].ready_ns if at == row.step else steps[at].start_ns
        check_same(row.issued_ns, issued, f"{path}.issued_ns")
        if row.end_ns > steps[row.step].start_ns:
            raise InvalidInputError(f"{path}.end_ns", "after the step that it is for has begun")
    for number, row in enumerate(answer.reduces):
        path = f"reduces[{number}]"
        if not count <= row.step < 2 * count:
            raise InvalidInputError(f"{path}.step", "expected a step of the backward pass")
        check_same(row.issued_ns, steps[row.step].left_ns, f"{path}.issued_ns")
    lanes: list[tuple[str, tuple[SentAnswer, ...]]] = [
        ("gathers", answer.gathers),
        ("reduces", answer.reduces),
    ]
    if answer.channels == "one":
        both = sorted(
            (*answer.gathers, *answer.reduces), key=lambda row: (row.start_ns, row.end_ns)
        )
        lanes.append(("gathers", tuple(both)))
    for name, rows in lanes:
        for place, row in enumerate(rows):
            if not row.issued_ns <= row.start_ns <= row.end_ns:
                raise InvalidInputError(
                    f"{name}[{place}]", "expected issue, start and end in order"
                )
        for place, (before, row) in enumerate(pairwise(rows), start=1):
            if row.start_ns < before.end_ns:
                raise InvalidInputError(f"{name}[{place}].start_ns", "overlaps the one before")
    ends = [row.end_ns for row in (*answer.gathers, *answer.reduces)]
    check_same(answer.iteration_ns, max([steps[-1].left_ns, *ends]), "iteration_ns")


def _memory(answer: FsdpAnswer) -> Memory:
    assert answer.steps is not UNSET
    assert answer.levels is not UNSET
    assert answer.state_bytes is not UNSET
    rows = []
    for place, level in enumerate(answer.levels):
        if level.step >= len(answer.steps):
            raise InvalidInputError(f"levels[{place}].step", "there is no such step")
        moment = getattr(answer.steps[level.step], MOMENTS[level.stage])
        rows.append((moment, answer.state_bytes + _moving(level)))
    for place, (before, row) in enumerate(pairwise(rows), start=1):
        if row[0] < before[0]:
            raise InvalidInputError(f"levels[{place}]", "before the one before it")
    if not rows:
        raise InvalidInputError("levels", "expected at least one element, got an empty array")
    check_same(answer.peak_bytes, max(size for _, size in rows), "peak_bytes")
    return Memory(tuple(rows), answer.memory_bytes)


def _moving(level: LevelAnswer) -> int:
    return level.parameters + level.gradients + level.activations + level.buffers


def _unit_of(step: int, count: int) -> int:
    return step if step < count else 2 * count - 1 - step


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    if names is None:
        last = unit.stop - 1
        return f"layer {unit.start}" if last == unit.start else f"layers {unit.start} to {last}"
    first, last_name = names[unit.start], names[unit.stop - 1]
    return first if unit.stop == unit.start + 1 else f"{first} to {last_name}"
