"""Computation times of the ops of a traced step, and the duration of the step.

Problem: the time between the starts of two ops also holds other work: on a device the end of the
step before, collectives, and waiting for the host. Method: on a device an op takes as long as its
kernels run, without collectives; time in which kernels of several ops run counts for the one whose
kernel started first, so the sum cannot exceed the step. Without a device an op lasts until the next
one starts: what lies between (Python, operators without a node) is work of the same processor. A
step lasts as long as its range, or, if the host runs ahead of the device, from the end of its
kernels to that of the next step's.
Complexity: O(kernels · log kernels). Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from planner.formats.importers.communication_kernels import library_of
from planner.formats.importers.kineto_calls import Call, Event
from planner.model.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one step (ns).

    `ops_ns` are the computation times of the ops, on a device if `device`. The step's range is from
    `start_ns` to `end_ns`; its last op or kernel ended at `done_ns`. `collectives_ns` is the time
    of collectives that its ops started on the device.
    """

    ops_ns: tuple[int, ...]
    device: bool
    start_ns: int
    end_ns: int
    done_ns: int
    collectives_ns: int


def times_of(
    name: str, groups: Sequence[Sequence[Call]], span: tuple[int, int], *, kernels_ran: bool
) -> Times:
    """Return the times of the ops of a step; `groups` holds the calls of each op in order.

    Kernels that no operator of the step started are an `InvalidInputError`.
    """
    kernels = [[kernel for call in group for kernel in call.kernels] for group in groups]
    computing = [[kernel for kernel in group if not _moves(kernel)] for group in kernels]
    device = any(computing)
    if kernels_ran and not device:
        raise InvalidInputError(
            name,
            "kernels ran on a device, but no operator of the step started one: record the "
            "calls of its runtime too (category cuda_runtime)",
        )
    events = kernels if device else [[call.event for call in group] for group in groups]
    return Times(
        ops_ns=_busy(computing) if device else _until_the_next(events),
        device=device,
        start_ns=span[0],
        end_ns=span[1],
        done_ns=max(event.end_ns for group in events for event in group),
        collectives_ns=busy_ns(kernel for group in kernels for kernel in group if _moves(kernel)),
    )


def step_ns(steps: Sequence[Times], places: Sequence[int]) -> int:
    """Return the mean duration of a step (ns); `places` are the steps' positions in the trace."""
    first, last = steps[0], steps[-1]
    if len(steps) == 1:
        return max(first.end_ns, first.done_ns) - first.start_ns
    apart = (last.done_ns - first.done_ns) / (places[-1] - places[0])
    return round(max(apart, fmean(step.end_ns - step.start_ns for step in steps)))


def busy_ns(events: Iterable[Event]) -> int:
    """Return the length of the union of the events (ns)."""
    return sum(_busy([[event] for event in events]))


def _busy(groups: Sequence[Sequence[Event]]) -> tuple[int, ...]:
    """Return the running time of each group; overlaps count for the event that began first."""
    times = [0] * len(groups)
    covered = None
    events = [
        (event.start_ns, event.end_ns, place) for place, row in enumerate(groups) for event in row
    ]
    for start, end, place in sorted(events):
        begin = start if covered is None else max(start, covered)
        times[place] += max(end - begin, 0)
        covered = max(end, begin)
    return tuple(times)


def _until_the_next(groups: Sequence[Sequence[Event]]) -> tuple[int, ...]:
    """Return the time from the start of each group to that of the next one."""
    starts = [group[0].start_ns for group in groups]
    for place in range(1, len(starts)):  # with several threads a later op may start earlier
        starts[place] = max(starts[place], starts[place - 1])
    end = max(event.end_ns for group in groups for event in group)
    ends = [*starts[1:], max(end, starts[-1])]
    return tuple(stop - start for start, stop in zip(starts, ends, strict=True))


def _moves(kernel: Event) -> bool:
    """Whether a kernel only moves data between ranks."""
    return kernel.message is not None or bool(library_of(kernel.name))
