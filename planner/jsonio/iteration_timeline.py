"""Validate answers about whole iterations that are read back, and extract their schedule."""

from collections.abc import Sequence

from msgspec import UNSET

from planner.jsonio.heads import check_head, made_by
from planner.jsonio.iteration_answer import IterationAnswer, TransferAnswer
from planner.jsonio.programs import check_program
from planner.jsonio.schedules import check_parts, check_schedule, check_sizes
from planner.jsonio.transfers import timeline_of
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import shown
from planner.solving.timeline import Timeline

__all__ = ["headline", "timeline"]


def headline(answer: IterationAnswer) -> str:
    """Return a one-line summary: the plan and its cost."""
    if answer.synchronisation is UNSET or answer.transfers is UNSET or answer.iteration_ns is UNSET:
        return f"There is no plan ({made_by(answer)})"
    synchronisation = answer.synchronisation
    stalls = 0 if answer.stall_ns is UNSET else answer.stall_ns
    return (
        f"An iteration on {answer.cluster} takes {format_ns(answer.iteration_ns)} with "
        f"{counted(len(answer.transfers), 'transfer')} by {synchronisation.named}, "
        f"{synchronisation.mode}; computation waits {format_ns(stalls)} of it ({made_by(answer)})"
    )


def timeline(answer: IterationAnswer) -> Timeline:
    """Check an answer and return its schedule; errors carry a path."""
    check_head(answer, "transfers", "schedule", "op_order", "backward_ns", costs="iteration_ns")
    assert answer.transfers is not UNSET
    assert answer.schedule is not UNSET
    assert answer.backward_ns is not UNSET
    check_schedule("transfers", answer.transfers, answer)
    for number, transfer in enumerate(answer.transfers):
        if transfer.kind == "pull" and transfer.ready_ns < answer.backward_ns:
            raise InvalidInputError(
                f"transfers[{number}].ready_ns", "before the backward pass has ended"
            )
    _check_sent(answer, answer.transfers)
    if answer.synchronisation is not UNSET:
        for used in answer.synchronisation.algorithms:
            check_program(used.program, answer.workers)
    kinds = [transfer.kind for transfer in answer.transfers]
    return timeline_of(answer.schedule, answer.transfers, kinds, answer.backward_ns)


def _check_sent(answer: IterationAnswer, transfers: Sequence[TransferAnswer]) -> None:
    """Check that every byte is pushed exactly once, and pulled exactly once afterwards."""
    sizes = None if answer.parameter_bytes is UNSET else answer.parameter_bytes
    pulled = sizes if answer.pull_bytes is UNSET else answer.pull_bytes
    sums = [
        (place, transfer) for place, transfer in enumerate(transfers) if transfer.kind != "pull"
    ]
    pulls = [
        (place, transfer) for place, transfer in enumerate(transfers) if transfer.kind == "pull"
    ]
    if pulls and any(transfer.kind == "all_reduce" for _, transfer in sums):
        raise InvalidInputError("transfers", "all-reduces and pulls in one plan")
    summed = check_parts("transfers", sums, sizes)
    check_sizes("transfers", sums, sizes)
    if not any(transfer.kind == "push" for _, transfer in sums):
        return
    handed = check_parts("transfers", pulls, pulled)
    check_sizes("transfers", pulls, pulled)
    if summed.keys() != handed.keys():
        odd = min(summed.keys() ^ handed.keys())
        raise InvalidInputError("transfers", f"{shown(odd)} is not both pushed and pulled")
    alike = answer.pull_bytes is UNSET
    for name, parts in handed.items():
        for start, stop, place in parts:
            needed = [
                number
                for first, last, number in summed[name]
                if not alike or -1 in (stop, last) or (first < stop and start < last)
            ]
            if max(needed) > place:
                raise InvalidInputError(
                    f"transfers[{place}]", f"pulls {shown(name)} before all of it was pushed"
                )
            if transfers[place].ready_ns < max(transfers[number].end_ns for number in needed):
                raise InvalidInputError(
                    f"transfers[{place}].ready_ns", f"before {shown(name)} was pushed"
                )
