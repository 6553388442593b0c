"""Baselines: the defaults of FSDP2 and DeepSpeed, in the same simulator.

Each rule uses the mesh on which it is fastest, among those on which it fits into memory. If it fits
on none, it recomputes all activations where checkpoints are known; otherwise it has no plan. What
each rule does, and where that is in the code of torch 2.13 and DeepSpeed 0.19: docs/fsdp.md, "What
the rules do".

Complexity: O(layers · meshes).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from planner.fsdp.checker import checked_peak
from planner.fsdp.evaluation import merit
from planner.fsdp.integer_program import units_exposing_least
from planner.fsdp.least import wrapped
from planner.fsdp.overlap_pass import overlap_pass
from planner.fsdp.plan import Plan, Unit
from planner.fsdp.problem import Problem

__all__ = [
    "RULES",
    "fitted",
    "fsdp2",
    "fsdp2_ahead_2",
    "fsdp_milp",
    "no_reshard",
    "one_unit",
    "overlap_pass",
    "zero_3",
]


class Rule(Protocol):
    """A rule makes a plan for the mesh at a place, ignoring memory."""

    def __call__(self, problem: Problem, mesh: int = 0) -> Plan:
        """Return the plan."""


# DeepSpeed's defaults: stage3_max_reuse_distance, _max_live_parameters, _prefetch_bucket_size.
REUSE_ELEMENTS = LIVE_ELEMENTS = 1_000_000_000
PREFETCH_ELEMENTS = 50_000_000


def fitted(problem: Problem, rule: Rule) -> Plan | None:
    """Return a rule's fastest plan that fits into memory, or None."""
    made = [rule(problem, mesh) for mesh in range(len(problem.meshes))]
    limit = problem.memory_bytes
    again = [_recomputed(problem, plan) for plan in made if problem.checkpoint_bytes is not None]
    for several in (made, again):
        plans = [plan for plan in several if limit is None or checked_peak(problem, plan) <= limit]
        if plans:
            return min(plans, key=lambda plan: merit(problem, plan))
    return None


def _recomputed(problem: Problem, plan: Plan) -> Plan:
    units = (
        unit._replace(recompute=any(problem.activations[unit.start : unit.stop]))
        for unit in plan.units
    )
    return replace(plan, units=tuple(units))


def fsdp2(problem: Problem, mesh: int = 0) -> Plan:
    """Return FSDP2's default: every block a unit, gathered twice, with implicit prefetching."""
    return _streams(mesh, wrapped(problem), keep=False, ahead=1)


def fsdp2_ahead_2(problem: Problem, mesh: int = 0) -> Plan:
    """Return FSDP2's plan with prefetch lists of two modules."""
    return _streams(mesh, wrapped(problem), keep=False, ahead=2)


def no_reshard(problem: Problem, mesh: int = 0) -> Plan:
    """Return FSDP2's plan that keeps every block until its backward computation."""
    return _streams(mesh, wrapped(problem), keep=True, ahead=1)


def fsdp_milp(problem: Problem, mesh: int = 0) -> Plan:
    """Return FSDP2's plan with the units of PyTorch's integer program."""
    most = sum(problem.parameter_bytes)
    while True:
        plan = _streams(mesh, units_exposing_least(problem, mesh, most), keep=False, ahead=1)
        fits = problem.memory_bytes is None or checked_peak(problem, plan) <= problem.memory_bytes
        if fits or most <= min(problem.parameter_bytes):
            return plan
        most //= 4


def one_unit(problem: Problem, mesh: int = 0) -> Plan:
    """Return the plan that gathers and scatters everything at once."""
    return _streams(mesh, ((0, problem.layers),), keep=True, ahead=1)


def zero_3(problem: Problem, mesh: int = 0) -> Plan:
    """Return the plan of DeepSpeed's stage 3 and its thresholds."""
    ranges = wrapped(problem)
    count, sums = len(ranges), problem.prefixes["parameter_bytes"]
    elements = [(sums[stop] - sums[start]) // problem.element_bytes for start, stop in ranges]
    keep, between = [False] * count, 0
    for u in reversed(range(count)):
        keep[u] = between < REUSE_ELEMENTS
        between += 2 * elements[u]
    needed = [*range(count), *(2 * count - 1 - u for u in reversed(range(count)) if not keep[u])]
    at = [0] * (2 * count)
    live = following = 0
    for step in range(2 * count):
        u = step if step < count else 2 * count - 1 - step
        if following < len(needed) and needed[following] == step:
            at[step] = step
            live += elements[u]
            following += 1
        fetched, most = 0, min(PREFETCH_ELEMENTS, LIVE_ELEMENTS - live)
        while following < len(needed) and fetched < most:
            target = needed[following]
            unit = target if target < count else 2 * count - 1 - target
            if target >= count and unit >= step:  # still there from the forward pass
                break
            at[target] = step
            fetched, live, following = (
                fetched + elements[unit],
                live + elements[unit],
                following + 1,
            )
        if step >= count or not keep[u]:
            live -= elements[u]
    units = (
        Unit(start, stop, keep[u], False, at[u], None if keep[u] else at[2 * count - 1 - u])
        for u, (start, stop) in enumerate(ranges)
    )
    return Plan(mesh, tuple(units))


def _streams(mesh: int, ranges: Sequence[tuple[int, int]], *, keep: bool, ahead: int) -> Plan:
    """Return FSDP2's plan with prefetch lists of `ahead` modules."""
    count = len(ranges)
    last = 2 * count - 1
    units = []
    for u, (start, stop) in enumerate(ranges):
        back = u if u + 1 == count else max(last - u - ahead, count)
        units.append(Unit(start, stop, keep, False, max(u - ahead - 1, 0), None if keep else back))
    return Plan(mesh, tuple(units))


RULES: Mapping[str, Rule] = {
    "fsdp2": fsdp2,
    "fsdp2_ahead_2": fsdp2_ahead_2,
    "no_reshard": no_reshard,
    "one_unit": one_unit,
    "zero_3": zero_3,
    "overlap_pass": overlap_pass,
    "fsdp_milp": fsdp_milp,
}
"""Rules by method name."""
