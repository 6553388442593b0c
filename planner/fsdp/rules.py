"""What jobs do without a planner: the defaults of FSDP2 and DeepSpeed, in the same simulator.

FSDP2 (torch 2.13, ``_fsdp_param_group.py``), with the host ahead of the device: in the forward pass
the streams of gathers wait for the copy out of each gather, so that of unit u leaves once the
computation of unit u-2 has begun; lists of n modules to prefetch make that u-n-1, so lists of one
change nothing. In the backward pass a unit prefetches the next when its own parameters have
arrived, and lists of n modules the next n. One reduce-scatter's input is kept. The last unit is
freed and gathered again by the host before the device has begun with it: beside its own forward
computation.

- `fsdp2`: every block a unit, freed after the forward pass.
- `fsdp2_ahead_2`: with lists of two modules in both passes.
- `no_reshard`: FSDP2 with ``reshard_after_forward=False``, which is what ZeRO-2 sends.
- `one_unit`: all parameters at once, as ZeRO-1 gathers and reduces them.
- `zero_3`: DeepSpeed 0.19 (``partitioned_param_coordinator.py``): every block a unit. Its
  parameters stay if they are used again within 1,000,000,000 elements; units are fetched ahead
  until they have 50,000,000 elements, or 1,000,000,000 are there. Gradients leave layer by
  layer, where DeepSpeed would fill buckets of up to 500,000,000 elements; none of its small
  parameters stay on all ranks for ever.
- `overlap_pass`: the greedy pass of PyTorch's compiler (`planner.fsdp.overlap_pass`).
- `fsdp_milp`: FSDP2 with the units of PyTorch's integer program (`planner.fsdp.integer_program`),
  no larger than a quarter, a sixteenth, … of the model where they do not fit.

Blocks are `Problem.blocks`; those that share a parameter are one unit. Each rule takes the mesh on
which it is fastest, of those on which it fits into memory; if it fits on none, it recomputes all
activations, if that is known, as people do; if it does not fit then, it has no plan.

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
    """Makes a plan for a mesh, by its place, whatever the memory."""

    def __call__(self, problem: Problem, mesh: int = 0) -> Plan:
        """Return the plan."""


REUSE_ELEMENTS = LIVE_ELEMENTS = 1_000_000_000
PREFETCH_ELEMENTS = 50_000_000


def fitted(problem: Problem, rule: Rule) -> Plan | None:
    """Return a rule's fastest plan that fits into memory, if one does."""
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
    """Gather every block for itself, twice, by FSDP2's own prefetching."""
    return _streams(mesh, wrapped(problem), keep=False, ahead=1)


def fsdp2_ahead_2(problem: Problem, mesh: int = 0) -> Plan:
    """Do the same with two modules in every list of what to prefetch."""
    return _streams(mesh, wrapped(problem), keep=False, ahead=2)


def no_reshard(problem: Problem, mesh: int = 0) -> Plan:
    """Gather every block for itself, and keep it until its backward computation."""
    return _streams(mesh, wrapped(problem), keep=True, ahead=1)


def fsdp_milp(problem: Problem, mesh: int = 0) -> Plan:
    """Gather the units of PyTorch's integer program, twice, by FSDP2's own prefetching."""
    most = sum(problem.parameter_bytes)
    while True:
        plan = _streams(mesh, units_exposing_least(problem, mesh, most), keep=False, ahead=1)
        fits = problem.memory_bytes is None or checked_peak(problem, plan) <= problem.memory_bytes
        if fits or most <= min(problem.parameter_bytes):
            return plan
        most //= 4


def one_unit(problem: Problem, mesh: int = 0) -> Plan:
    """Gather and scatter everything at once."""
    return _streams(mesh, ((0, problem.layers),), keep=True, ahead=1)


def zero_3(problem: Problem, mesh: int = 0) -> Plan:
    """Gather by the thresholds of DeepSpeed's stage 3."""
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
    """Return FSDP2's plan with lists of so many modules."""
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
"""Rules by the names of methods."""
