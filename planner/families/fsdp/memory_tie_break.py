"""Tie-breaking: among plans of equal time fewest transfers, then fewest bytes, then least memory.

Method: with the same units, less memory leaves less room for gathers ahead; bisection finds the
least memory at which the time stays the same. The same for other numbers of kept units and buffers,
and for local search (`planner.families.fsdp.neighbourhood`).
Guarantee: fits, and is no worse in the criteria of `Merit`. Complexity: O(EFFORT) steps simulated.
Source: own.
"""

from contextlib import suppress

from planner.families.fsdp.evaluation import iteration_ns, merit, peak_of, sent_by
from planner.families.fsdp.neighbourhood import changes
from planner.families.fsdp.prefetch import Ahead, Needs, Shape, filled_room, needs_of, shape_of
from planner.families.fsdp.problem import Plan, Problem
from planner.solving.deadline import Deadline, TimeUpError

EFFORT = 30_000
"""Steps simulated."""

CLOSE = 2**10
"""The least memory is found to within this fraction (1/CLOSE)."""


def slimmed(problem: Problem, plan: Plan, ahead: Ahead, deadline: Deadline) -> Plan:
    """Return a plan that is no worse; `ahead` is the prefetch distance of the given plan."""
    slim = _Slim(problem, plan, ahead)
    with suppress(TimeUpError):
        slim.improve(deadline)
    return slim.plan


class _Slim:
    """The incumbent of the tie-breaking."""

    def __init__(self, problem: Problem, plan: Plan, ahead: Ahead) -> None:
        self._problem, self._ahead = problem, ahead
        self.plan, self._merit = plan, merit(problem, plan)
        self._shape = shape_of(plan)
        self._left = EFFORT

    def improve(self, deadline: Deadline) -> None:
        """Try less memory, fewer kept units and fewer buffers, then local search."""
        self._offer(self._shape, self._ahead)
        count, buffers = len(self._shape.ranges), self._shape.buffers
        for most in sorted({1, 2, buffers}):
            for kept in sorted({1, count // 4, count // 2, count * 3 // 4, count} - {0}):
                deadline.check()
                keep = tuple(u >= count - kept for u in range(count))
                self._offer(self._shape._replace(buffers=min(most, count), keep=keep), self._ahead)
        while self._left > 0 and self._changed(deadline):
            pass

    def _changed(self, deadline: Deadline) -> bool:
        """Take the first improving change; return whether there was one."""
        for shape, ahead in changes(self._problem, self._shape, self._ahead):
            deadline.check()
            if self._left <= 0:
                return False
            if self._offer(shape, ahead):
                return True
        return False

    def _offer(self, shape: Shape, ahead: Ahead) -> bool:
        """Take a shape with its least memory at equal time if that is better; return whether so."""
        self._left -= 2 * len(shape.ranges)
        needs = needs_of(self._problem, shape)
        sent = sent_by(self._problem, shape.mesh, shape.ranges, shape.keep)
        known = self._merit.transfers, self._merit.gathered_bytes
        if sent > known:
            return False
        high = self._merit.peak_bytes - 1 if sent == known else self._problem.memory_bytes
        best = self._as_fast(shape, ahead, needs, high)
        if best is None:
            return False
        low, high = needs.least - 1, peak_of(self._problem, best)
        while low + 1 + high // CLOSE < high and self._left > 0:
            middle = (low + high) // 2
            plan = self._as_fast(shape, ahead, needs, middle)
            if plan is None:
                low = middle
            else:
                best, high = plan, peak_of(self._problem, plan)
        self.plan, self._merit = best, merit(self._problem, best)
        self._shape, self._ahead = shape, ahead
        return True

    def _as_fast(
        self, shape: Shape, ahead: Ahead, needs: Needs, memory_bytes: int | None
    ) -> Plan | None:
        """Return the plan of a shape in the given memory, or None if it is slower."""
        self._left -= 2 * len(shape.ranges)
        room = needs.within(memory_bytes)
        if room is None:
            return None
        plan = filled_room(shape, room, ahead)
        slower = iteration_ns(self._problem, plan) > self._merit.iteration_ns
        return None if slower else plan
