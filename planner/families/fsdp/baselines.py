"""Baselines: the defaults of FSDP2 and DeepSpeed, in the same simulator.

Each rule uses the mesh on which it is fastest, among those on which it fits into memory. If it fits
on none, it recomputes all activations where checkpoints are known; otherwise it has no plan. What
each rule does, and where that is in the code of torch 2.13 and DeepSpeed 0.19: docs/fsdp.md, "What
the rules do".

Complexity: O(layers · meshes).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from planner.families.fsdp.checker import checked_peak
from planner.families.fsdp.evaluation import Load, load_of, merit
from planner.families.fsdp.min_memory import spread, wrapped
from planner.families.fsdp.prefetch import issued_by, needs_of
from planner.families.fsdp.problem import Plan, Problem, Unit, at_use
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome
from planner.solving.pareto import staircase

# ---
# Units by the model of PyTorch's integer program ("ILP for auto FSDP wrapping").
#
# Problem: minimise the exposed time of a simple model of gathers and reduce-scatters. The model,
# and how this version differs: docs/fsdp.md, "What the rules do". Method: own, in place of CBC:
# dynamic programming from the last unit to the first over Pareto-optimal pairs of exposed time and
# the next unit's reduce-scatter. Guarantee: least exposed time up to `MAX_STARTS` blocks. More
# blocks are joined into that many pieces of about equal bytes. Complexity: O(blocks³ ·
# Pareto-optimal labels). Source: PyTorch, ``torch/distributed/_tools/fsdp_ilp.py`` of pull request
# 138635, 2024, reverted since; the variant that frees parameters after the forward pass.

MAX_STARTS = 32
"""Most blocks at which units may begin."""


class _Label(NamedTuple):
    exposed: int
    scatters: int  # reduce-scatter time of the next unit
    number: int
    units: Any  # linked list: (end of the next unit, units after it)


def units_exposing_least(
    problem: Problem, mesh: int, most_bytes: int | None = None
) -> tuple[tuple[int, int], ...]:
    """Return the units; those of several blocks have at most `most_bytes` of parameters."""
    starts = [*spread(problem, wrapped(problem), MAX_STARTS), problem.layers]
    sizes, last = problem.prefixes["parameter_bytes"], len(starts) - 1
    units: dict[tuple[int, int], Load] = {}
    for begin in range(last):
        for end in range(begin + 1, last + 1):
            size = sizes[starts[end]] - sizes[starts[begin]]
            if most_bytes is None or end == begin + 1 or size <= most_bytes:
                units[begin, end] = load_of(problem, mesh, starts[begin], starts[end])
    # Labels of each unit: time exposed in forward steps from it on, and in backward steps after it.
    labels: dict[tuple[int, int], list[_Label]] = {}
    for begin, end in sorted(units, reverse=True):
        if end == last:
            labels[begin, end] = [_Label(0, 0, 1, None)]
            continue
        own, tried = units[begin, end], []
        for stop in range(end + 1, last + 1):
            if (end, stop) not in labels:
                continue
            behind = units[end, stop]
            for label in labels[end, stop]:
                exposed = label.exposed + max(0, behind.gather_ns - own.forward_ns)
                exposed += max(0, own.gather_ns + label.scatters - behind.backward_ns)
                number = label.number + 1
                tried.append(_Label(exposed, behind.reduce_ns, number, (stop, label.units)))
        labels[begin, end] = staircase(tried, lambda label: label[:3], lambda label: label.scatters)
    best: tuple[int, int, int, Any] | None = None
    for end in range(1, last + 1):
        for label in labels.get((0, end), ()):
            own = units[0, end]
            exposed = label.exposed + own.gather_ns + own.reduce_ns
            exposed += max(0, label.scatters - own.backward_ns)
            if best is None or (exposed, label.number) < best[:2]:
                best = exposed, label.number, end, label.units
    assert best is not None
    ranges, begin, end, trail = [], 0, best[2], best[3]
    while True:
        ranges.append((starts[begin], starts[end]))
        if trail is None:
            return tuple(ranges)
        begin, (end, trail) = end, trail


class Rule(Protocol):
    """A rule makes a plan for the mesh at a place, ignoring memory."""

    def __call__(self, problem: Problem, mesh: int = 0) -> Plan:
        """Return the plan."""


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
        plans = [plan for plan in several if limit is None or checked_peak(problem, plan) <= limit]
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


def fsdp_milp(problem: Problem, mesh: int = 0) -> Plan:
    """Return FSDP2's plan with the units of PyTorch's integer program."""
    most = sum(problem.parameter_bytes)
    while True:
        plan = fsdp2(problem, mesh, units_exposing_least(problem, mesh, most))
        fits = problem.memory_bytes is None or checked_peak(problem, plan) <= problem.memory_bytes
        if fits or most <= min(problem.parameter_bytes):
            return plan
        most //= 4


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


RULES: Mapping[str, Rule] = {
    "fsdp2": fsdp2,
    "fsdp2_ahead_2": partial(fsdp2, ahead=2),
    "no_reshard": partial(fsdp2, keep=True),
    "one_unit": one_unit,
    "zero_3": zero_3,
    "fsdp_milp": fsdp_milp,
}
"""Rules by method name."""
