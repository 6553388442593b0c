"""The best plan of a short chain, with proof.

Problem: that of the family.

Method: every choice of mesh, units, what they keep and recompute, and number of buffers is priced
as if gathers and reduce-scatters did not meet, with every gather as early as memory allows: no plan
of that shape is faster, and if the channels do not meet, that is its best plan. Where they do, and
the best plan so far is slower, the steps that issue gathers are searched depth first: how many have
been issued in each step. If no links are shared a partial choice is dropped if another with as many
issued has everything as early: all that follows only ever waits for what has ended. Wherever the
computations left would end too late, nothing follows.

The last unit always keeps its parameters: nothing comes between its two steps. Without a memory
limit all do, and no reduce-scatter waits for a buffer.

Guarantee: optimal; at the deadline, the best so far.
Complexity: exponential, some 3^layers shapes, 5^layers with recomputation. Source: own.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from planner.deadline import Deadline, TimeUpError
from planner.errors import NotApplicableError
from planner.fsdp.evaluation import follow, iteration_ns, loads_of
from planner.fsdp.lanes import GATHERS, REDUCES, Lanes, lanes_of
from planner.fsdp.least import finest
from planner.fsdp.plan import Plan, layer_ranges
from planner.fsdp.problem import Problem
from planner.fsdp.search import search
from planner.fsdp.shaping import Room, Shape, issued_by, room_of
from planner.methods import Outcome

__all__ = ["MAX_LAYERS", "exact", "shapes"]

MAX_LAYERS = 12
"""Longest chain, ties counted as one layer."""


def exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the best plan, or why nothing fits into memory.

    Raises
    ------
    NotApplicableError
        If the chain is too long.
    """
    if len(finest(problem)) > MAX_LAYERS:
        reason = f"exact plans chains of up to {MAX_LAYERS} layers, and this one has"
        raise NotApplicableError("method", f"{reason} {len(finest(problem))}: method search")
    outcome = search(problem, deadline)
    if outcome.plan is None or outcome.timed_out:
        return outcome
    assert outcome.lower_bound is not None
    best, plan = iteration_ns(problem, outcome.plan), outcome.plan
    if best <= outcome.lower_bound:
        return outcome
    try:
        for shape in shapes(problem):
            deadline.check()
            found = _best_of(problem, shape, best)
            if found is not None:
                plan, best = found, iteration_ns(problem, found)
    except TimeUpError:
        return Outcome(plan, outcome.lower_bound, timed_out=True)
    return Outcome(plan, best)


def shapes(problem: Problem) -> Iterator[Shape]:
    """Yield every shape that can be better than all others."""
    starts = [start for start, _ in finest(problem)]
    free = problem.memory_bytes is None
    for mesh in range(len(problem.meshes)):
        for cuts in product((False, True), repeat=len(starts) - 1):
            chosen = [0, *(start for start, cut in zip(starts[1:], cuts, strict=True) if cut)]
            ranges = tuple(layer_ranges(chosen, problem.layers))
            count = len(ranges)
            known = problem.checkpoint_bytes is not None and not free
            options = [
                (False, True) if known and any(problem.activations[start:stop]) else (False,)
                for start, stop in ranges
            ]
            for recompute in product(*options):
                for keeps in product((True,) if free else (False, True), repeat=count - 1):
                    for buffers in (count,) if free else range(1, count + 1):
                        yield Shape(mesh, ranges, (*keeps, True), recompute, buffers)


def _best_of(problem: Problem, shape: Shape, best_ns: int) -> Plan | None:
    """Return the best plan of a shape if it is faster than another."""
    room = room_of(problem, shape)
    if room is None:
        return None
    plan = issued_by(shape, room, room.most)
    if follow(plan, loads_of(problem, plan), "two").iteration_ns >= best_ns:
        return None
    if problem.channels == "two":
        return plan
    return _Issues(problem, shape, room, best_ns).best()


class _State(NamedTuple):
    """An iteration up to the beginning of a step."""

    ready: int
    lanes: Lanes
    issued: int
    waited: tuple[int, ...]  # transfers of gathers not used yet, in order of use
    held: tuple[int, ...]  # those of reduce-scatters with a buffer


class _Issues:
    """The search for the steps that issue the gathers of a shape."""

    def __init__(self, problem: Problem, shape: Shape, room: Room, best_ns: int) -> None:
        mesh, sums = problem.meshes[shape.mesh], problem.prefixes
        shares = problem.shares(mesh.shards)

        def between(name: str) -> list[int]:
            return [sums[name][stop] - sums[name][start] for start, stop in shape.ranges]

        self._shape, self._room, self._best_ns = shape, room, best_ns
        gathers = [mesh.gather_ns(size) for size in between("parameter_bytes")]
        self._reduces = [
            (mesh.reduce_ns(size), mesh.sum_ns(sum(shares[start:stop]))) if size else None
            for size, (start, stop) in zip(between("gradients"), shape.ranges, strict=True)
        ][::-1]
        again = [
            time if recompute else 0
            for time, recompute in zip(between("forward_ns"), shape.recompute, strict=True)
        ]
        backward = [sum(pair) for pair in zip(between("backward_ns"), again, strict=True)]
        self._compute = [*between("forward_ns"), *reversed(backward)]
        self._after = [sum(self._compute[step:]) for step in range(len(self._compute) + 1)]
        self._gathers = [(gathers + gathers[::-1])[step] for step in room.needed]
        apart = problem.apart(mesh)
        self._monotone = apart and problem.channels != "shared"
        self._chosen: list[int] | None = None
        self._path: list[int] = []
        self._kept: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self._begin = _State(0, lanes_of(problem.channels, apart=apart), 0, (), ())

    def best(self) -> Plan | None:
        """Return the plan if it is faster than the one known."""
        self._follow(0, self._begin)
        if self._chosen is None:
            return None
        return issued_by(self._shape, self._room, self._chosen)

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
        needed = self._room.used[step]
        for issued in range(self._room.most[step], max(needed, state.issued) - 1, -1):
            self._path.append(issued)
            self._follow(step + 1, self._after_step(step, state, issued))
            self._path.pop()

    def _after_step(self, step: int, state: _State, issued: int) -> _State:
        """Return the state behind a step that has so many gathers issued when it computes."""
        lanes = state.lanes.copy()
        waited, held = deque(state.waited), deque(state.held)
        number, start = state.issued, state.ready
        uses = self._room.used[step] > (self._room.used[step - 1] if step else 0)
        if uses and number < self._room.used[step]:
            waited.append(lanes.issue(GATHERS, self._gathers[number], start))
            number += 1
        if uses:
            start = max(start, lanes.end(waited.popleft()))
        for gather in range(number, issued):
            waited.append(lanes.issue(GATHERS, self._gathers[gather], start))
        ready = start + self._compute[step]
        count = len(self._shape.ranges)
        if step >= count:
            while len(held) >= self._shape.buffers:
                ready = max(ready, lanes.end(held.popleft()))
            times = self._reduces[step - count]
            if times is not None:
                scatter, added = times
                held.append(lanes.issue(REDUCES, scatter, ready, added))
        return _State(ready, lanes, issued, tuple(waited), tuple(held))

    def _dominated(self, step: int, state: _State) -> bool:
        """Tell whether another state here has as many issued, and all as early; else keep it."""
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
