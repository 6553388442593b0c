"""Optimal plan of a short chain, by enumeration and branch and bound.

Problem: that of the family; ties are broken by the criteria of `Merit`.
Method: price each shape (all but the steps that issue gathers) as if gathers and reduce-scatters
never met; that bounds its plans. If they share channels and the bound is good enough, search the
issue steps depth first with dominance. Pruning: docs/fsdp.md, "How `exact` prunes".
Guarantee: optimal; at the deadline, the incumbent.
Complexity: exponential, about 3^layers shapes, 5^layers with recomputation. Source: own.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from planner.families.fsdp.evaluation import (
    Merit,
    follow,
    iteration_ns,
    loads_of,
    merit,
    sent_by,
)
from planner.families.fsdp.lanes import GATHERS, REDUCES, Lanes, lanes_of
from planner.families.fsdp.min_memory import finest_units, shrunk
from planner.families.fsdp.prefetch import MemoryNeeds, issued_by, needs_of
from planner.families.fsdp.problem import Plan, Problem, Unit, at_use, layer_ranges
from planner.families.fsdp.search import search
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome

MAX_LAYERS = 12
"""Longest chain; tied layers count as one."""


def exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the best plan, or why nothing fits; raise `NotApplicableError` for too long chains."""
    if len(finest_units(problem)) > MAX_LAYERS:
        reason = f"exact plans chains of up to {MAX_LAYERS} layers, and this one has"
        raise NotApplicableError("method", f"{reason} {len(finest_units(problem))}: method search")
    outcome = search(problem, deadline)
    if outcome.plan is None or outcome.timed_out:
        return outcome
    assert outcome.lower_bound is not None
    plan, best = outcome.plan, merit(problem, outcome.plan)
    try:
        for mesh in range(len(problem.meshes)):
            for ranges in _partitions(problem):
                deadline.check()
                units = tuple(Unit(*layers, True, False, 0, None) for layers in ranges)
                least = Plan(mesh, units, len(units))  # nothing of these units is faster
                if follow(least, loads_of(problem, least), "two").iteration_ns > best.iteration_ns:
                    continue
                for shape in _shapes(problem, mesh, ranges):
                    deadline.check()
                    better = _better(problem, shape, best)
                    if better is not None:
                        plan, best = better, merit(problem, better)
                        deadline.report_incumbent(plan)
    except TimeUpError:
        proven = best.iteration_ns <= outcome.lower_bound
        return Outcome(plan, outcome.lower_bound, timed_out=not proven)
    return Outcome(plan, best.iteration_ns)


def _partitions(problem: Problem) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every partition into units."""
    starts = [start for start, _ in finest_units(problem)]
    for cuts in product((False, True), repeat=len(starts) - 1):
        chosen = [0, *(start for start, cut in zip(starts[1:], cuts, strict=True) if cut)]
        yield tuple(layer_ranges(chosen, problem.layers))


def _shapes(problem: Problem, mesh: int, ranges: tuple[tuple[int, int], ...]) -> Iterator[Plan]:
    """Yield every shape with these units that may be optimal."""
    count = len(ranges)
    known = problem.checkpoint_bytes is not None
    options = [
        (False, True) if known and any(problem.activations[start:stop]) else (False,)
        for start, stop in ranges
    ]
    for recompute in product(*options):
        for keeps in product((False, True), repeat=count - 1):
            rows = zip(ranges, (*keeps, True), recompute, strict=True)
            shape = at_use(mesh, ((*layers, keep, again) for layers, keep, again in rows))
            for buffers in range(1, count + 1):
                yield replace(shape, buffers=buffers)


def _better(problem: Problem, shape: Plan, best: Merit) -> Plan | None:
    """Return the best plan of a shape if it is better than `best`, else None."""
    needs, memory = needs_of(problem, shape), problem.memory_bytes
    plan = _fastest(problem, shape, needs, memory, best.iteration_ns - 1)
    sent = sent_by(problem, shape)
    known = best.transfers, best.gathered_bytes
    if plan is None and sent <= known:
        most = memory if sent < known else best.peak_bytes - 1
        plan = _fastest(problem, shape, needs, most, best.iteration_ns)
    if plan is None:
        return None
    time = iteration_ns(problem, plan)
    return shrunk(
        problem, plan, needs.least - 1, lambda most: _fastest(problem, shape, needs, most, time)
    )


def _fastest(
    problem: Problem, shape: Plan, needs: MemoryNeeds, memory_bytes: int | None, most_ns: int
) -> Plan | None:
    """Return the fastest plan of a shape in the given memory, or None if slower than `most_ns`."""
    most = needs.within(memory_bytes)
    if most is None:
        return None
    plan = issued_by(shape, needs.needed, most)
    if follow(plan, loads_of(problem, plan), "two").iteration_ns > most_ns:
        return None
    if problem.channels == "two":
        return plan
    return _Issues(problem, shape, needs, most, most_ns + 1).best()


class _State(NamedTuple):
    """State of an iteration at the beginning of a step."""

    ready: int
    lanes: Lanes
    issued: int
    waited: tuple[int, ...]  # transfers of gathers not used yet, in order of use
    held: tuple[int, ...]  # transfers of reduce-scatters that hold a buffer


class _Issues:
    """Depth-first search for the steps that issue the gathers of a shape."""

    def __init__(
        self, problem: Problem, shape: Plan, needs: MemoryNeeds, most: Sequence[int], best_ns: int
    ) -> None:
        loads = loads_of(problem, shape)
        self._shape, self._needs, self._most, self._best_ns = shape, needs, most, best_ns
        self._loads = [*loads, *reversed(loads)]  # by step
        self._compute = [load.forward_ns for load in loads]
        self._compute += [load.backward_ns for load in reversed(loads)]
        self._after = [sum(self._compute[step:]) for step in range(len(self._compute) + 1)]
        apart = problem.apart(problem.meshes[shape.mesh])
        self._monotone = apart and problem.channels != "shared"
        self._chosen: list[int] | None = None
        self._path: list[int] = []
        self._kept: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self._begin = _State(0, lanes_of(problem.channels, apart=apart), 0, (), ())

    def best(self) -> Plan | None:
        """Return the plan if it is faster than `best_ns`, else None."""
        self._follow(0, self._begin)
        if self._chosen is None:
            return None
        return issued_by(self._shape, self._needs.needed, self._chosen)

    def _follow(self, step: int, state: _State) -> None:
        if state.ready + self._after[step] >= self._best_ns:
            return
        if step == len(self._compute):
            end = max(state.ready, *state.lanes.free())
            if end < self._best_ns:
                self._best_ns, self._chosen = end, [*self._path]
            return
        if self._monotone and self._dominated(step, state):
            return
        needed = self._needs.used[step]
        for issued in range(self._most[step], max(needed, state.issued) - 1, -1):
            self._path.append(issued)
            self._follow(step + 1, self._after_step(step, state, issued))
            self._path.pop()

    def _after_step(self, step: int, state: _State, issued: int) -> _State:
        """Return the state after a step in whose computation `issued` gathers have been issued."""
        lanes = state.lanes.copy()
        waited, held = deque(state.waited), deque(state.held)
        number, start = state.issued, state.ready
        uses = self._needs.used[step] > (self._needs.used[step - 1] if step else 0)
        if uses and number < self._needs.used[step]:
            waited.append(lanes.issue(GATHERS, self._gather_ns(number), start))
            number += 1
        if uses:
            start = max(start, lanes.end(waited.popleft()))
        for gather in range(number, issued):
            waited.append(lanes.issue(GATHERS, self._gather_ns(gather), start))
        ready = start + self._compute[step]
        if step >= len(self._shape.units):
            while len(held) >= self._shape.buffers:
                ready = max(ready, lanes.end(held.popleft()))
            load = self._loads[step]
            if load.gradient_bytes:
                held.append(lanes.issue(REDUCES, load.reduce_ns, ready, load.sum_ns))
        return _State(ready, lanes, issued, tuple(waited), tuple(held))

    def _gather_ns(self, number: int) -> int:
        return self._loads[self._needs.needed[number]].gather_ns

    def _dominated(self, step: int, state: _State) -> bool:
        """Return whether a recorded state is nowhere later than this one; otherwise record it."""
        ends = [end for _, end in state.lanes.spans()]
        times = (
            state.ready,
            *state.lanes.free(),
            *(ends[transfer] for transfer in (*state.waited, *state.held)),
        )
        kept = self._kept.setdefault((step, state.issued), [])
        if any(_no_later(other, times) for other in kept):
            return True
        kept[:] = [other for other in kept if not _no_later(times, other)]
        kept.append(times)
        return False


def _no_later(first: Sequence[int], second: Sequence[int]) -> bool:
    return all(least <= most for least, most in zip(first, second, strict=True))
