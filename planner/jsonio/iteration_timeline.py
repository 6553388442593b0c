"""Answers about whole iterations read again: their schedule, and whether they can be one."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import UNSET

from planner.errors import InvalidInputError
from planner.jsonio.caramel import CaramelAnswer, GroupAnswer, OpTimes
from planner.jsonio.iteration_answer import IterationAnswer, TransferAnswer
from planner.jsonio.transfers import check_spans, content, drawn
from planner.timeline import Interval, Mark, Timeline
from planner.units import format_ns
from planner.validation import shown

__all__ = ["gradient_answer", "headline", "timeline"]

_VERBS = {"all_reduce": "all-reduce", "push": "push", "pull": "pull"}


def headline(given: IterationAnswer) -> str:
    """Return one line that says what a plan is and what it costs."""
    if given.synchronisation is UNSET or given.transfers is UNSET or given.iteration_ns is UNSET:
        return f"iteration · {given.method} · {given.status}"
    count, one = len(given.transfers), given.synchronisation
    stalls = 0 if given.stall_ns is UNSET else given.stall_ns
    return (
        f"{given.cluster} · {given.method} · {one.algorithm}, {one.mode} · {count} "
        f"transfer{'s' if count > 1 else ''} · iteration {format_ns(given.iteration_ns)} · "
        f"stalls {format_ns(stalls)} · {given.status}"
    )


def timeline(given: IterationAnswer) -> Timeline:
    """Return the schedule in an answer.

    Raises
    ------
    InvalidInputError
        If it has none, or its times contradict each other, with the path of the first that does.
    """
    if given.transfers is UNSET or given.schedule is UNSET or given.backward_ns is UNSET:
        reason = "" if given.reason is UNSET else f": {given.reason}"
        raise InvalidInputError("transfers", f"missing: the answer holds no plan{reason}")
    _check(given, given.transfers, given.schedule)
    computation, network = "computation", "network"
    intervals = [
        Interval(computation, row.start_ns, row.end_ns, row.phase, -1, row.op)
        for row in given.schedule
    ]
    windows = []
    for number, one in enumerate(given.transfers):
        label = f"{_VERBS[one.kind]} {number + 1}: {content(one)}"
        spans, window = drawn(number, one, label)
        intervals += spans
        windows.append(window)
    return Timeline(
        (computation, network),
        tuple(intervals),
        tuple(windows),
        (Mark(given.backward_ns, "end of the backward pass"),),
    )


def _check(
    given: IterationAnswer, transfers: Sequence[TransferAnswer], schedule: Sequence[OpTimes]
) -> None:
    for place, row in enumerate(schedule):
        if row.end_ns < row.start_ns:
            raise InvalidInputError(
                f"schedule[{place}].end_ns", f"expected an integer >= {row.start_ns}"
            )
    for place, (before, row) in enumerate(pairwise(schedule), start=1):
        if row.start_ns < before.end_ns:
            raise InvalidInputError(
                f"schedule[{place}].start_ns", f"{shown(row.op)} overlaps {shown(before.op)}"
            )
    end = schedule[-1].end_ns
    for name in ("iteration_ns", "objective_ns"):
        if getattr(given, name) != end:
            raise InvalidInputError(
                name, f"expected {end}, the end of the last op, got {shown(getattr(given, name))}"
            )
    bound = given.lower_bound_ns
    if (given.status == "optimal") != (bound == end) or (bound is not None and bound > end):
        raise InvalidInputError("status", f"{given.status}, but lower_bound_ns is {shown(bound)}")
    check_spans("transfers", transfers, end)


def gradient_answer(given: IterationAnswer) -> CaramelAnswer | None:
    """Return a replicated plan as one of gradient transfers, which it is; None of a sharded one.

    Raises
    ------
    InvalidInputError
        If the answer holds no plan.
    """
    timeline(given)
    if given.transfers is UNSET or any(one.kind != "all_reduce" for one in given.transfers):
        return None
    assert given.objective_ns is not None
    times = {
        name: getattr(given, name)
        for name in (
            "iteration_ns",
            "backward_ns",
            "computation_ns",
            "communication_ns",
            "stall_ns",
        )
    }
    computed, sent = times["computation_ns"], times["communication_ns"]
    both, shorter = computed + sent - times["iteration_ns"], min(computed, sent)
    return CaramelAnswer(
        method=given.method,
        status=given.status,  # type: ignore[arg-type]
        objective_ns=given.objective_ns,
        lower_bound_ns=given.lower_bound_ns,
        runtime_s=given.runtime_s,
        op_order=() if given.op_order is UNSET else given.op_order,
        order=tuple(dict.fromkeys(name for one in given.transfers for name in one.parameters)),
        control_edges=(),
        threshold_bytes=None,
        groups=tuple(
            GroupAnswer(
                parameters=one.parameters,
                bytes=one.bytes,
                depth=1,
                ready_ns=one.ready_ns,
                start_ns=one.start_ns,
                startup_end_ns=one.startup_end_ns,
                end_ns=one.end_ns,
                due_ns=one.due_ns,
                part=one.part,
            )
            for one in given.transfers
        ),
        rho=sent / computed if computed else None,
        overlap=both / shorter if shorter else 1.0,
        utilisation=computed / times["iteration_ns"] if times["iteration_ns"] else 1.0,
        schedule=() if given.schedule is UNSET else given.schedule,
        barrier=given.barrier,
        ranks=given.workers,
        **times,
    )
