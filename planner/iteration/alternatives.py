"""Every way of synchronising on a cluster, each with its best plan and its bound.

Problem: algorithm × mode, replicated or sharded: which plans are there to choose from?

Method: for each algorithm the cluster allows, the best plan of gradient transfers
(`planner.caramel`, method `auto`) and the best sharded plan: iBatch's exact batches both ways, or a
rule's plan where that is better (`planner.iteration.sharded`, `planner.iteration.rules`). Transfers
larger than the cap, or than memory leaves room for, are cut; where that is needed plans of
transfers that fit compete with them: filled ones (`planner.iteration.filling`) and the rules'.
Algorithms that cost the same are planned once.

Guarantee: each bound holds for all plans of its algorithm and mode under the plan's op order, with
any transfers; the least of them for all that are listed.

Complexity: that of the families' methods, for each distinct cost.
Source: own.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from planner import caramel
from planner.costs import AffineCost
from planner.deadline import Deadline
from planner.errors import NotApplicableError
from planner.iteration.bounds import bound
from planner.iteration.evaluation import evaluate
from planner.iteration.filling import filled
from planner.iteration.fsdp_units import fsdp_milp
from planner.iteration.problem import Mode, Part, Plan, Problem, Transfer
from planner.iteration.rules import (
    GRADIENTS,
    enforced,
    from_gradients,
    layers_apart,
    servers,
)
from planner.iteration.sharded import both_ways
from planner.iteration.synchronisation import Synchronisation
from planner.results import Infeasibility

__all__ = ["Alternative", "alternatives", "capped", "too_many", "too_small"]

LEAST_SECONDS = 0.001
"""What each alternative gets even when the time is up: a plan by rule, and its bound."""

MAX_TRANSFERS = 10_000
"""Transfers of a plan if all are as large as there is room for; more of them take too long."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan found for one algorithm and one mode.

    Attributes
    ----------
    synchronisation : Synchronisation
        The algorithm and its cost.
    mode : {"replicated", "sharded"}
        Who updates the parameters.
    plan : Plan or None
        Its plan; None if there is none.
    objective_ns : int or None
        What the plan costs.
    lower_bound_ns : int or None
        What no plan of this algorithm and mode undercuts; None if there can be no plan.
    infeasibility : Infeasibility or None
        Why there is no plan.
    timed_out : bool
        Whether the time limit cut in.
    """

    synchronisation: Synchronisation
    mode: Mode
    plan: Plan | None
    objective_ns: int | None
    lower_bound_ns: int | None
    infeasibility: Infeasibility | None = None
    timed_out: bool = False


def alternatives(
    problem: Problem,
    deadline: Deadline,
    progress: Callable[[str], None] | None = None,
) -> tuple[Alternative, ...]:
    """Return every algorithm in both modes, in the order of the algorithms.

    Parameters
    ----------
    problem : Problem
        The problem.
    deadline : Deadline
        When to stop searching; every alternative still gets a plan.
    progress : callable, optional
        Called with the name of each alternative before it is planned.
    """
    found: list[Alternative] = []
    known: dict[AffineCost, tuple[Alternative, ...]] = {}
    for synchronisation in problem.options:
        key = synchronisation.half
        if key not in known:
            if progress:
                progress(synchronisation.algorithm)
            known[key] = _both_modes(problem, synchronisation, deadline)
        found += [_renamed(one, synchronisation) for one in known[key]]
    return tuple(found)


def _renamed(alternative: Alternative, synchronisation: Synchronisation) -> Alternative:
    plan = alternative.plan
    if plan is not None:
        plan = replace(plan, algorithm=synchronisation.algorithm)
    return replace(alternative, synchronisation=synchronisation, plan=plan)


def _both_modes(
    problem: Problem, synchronisation: Synchronisation, deadline: Deadline
) -> tuple[Alternative, ...]:
    """Plan for one algorithm, replicated and sharded."""
    name, seconds = synchronisation.algorithm, deadline.remaining_s
    if seconds is not None:
        seconds = max(seconds, LEAST_SECONDS)
    result = caramel.solve(problem.gradients[name], time_limit=seconds)
    assert result.plan is not None
    together = from_gradients(name, result.plan)
    apart = [
        enforced(problem, name, both_ways(problem, synchronisation.half, problem.room("sharded"))),
        servers(problem, synchronisation),
        layers_apart(problem, synchronisation),
    ]
    if (
        problem.room("sharded") is not None
    ):  # units that fit can be better than batches that are cut
        with suppress(NotApplicableError):
            apart.append(fsdp_milp(problem, synchronisation))
    if problem.pulled == problem.pushed:
        apart.append(in_halves(together))
    gradients, room = [together], problem.room("replicated")
    if room is not None and any(one.size_bytes > room for one in together.transfers):
        for rule in GRADIENTS.values():  # transfers that fit can be better than those that are cut
            if deadline.passed:
                break
            with suppress(NotApplicableError):
                gradients.append(rule(problem, synchronisation))
    plans: dict[Mode, list[Plan]] = {"replicated": gradients, "sharded": apart}
    return tuple(
        _best(problem, synchronisation, mode, plans[mode], result.timed_out, deadline)
        for mode in problem.modes
    )


def in_halves(plan: Plan) -> Plan:
    """Return the plan with every all-reduce as a push and the pull of the same right behind it."""
    halves = [replace(one, kind=kind) for one in plan.transfers for kind in ("push", "pull")]
    return replace(plan, transfers=tuple(halves))


def _best(
    problem: Problem,
    synchronisation: Synchronisation,
    mode: Mode,
    plans: Sequence[Plan],
    timed_out: bool,
    deadline: Deadline,
) -> Alternative:
    """Return the best of the plans of one mode, with its bound."""
    small = too_small(problem, mode)
    if small:
        return Alternative(synchronisation, mode, None, None, None, small)
    many = too_many(problem, mode)
    if many:  # there are plans, though none is made: their bound counts
        return Alternative(
            synchronisation, mode, None, None, bound(problem, synchronisation, mode), many
        )
    room, best = problem.room(mode), None
    tight = room is not None and any(
        one.size_bytes > room for plan in plans for one in plan.transfers
    )
    if tight:
        plans = [
            *(filled(problem, synchronisation, mode, waiting=waiting) for waiting in (True, False)),
            *plans,
        ]
    for plan in plans:
        if best is not None and tight and deadline.passed:
            timed_out = True
            break
        fitting = capped(problem, plan)
        price = evaluate(problem, fitting).iteration_ns, len(fitting.transfers)
        if best is None or price < best[0]:
            best = price, fitting
    assert best is not None
    (objective, _), plan = best
    least = bound(problem, synchronisation, mode, plan)
    return Alternative(synchronisation, mode, plan, objective, least, timed_out=timed_out)


def too_small(problem: Problem, mode: Mode) -> Infeasibility | None:
    """Return why no transfer at all can be made in a mode, if so."""
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
    # Of all modes, whichever was asked for: who hears it for one wants to know of the other.
    reason = footprint.shortage(problem.modes, problem.cluster.workers, memory, element)
    return Infeasibility(reason, ("memory_bytes",))


def too_many(problem: Problem, mode: Mode) -> Infeasibility | None:
    """Return why the transfers of a mode are too many to be planned, if so."""
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


def capped(problem: Problem, plan: Plan) -> Plan:
    """Return the plan with every transfer cut that is larger than there is room for."""
    room = problem.room(plan.mode)
    if room is None or all(one.size_bytes <= room for one in plan.transfers):
        return plan
    pieces = tuple(
        piece for one in plan.transfers for piece in _cut(one, room, problem.element_bytes)
    )
    return replace(plan, transfers=pieces)


def _cut(transfer: Transfer, room: int, element: int) -> list[Transfer]:
    """Return transfers of at most `room` bytes that carry the same in the same order."""
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
