"""Validate Caramel answers that are read back, and extract their schedule."""

from msgspec import UNSET

from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.heads import check_head, made_by
from planner.jsonio.schedules import check_parts, check_schedule, check_sizes
from planner.jsonio.transfers import timeline_of
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import shown
from planner.solving.timeline import Kind, Timeline

__all__ = ["headline", "timeline"]


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
    check_schedule("groups", answer.groups, answer)
    _check_groups(answer)
    kinds: list[Kind] = ["all_reduce"] * len(answer.groups)
    return timeline_of(answer.schedule, answer.groups, kinds, answer.backward_ns)


def _check_groups(answer: CaramelAnswer) -> None:
    """Check that the groups send every byte of every gradient exactly once."""
    known = dict.fromkeys(answer.order)
    if len(known) < len(answer.order):
        raise InvalidInputError("order", "a parameter is given twice")
    sizes = None if answer.parameter_bytes is UNSET else answer.parameter_bytes
    if sizes is not None and sizes.keys() != known.keys():
        raise InvalidInputError("parameter_bytes", "expected the parameters in order")
    groups = list(enumerate(answer.groups))
    sent = check_parts("groups", groups, sizes)
    for name in dict.fromkeys([*known, *sent]):
        if (name in sent) != (name in known):
            what = "is sent, and not in order" if name in sent else "is not sent"
            raise InvalidInputError("groups", f"{shown(name)} {what}")
    check_sizes("groups", groups, sizes)
