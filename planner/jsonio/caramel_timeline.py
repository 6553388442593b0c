"""Validate Caramel answers that are read back, and extract their schedule."""

from math import isfinite

from msgspec import UNSET

from planner.families.caramel.evaluation import Evaluation
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.heads import check_head, made_by
from planner.jsonio.schedules import check_parts, check_sizes, check_startups, simulated
from planner.jsonio.transfers import timeline_of
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import check_same, shown
from planner.solving.timeline import Kind, Timeline

_NUMBERS = (
    "op_order",
    "order",
    "control_edges",
    "iteration_ns",
    "backward_ns",
    "computation_ns",
    "communication_ns",
    "stall_ns",
    "overlap",
    "utilisation",
    "schedule",
)
"""Fields that every plan has and that are never null."""


def headline(answer: CaramelAnswer) -> str:
    """Return a one-line summary: the plan and its cost."""
    if answer.objective_ns is None:
        return f"There is no plan ({made_by(answer)})"
    return (
        f"An iteration takes {format_ns(answer.iteration_ns)} with "
        f"{counted(len(answer.groups), 'all-reduce')}; computation waits "
        f"{format_ns(answer.stall_ns)} of it ({made_by(answer)})"
    )


def timeline(answer: CaramelAnswer) -> Timeline:
    """Check an answer and return its schedule; errors carry a path."""
    check_head(answer, "groups", *_NUMBERS, costs="iteration_ns")
    for name in ("threshold_bytes", "rho"):  # these may be null
        if getattr(answer, name) is UNSET:
            raise InvalidInputError(name, "missing: it comes with a plan")
    _check_numbers(answer)
    _check_groups(answer)
    kinds: list[Kind] = ["all_reduce"] * len(answer.groups)
    return timeline_of(answer.schedule, answer.groups, kinds, answer.backward_ns)


def _check_numbers(answer: CaramelAnswer) -> None:
    """Check that the schedule is feasible and has the stated costs."""
    iteration, computation = simulated(
        "groups", answer.groups, answer.schedule, answer.op_order, barrier=answer.barrier
    )
    check_startups("groups", answer.groups, [group.depth for group in answer.groups])
    cost = Evaluation(
        iteration,
        (),
        iteration_ns=iteration.end_ns,
        communication_ns=sum(end - start for start, end in iteration.transfers),
        computation_ns=computation,
    )
    for name, value in (
        ("iteration_ns", cost.iteration_ns),
        ("backward_ns", iteration.backward[-1][1] if iteration.backward else 0),
        ("computation_ns", cost.computation_ns),
        ("communication_ns", cost.communication_ns),
        ("stall_ns", cost.stall_ns),
        ("rho", cost.rho),
        ("overlap", cost.overlap),
        ("utilisation", cost.utilisation),
    ):
        check_same(getattr(answer, name), value, name)
    if not isfinite(answer.traffic):
        raise InvalidInputError("traffic", f"expected a number, got {shown(answer.traffic)}")
    ops = set(answer.op_order)
    for place, edge in enumerate(answer.control_edges):
        if not ops.issuperset(edge):
            raise InvalidInputError(f"control_edges[{place}]", "expected names in op_order")


def _check_groups(answer: CaramelAnswer) -> None:
    """Check that the groups send every byte of every gradient exactly once."""
    known = set(answer.order)
    if len(known) < len(answer.order):
        raise InvalidInputError("order", "a parameter is given twice")
    sizes = None if answer.parameter_bytes is UNSET else answer.parameter_bytes
    if sizes is not None and sizes.keys() != known:
        raise InvalidInputError("parameter_bytes", "expected the parameters in order")
    groups = list(enumerate(answer.groups))
    for number, group in groups:
        for place, name in enumerate(group.parameters):
            if name not in known:
                raise InvalidInputError(
                    f"groups[{number}].parameters[{place}]",
                    f"expected a name in order, got {shown(name)}",
                )
    sent = check_parts("groups", groups, sizes)
    for name in answer.order:
        if name not in sent:
            raise InvalidInputError("groups", f"{shown(name)} is not sent")
    check_sizes("groups", groups, sizes)
