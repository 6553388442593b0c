"""Baselines: the defaults of FSDP2 and DeepSpeed, in the same simulator.

Each rule uses the mesh on which it is fastest, among those on which it fits into memory. If it fits
on none, it recomputes all activations where checkpoints are known; otherwise it has no plan. What
each rule does, and where that is in the code of torch 2.13 and DeepSpeed 0.19: docs/fsdp.md, "What
the rules do".

Complexity: O(layers · meshes).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from planner.families.fsdp.checker import peak_memory
from planner.families.fsdp.evaluation import merit
from planner.families.fsdp.min_memory import wrapped
from planner.families.fsdp.prefetch import issued_by, needs_of
from planner.families.fsdp.problem import Plan, Problem, Unit, at_use
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome

Rule: TypeAlias = Callable[[Problem, int], Plan]
"""A rule makes a plan for the mesh at a place, ignoring memory."""

# DeepSpeed's defaults: stage3_max_reuse_distance, _max_live_parameters, _prefetch_bucket_size.
REUSE_ELEMENTS = LIVE_ELEMENTS = 1_000_000_000
PREFETCH_ELEMENTS = 50_000_000


def fitted(
    problem: Problem, rule: Rule, deadline: Deadline = NEVER, first: int = 0
) -> Outcome[Plan]:
    """Return a rule's fastest plan that fits into memory, if any does.

    The mesh at place `first` is tried in any case, the others while there is time.
    """
    made: list[Plan] = []
    for mesh in sorted(range(len(problem.meshes)), key=lambda mesh: mesh != first):
        if made and deadline.passed:
            break
        made.append(rule(problem, mesh))
    cut, limit = len(made) < len(problem.meshes), problem.memory_bytes
    again = [_recomputed(problem, plan) for plan in made if problem.checkpoint_bytes is not None]
    for several in (made, again):
        plans = [plan for plan in several if limit is None or peak_memory(problem, plan) <= limit]
        if plans:
            return Outcome(min(plans, key=lambda plan: merit(problem, plan)), timed_out=cut)
    return Outcome(None, timed_out=cut)


def _recomputed(problem: Problem, plan: Plan) -> Plan:
    units = (
        unit._replace(recompute=any(problem.activations[unit.start : unit.stop]))
        for unit in plan.units
    )
    return replace(plan, units=tuple(units))


def fsdp2(
    problem: Problem,
    mesh: int = 0,
    ranges: Sequence[tuple[int, int]] | None = None,
    *,
    keep: bool = False,
    ahead: int = 1,
) -> Plan:
    """Return FSDP2's plan: each block, or each of `ranges`, a unit, with prefetch lists.

    By default every unit is gathered twice, and prefetched a module `ahead`, as FSDP2 does itself.
    """
    units: list[Unit] = []
    blocks = wrapped(problem) if ranges is None else ranges
    last = 2 * len(blocks) - 1
    for u, (start, stop) in enumerate(blocks):
        back = u if u + 1 == len(blocks) else max(last - u - ahead, len(blocks))
        units.append(Unit(start, stop, keep, False, max(u - ahead - 1, 0), None if keep else back))
    return Plan(mesh, tuple(units))


def one_unit(problem: Problem, mesh: int = 0) -> Plan:
    """Return the plan that gathers and scatters everything at once."""
    return fsdp2(problem, mesh, ((0, problem.layers),), keep=True)


def zero_3(problem: Problem, mesh: int = 0) -> Plan:
    """Return the plan of DeepSpeed's stage 3 and its thresholds."""
    ranges = wrapped(problem)
    count, sums = len(ranges), problem.prefixes["parameter_bytes"]
    elements = [(sums[stop] - sums[start]) // problem.element_bytes for start, stop in ranges]
    keep, between = [False] * count, 0
    for u in reversed(range(count)):
        keep[u] = between < REUSE_ELEMENTS
        between += 2 * elements[u]
    rows = zip(ranges, keep, strict=True)
    plan = at_use(mesh, ((*layers, kept, False) for layers, kept in rows))
    needed, issues = needs_of(problem, plan).needed, []
    live = following = 0
    for step in range(2 * count):
        u = plan.unit_of(step)
        if following < len(needed) and needed[following] == step:
            live += elements[u]
            following += 1
        fetched, most = 0, min(PREFETCH_ELEMENTS, LIVE_ELEMENTS - live)
        while following < len(needed) and fetched < most:
            target = needed[following]
            unit = plan.unit_of(target)
            if target >= count and unit >= step:  # still there from the forward pass
                break
            fetched += elements[unit]
            live += elements[unit]
            following += 1
        if step >= count or not keep[u]:
            live -= elements[u]
        issues.append(following)
    return issued_by(plan, needed, issues)


BASELINES: Mapping[str, Rule] = {
    "fsdp2": fsdp2,
    "fsdp2_ahead_2": partial(fsdp2, ahead=2),
    "no_reshard": partial(fsdp2, keep=True),
    "one_unit": one_unit,
    "zero_3": zero_3,
}
"""Rules by method name."""
