"""Predicted times of transfers and of the computation. Needs no torch."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.programs import Answer


class PredictedTransfer(NamedTuple):
    """The predicted time of a transfer, and its bytes; None if the plan does not know them."""

    time_ns: int
    size_bytes: int | None


def predicted_transfers(answers: Sequence[Answer]) -> dict[tuple[str, int], PredictedTransfer]:
    """Return the predicted transfers, by direction and batch."""
    known: dict[tuple[str, int], PredictedTransfer] = {}
    for answer in answers:
        if isinstance(answer, CaramelAnswer):
            for number, group in enumerate(answer.groups):
                known["", number] = PredictedTransfer(group.end_ns - group.start_ns, group.bytes)
        elif isinstance(answer, IterationAnswer) and isinstance(answer.transfers, tuple):
            for kind in ("all_reduce", "push", "pull"):
                direction = "" if kind == "all_reduce" else kind
                transfers = [sent for sent in answer.transfers if sent.kind == kind]
                for number, sent in enumerate(transfers):
                    known[direction, number] = PredictedTransfer(
                        sent.end_ns - sent.start_ns, sent.bytes
                    )
        elif isinstance(answer, IbatchAnswer) and isinstance(answer.schedule, tuple):
            sizes = answer.layer_bytes if isinstance(answer.layer_bytes, tuple) else None
            for number, row in enumerate(answer.schedule):
                size = None if sizes is None else sum(sizes[slice(*row.layers)])
                time = row.transfer_end_ns - row.transfer_start_ns
                known[answer.direction, number] = PredictedTransfer(time, size)
    return known


def predicted_computation(answers: Sequence[Answer]) -> dict[tuple[str, ...], int]:
    """Return the predicted computation time (ns), by the passes it covers."""
    known: dict[tuple[str, ...], int] = {}
    for answer in answers:
        if isinstance(answer, CaramelAnswer | IterationAnswer):
            whole, stall = answer.iteration_ns, answer.stall_ns
            if whole is not UNSET and stall is not UNSET:
                known["forward", "backward"] = whole - stall
        elif isinstance(answer, IbatchAnswer) and isinstance(answer.schedule, tuple):
            computed = sum(row.compute_end_ns - row.compute_start_ns for row in answer.schedule)
            known["forward" if answer.direction == "pull" else "backward",] = computed
    return known
