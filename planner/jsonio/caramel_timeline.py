"""Answers about gradient transfers read again: their schedule, and whether they can be one."""

from itertools import pairwise
from math import isfinite

from msgspec import UNSET

from planner.errors import InvalidInputError
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.transfers import check_spans, content, drawn
from planner.timeline import Interval, Mark, Timeline
from planner.units import format_ns
from planner.validation import shown

__all__ = ["headline", "timeline"]


def headline(answer: CaramelAnswer) -> str:
    """Return one line that says what a plan is and what it costs."""
    count = len(answer.groups)
    return (
        f"caramel · {answer.method} · {count} transfer{'s' if count > 1 else ''} · "
        f"iteration {format_ns(answer.iteration_ns)} · "
        f"stalls {format_ns(answer.stall_ns)} · {answer.status}"
    )


def timeline(answer: CaramelAnswer) -> Timeline:
    """Return the schedule in an answer.

    Raises
    ------
    InvalidInputError
        If its times or parts contradict each other, with the path of the first that does.
    """
    _check_ops(answer)
    _check_groups(answer)
    _check_numbers(answer)
    computation, network = "computation", "network"
    intervals = [
        Interval(computation, row.start_ns, row.end_ns, row.phase, -1, row.op)
        for row in answer.schedule
    ]
    windows = []
    for number, one in enumerate(answer.groups):
        spans, window = drawn(number, one, f"transfer {number + 1}: {content(one)}")
        intervals += spans
        windows.append(window)
    return Timeline(
        (computation, network),
        tuple(intervals),
        tuple(windows),
        (Mark(answer.backward_ns, "end of the backward pass"),),
    )


def _check_numbers(answer: CaramelAnswer) -> None:
    bound = answer.lower_bound_ns
    if answer.objective_ns != answer.iteration_ns:
        raise InvalidInputError("objective_ns", f"expected iteration_ns ({answer.iteration_ns})")
    if bound is not None and bound > answer.iteration_ns:
        raise InvalidInputError("lower_bound_ns", "more than iteration_ns")
    if (answer.status == "optimal") != (bound == answer.iteration_ns):
        raise InvalidInputError("status", f"{answer.status}, but lower_bound_ns is {shown(bound)}")
    for name in ("rho", "overlap", "utilisation", "traffic"):
        value = getattr(answer, name)
        if value is not None and not isfinite(value):
            raise InvalidInputError(name, f"expected a number, got {shown(value)}")
    known, ops = set(answer.order), set(answer.op_order)
    for place, edge in enumerate(answer.control_edges):
        if not ops.issuperset(edge):
            raise InvalidInputError(f"control_edges[{place}]", "expected names in op_order")
    sent: set[str] = set()
    for number, one in enumerate(answer.groups):
        part = {} if one.part is UNSET else one.part
        for place, name in enumerate(one.parameters):
            path = f"groups[{number}].parameters[{place}]"
            if name not in known:
                raise InvalidInputError(path, f"expected a name in order, got {shown(name)}")
            if name in sent and name not in part:
                raise InvalidInputError(path, f"{shown(name)} is sent twice")
            sent.add(name)


def _check_ops(answer: CaramelAnswer) -> None:
    if len(answer.schedule) != len(answer.op_order):
        raise InvalidInputError(
            "schedule",
            f"expected as many elements as op_order ({len(answer.op_order)}), "
            f"got {len(answer.schedule)}",
        )
    seen: set[str] = set()
    for place, (row, name) in enumerate(zip(answer.schedule, answer.op_order, strict=True)):
        path = f"schedule[{place}]"
        if row.op != name:
            raise InvalidInputError(f"{path}.op", f"expected {shown(name)}, as in op_order")
        if name in seen:
            raise InvalidInputError(f"op_order[{place}]", f"{shown(name)} given twice")
        seen.add(name)
        if row.end_ns < row.start_ns:
            raise InvalidInputError(f"{path}.end_ns", f"expected an integer >= {row.start_ns}")
        if row.phase == "backward" and row.end_ns > answer.backward_ns:
            raise InvalidInputError(f"{path}.end_ns", "after the end of the backward pass")
        if row.phase == "forward" and row.start_ns < answer.backward_ns:
            raise InvalidInputError(f"{path}.start_ns", "before the end of the backward pass")
    rows = sorted(enumerate(answer.schedule), key=lambda pair: (pair[1].start_ns, pair[1].end_ns))
    for (_, one), (place, other) in pairwise(rows):
        if other.start_ns < one.end_ns:
            raise InvalidInputError(
                f"schedule[{place}].start_ns", f"{shown(other.op)} overlaps {shown(one.op)}"
            )
    end = rows[-1][1].end_ns
    for name, value in (
        ("iteration_ns", answer.iteration_ns),
        ("objective_ns", answer.objective_ns),
    ):
        if value != end:
            raise InvalidInputError(
                name, f"expected {end}, the end of the last op, got {shown(value)}"
            )


def _check_groups(answer: CaramelAnswer) -> None:
    check_spans("groups", answer.groups, answer.iteration_ns)
    for number, one in enumerate(answer.groups):
        path = f"groups[{number}]"
        if len(set(one.parameters)) < len(one.parameters):
            raise InvalidInputError(f"{path}.parameters", "a parameter is given twice")
        for name, (first, stop) in ({} if one.part is UNSET else one.part).items():
            if name not in one.parameters:
                raise InvalidInputError(f"{path}.part.{name}", "no parameter of this group")
            if first >= stop:
                raise InvalidInputError(f"{path}.part.{name}", "expected a part, got none")
