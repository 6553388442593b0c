"""The greedy overlap pass of PyTorch's compiler, in the same simulator.

Method, of torch 2.13 (``torch/_inductor/fx_passes/overlap_scheduling.py``): computations keep their
order. Each one hides what is under way in its process group, in order of issue, as far as its time
goes; with what time is left it issues gathers of later ones, in order of use, until none is left:
as long as no more than 5 GB are under way, and memory stays within 5 %, and a GB, of what it would
be with every gather at its use. Reduce-scatters are waited for as late as those 5 GB allow.

What differs: the pass gathers parameters one by one, and then joins those that are hidden by the
same computation; here each block is a unit from the start.

Complexity: O(units · gathers ahead). Source: as above; own code.
"""

from planner.fsdp.evaluation import loads_of
from planner.fsdp.least import wrapped
from planner.fsdp.plan import Plan
from planner.fsdp.problem import Problem
from planner.fsdp.shaping import Needs, Shape, at_use, issued_by, needs_of

__all__ = ["overlap_pass"]

IN_FLIGHT_BYTES = 5 * 10**9
MORE_BYTES, MORE_PARTS = 10**9, 20
"""Memory beyond that of gathers at their use: so many bytes, or one in so many parts of it."""


def overlap_pass(problem: Problem, mesh: int = 0) -> Plan:
    """Gather every block for itself, twice, when the pass issues it."""
    ranges = wrapped(problem)
    count = len(ranges)
    no = (False,) * count
    shape = Shape(mesh, ranges, no, no, _buffers(problem, ranges))
    needs, plan = needs_of(problem, shape), at_use(shape)
    loads = loads_of(problem, plan)
    allowed = needs.least + min(MORE_BYTES, needs.least // MORE_PARTS)
    left = {gather: loads[plan.unit_of(gather)].gather_ns for gather in needs.needed}
    gathers: list[int] = []  # under way, by the step that uses them
    scattered: list[int] = []  # time of reduce-scatters that nothing has hidden yet
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
    """Return whether memory allows a step to issue the next gather, until that is used."""
    under_way = needs.issued[gather + 1] - needs.issued[needs.used[step]]
    if under_way > IN_FLIGHT_BYTES:
        return False
    return all(
        needs.computing[later] + needs.issued[gather + 1] - needs.issued[needs.used[later]]
        <= allowed
        for later in range(step, gather)
    )


def _hidden(exposed: list[int], time: int) -> tuple[list[int], int]:
    """Return what is left of some transfers, and of a time that hides them in order."""
    rest = []
    for each in exposed:
        hidden = min(each, time)
        time -= hidden
        if each > hidden:
            rest.append(each - hidden)
    return rest, time


def _buffers(problem: Problem, ranges: tuple[tuple[int, int], ...]) -> int:
    """Return how many inputs of reduce-scatters the pass keeps at most."""
    sums = problem.prefixes["gradients"]
    largest = max(sums[stop] - sums[start] for start, stop in ranges)
    return min(max(IN_FLIGHT_BYTES // max(largest, 1), 1), len(ranges))
