"""The greedy overlap pass of PyTorch's compiler, as a baseline in the same simulator.

Method: computations keep their order; each hides transfers under way, then issues later gathers in
order of use while time and memory allow. Details and differences: docs/fsdp.md, "What the rules
do".
Complexity: O(units · gathers ahead).
Source: ``torch/_inductor/fx_passes/overlap_scheduling.py`` of torch 2.13; own code.
"""

from planner.fsdp.evaluation import loads_of
from planner.fsdp.least import wrapped
from planner.fsdp.plan import Plan
from planner.fsdp.problem import Problem
from planner.fsdp.shaping import Needs, Shape, at_use, issued_by, needs_of

__all__ = ["overlap_pass"]

# The pass's own limits: bytes under way, and memory beyond that without prefetch: at most a GB, and
# at most a 20th of it.
IN_FLIGHT_BYTES = 5 * 10**9
MORE_BYTES, MORE_PARTS = 10**9, 20


def overlap_pass(problem: Problem, mesh: int = 0) -> Plan:
    """Return the plan in which every block is a unit, gathered twice, when the pass issues it."""
    ranges = wrapped(problem)
    count = len(ranges)
    no = (False,) * count
    shape = Shape(mesh, ranges, no, no, _buffers(problem, ranges))
    needs, plan = needs_of(problem, shape), at_use(shape)
    loads = loads_of(problem, plan)
    allowed = needs.least + min(MORE_BYTES, needs.least // MORE_PARTS)
    left = {gather: loads[plan.unit_of(gather)].gather_ns for gather in needs.needed}
    gathers: list[int] = []  # under way, by the step that uses them
    scattered: list[int] = []  # remaining time of reduce-scatters not hidden yet
    issued, issues = 0, []
    for step in range(2 * count):
        load = loads[plan.unit_of(step)]
        if issued == step:  # it is not under way: nothing hides it
            issued += 1
        else:
            gathers.remove(step)
        time = load.forward_ns if step < count else load.backward_ns
        scattered, rest = _hidden(scattered, time)
        if problem.channels == "one":  # the same process group
            time = rest
        for gather in gathers:
            hidden = min(left[gather], time)
            left[gather], time = left[gather] - hidden, time - hidden
        while time > 0 and issued < 2 * count and _may(needs, step, issued, allowed):
            if issued >= count and plan.unit_of(issued) >= step:
                break  # not freed yet
            gathers.append(issued)
            hidden = min(left[issued], time)
            left[issued], time = left[issued] - hidden, time - hidden
            issued += 1
        issues.append(issued)
        if step >= count and load.gradient_bytes:
            scattered.append(load.reduce_ns)
    room = needs.within(None)
    assert room is not None
    return issued_by(shape, room, issues)


def _may(needs: Needs, step: int, gather: int, allowed: int) -> bool:
    """Return whether memory allows a step to issue the next gather until its use."""
    under_way = needs.issued[gather + 1] - needs.issued[needs.used[step]]
    if under_way > IN_FLIGHT_BYTES:
        return False
    return all(
        needs.computing[later] + needs.issued[gather + 1] - needs.issued[needs.used[later]]
        <= allowed
        for later in range(step, gather)
    )


def _hidden(exposed: list[int], time: int) -> tuple[list[int], int]:
    """Return the exposed rest of transfers hidden in order, and the time left."""
    rest = []
    for each in exposed:
        hidden = min(each, time)
        time -= hidden
        if each > hidden:
            rest.append(each - hidden)
    return rest, time


def _buffers(problem: Problem, ranges: tuple[tuple[int, int], ...]) -> int:
    """Return the most inputs of reduce-scatters that the pass keeps."""
    sums = problem.prefixes["gradients"]
    largest = max(sums[stop] - sums[start] for start, stop in ranges)
    return min(max(IN_FLIGHT_BYTES // max(largest, 1), 1), len(ranges))
