"""The largest transfer that the cap and the memory limit allow, and its consequences.

Problem: decide whether a mode has any transfer, and not too many or too long ones; cut a plan to
fitting transfers.
Guarantee: a cut plan sends the same bytes in the same order.
Complexity: O(parts + transfers).
Source: own.
"""

from dataclasses import replace

from planner.families.iteration.plan import Mode, Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.ways import Way
from planner.model.costs import TableCost
from planner.model.validation import MAX_TOTAL
from planner.solving.result import Infeasibility
from planner.solving.transfers import Part, Transfer

MAX_TRANSFERS = 4_000
"""Transfers of a plan if all have the largest size; more would take too long to plan."""


def too_small(problem: Problem, mode: Mode) -> Infeasibility | None:
    """Return why a mode has no feasible transfer, or None."""
    room = problem.room(mode)
    largest = max(problem.pushed if mode == "replicated" else problem.pushed + problem.pulled)
    element = min(problem.element_bytes, largest)
    if room is None or room >= element:
        return None
    if room == problem.max_transfer_bytes:
        return Infeasibility(
            f"max_transfer_bytes = {room} is less than an element ({element} bytes)",
            ("max_transfer_bytes",),
        )
    memory, footprint = problem.cluster.worker_memory_bytes, problem.footprint
    assert memory is not None
    assert footprint is not None
    # Name all modes: a reader who learns that one does not fit needs the other too.
    reason = footprint.shortage(problem.modes, problem.cluster.workers, memory, element)
    return Infeasibility(reason, ("memory_bytes",))


def too_many(problem: Problem, mode: Mode) -> Infeasibility | None:
    """Return why the transfers of a mode are too many to be planned, or None."""
    room = problem.room(mode)
    size = sum(problem.pushed if mode == "replicated" else problem.pushed + problem.pulled)
    if room is None or size <= room * MAX_TRANSFERS:
        return None
    binding = "max_transfer_bytes" if room == problem.max_transfer_bytes else "memory_bytes"
    return Infeasibility(
        f"{mode}: {binding} leaves transfers room for {room} of {size} bytes, and at most "
        f"{MAX_TRANSFERS} transfers are planned",
        (binding,),
    )


def too_long(problem: Problem, way: Way, mode: Mode) -> Infeasibility | None:
    """Return why the times of a mode overflow under measured tables, or None.

    A `Problem` itself checks all-reduces, and costs that are not measured.
    """
    if mode == "replicated" or problem.cluster.network is None:
        return None
    for kind, sizes in (("push", problem.pushed), ("pull", problem.pulled)):
        for cost in (option.cost(kind) for option in way.options):
            dearest = cost.cost_ns(sum(sizes))
            if isinstance(cost, TableCost):
                dearest = max(dearest, *(time for _, time in cost.points))
            lasts = 4 * (len(sizes) + 1) * problem.interference.beside_ns(dearest)
            if lasts + problem.base.windows.compute_ns > MAX_TOTAL:
                return Infeasibility(
                    f"{mode}: the computation and the time of four times as many transfers of kind "
                    f"{kind} as parameters do not fit in 63 bits, by the tables that were measured",
                    ("cluster.network",),
                )
    return None


def capped(problem: Problem, plan: Plan) -> Plan:
    """Return the plan with every transfer over the limit cut."""
    room = problem.room(plan.mode)
    if room is None or all(transfer.size_bytes <= room for transfer in plan.transfers):
        return plan
    pieces = tuple(
        piece
        for transfer in plan.transfers
        for piece in _cut(transfer, room, problem.element_bytes)
    )
    return replace(plan, transfers=pieces)


def _cut(transfer: Transfer, room: int, element: int) -> list[Transfer]:
    """Return transfers of at most `room` bytes that carry the same bytes in the same order."""
    pieces: list[list[Part]] = [[]]
    left = room
    for index, first, last in transfer.parts:
        start = first
        while start < last:
            size = last - start if last - start <= left else left - left % element
            if size:
                pieces[-1].append(Part(index, start, start + size))
                start += size
                left -= size
            if start < last:
                pieces.append([])
                left = room
    return [replace(transfer, parts=tuple(parts)) for parts in pieces if parts]
