"""Heuristic for chains of any length: good units of many sizes, then local search.

Problem: that of the family, which is NP-hard already where memory limits what is kept. Method, per
mesh: (1) units from `planner.families.fsdp.min_memory` and `planner.families.fsdp.partitions`
for several largest sizes, the default blocks, and the smallest units; (2) keep the parameters of as
many last units as memory allows, which are needed first, or recompute the units that save most
memory for their time; (3) try numbers of buffers and prefetch distances
(`planner.families.fsdp.prefetch`); (4) local search from the best (`changes` there), and from units
of `planner.families.fsdp.whole_transfers`; (5) a plan as fast with fewer transfers, fewer bytes,
less memory. Effort counts simulated steps, so the same problem has the same plan. Guarantee: fits
if anything does; not slower than baselines. Complexity: O(EFFORT · log meshes) steps. Source: own.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from planner.families.fsdp.baselines import BASELINES, fitted
from planner.families.fsdp.bounds import MeshBounds
from planner.families.fsdp.checker import check
from planner.families.fsdp.evaluation import Merit, iteration_ns, load_of, merit, peak_of, sent_by
from planner.families.fsdp.min_memory import (
    cheapest_units,
    finest_units,
    fitting,
    memory_infeasibility,
    shrunk,
    spread,
    wrapped,
)
from planner.families.fsdp.prefetch import (
    FARTHEST,
    MemoryNeeds,
    PrefetchDistance,
    changes,
    filled_within,
    keeping_last,
    needs_of,
    prefetched,
)
from planner.families.fsdp.problem import Plan, Problem, at_use
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome

EFFORT = 100_000
"""Simulated steps for the best mesh and local search; half for each next mesh and long chains."""

CLOSE = Fraction(1, 2**10)
"""Share within which a plan is close to its bound, and memory to the least at equal time."""

REFITTING = 400
"""Simulated steps to improve an old plan."""

MAX_STARTS = 160
"""Most layers at which units may begin; longer chains are cut at this many."""


class _Candidate(NamedTuple):
    merit: Merit
    shape: Plan  # whose gathers are issued at their use
    ahead: PrefetchDistance
    plan: Plan


def search(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return a good plan with a lower bound, or why nothing fits into memory."""
    nothing = memory_infeasibility(problem)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    bounds = MeshBounds(problem, deadline)
    effort = EFFORT if problem.layers <= MAX_STARTS else EFFORT // 2
    pool = _Pool(problem, -int(-bounds.least // 1))
    pool.fallback(deadline)
    assert pool.best is not None
    deadline.report_incumbent(pool.best.plan, pool.bound_ns)
    cut = False
    try:
        for rank, mesh in enumerate(sorted(bounds.of, key=lambda mesh: bounds.of[mesh])):
            pool.left = max(effort >> rank, effort >> 6)
            for shape in _shapes(problem, mesh, deadline):
                deadline.check()
                if pool.settled or pool.best.merit.iteration_ns <= bounds.of[mesh]:
                    break
                pool.try_all(shape)
                deadline.report_incumbent(pool.best.plan)
                if not pool.settled:
                    pool.refine(bounds)
        pool.left = effort
        pool.climb(deadline)
        if pool.best.merit.iteration_ns * (1 - CLOSE) > pool.bound_ns:
            if pool.try_path(deadline):
                pool.climb(deadline)
            pool.refine(bounds, whole=True)
    except TimeUpError:
        cut = True
    assert pool.best is not None
    first = pool.best.plan.mesh
    rules = (fitted(problem, rule, deadline, first).plan for rule in BASELINES.values())
    plans = [pool.best.plan, *(plan for plan in rules if plan is not None)]
    best = min(plans, key=lambda plan: merit(problem, plan))
    ahead = pool.best.ahead if best is pool.best.plan else FARTHEST
    cut |= bounds.cut
    slim = _Slim(problem, best, ahead)
    with suppress(TimeUpError):
        if not cut:
            slim.improve(deadline)
    return Outcome(slim.best.plan, pool.bound_ns, cut)


def improved_start(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an old plan improved within `REFITTING` simulated steps, which takes milliseconds.

    The plan keeps the mesh and the units, and issues gathers as early as memory allows. If it does
    not fit, it keeps no parameters; if it still does not fit, that is an `InvalidPlanError`. Then
    local search improves it. Never worse than the old plan if the old plan still fits.
    """
    pool, shape = _Pool(problem, 0), at_use(plan.mesh, plan.units, plan.buffers)
    with suppress(InvalidPlanError):
        check(problem, plan)
        pool.take(shape, FARTHEST, plan)
    if pool.offer(shape, FARTHEST) is None:
        pool.offer(keeping_last(shape, 0, 1), FARTHEST)
    if pool.best is None:
        raise InvalidPlanError("units", "they do not fit into memory_bytes any more")
    pool.left = REFITTING
    with suppress(TimeUpError):
        pool.climb(deadline)
    return Outcome(pool.best.plan, timed_out=deadline.passed)


class _Pool:
    """The incumbent, which plans better in `Merit`'s order replace, and the effort left."""

    best: _Candidate | None = None

    def __init__(self, problem: Problem, bound_ns: int, effort: int = EFFORT) -> None:
        self.problem, self.bound_ns, self.left = problem, bound_ns, effort
        self._seen: set[tuple[Plan, PrefetchDistance]] = set()

    @property
    def settled(self) -> bool:
        """Whether the search is over: no effort left, or the bound reached."""
        if self.left <= 0:
            return True
        return self.best is not None and self.best.merit.iteration_ns <= self.bound_ns

    def offer(self, shape: Plan, ahead: PrefetchDistance) -> bool | None:
        """Price a plan with its gathers issued early; return whether it fits and is faster.

        None if it does not fit into memory.
        """
        if (shape, ahead) in self._seen:
            return False
        self._seen.add((shape, ahead))
        self.left -= 2 * len(shape.units)
        plan = prefetched(self.problem, shape, ahead)
        return None if plan is None else self.take(shape, ahead, plan)

    def take(self, shape: Plan, ahead: PrefetchDistance, plan: Plan) -> bool:
        """Replace the incumbent if the plan is better; return whether it is faster."""
        time, before = iteration_ns(self.problem, plan), self.best
        if before is not None and time > before.merit.iteration_ns:
            return False
        own = Merit(time, *sent_by(self.problem, plan), peak_of(self.problem, plan))
        if before is None or own < before.merit:
            self.best = _Candidate(own, shape, ahead, plan)
        return before is None or time < before.merit.iteration_ns

    def climb(self, deadline: Deadline) -> None:
        """Take the first improving change, as long as there is one."""

        def offered() -> Iterator[bool | None]:
            assert self.best is not None
            for shape, ahead in changes(self.problem, self.best.shape, self.best.ahead):
                deadline.check()
                if self.settled:
                    return
                yield self.offer(shape, ahead)

        while any(offered()):
            pass

    def refine(self, bounds: MeshBounds, *, whole: bool = False) -> None:
        """Tighten the lower bound."""
        assert self.best is not None
        bounds.refine(self.best.merit.iteration_ns, whole=whole)
        self.bound_ns = -int(-bounds.least // 1)

    def try_all(self, shape: Plan) -> None:
        """Try units with several numbers of buffers, kept units, and prefetch distances."""
        count = len(shape.units)
        for buffers in sorted({1, min(2, count), min(4, count), count}, reverse=True):
            for number in self._keeps(shape, buffers):
                self._try_aheads(keeping_last(shape, number, buffers))

    def _try_aheads(self, shape: Plan) -> None:
        """Try a shape with several prefetch distances, if it fits into memory."""
        aheads = [FARTHEST]
        if self.problem.channels != "two":
            aheads += (PrefetchDistance(None, distance) for distance in (1, 2, 4))
        for ahead in aheads:
            if self.settled or self.offer(shape, ahead) is None:
                return

    def try_path(self, deadline: Deadline) -> bool:
        """Try the units that whole transfers suggest; return whether that is faster."""
        assert self.best is not None
        (time, *_), plan = self.best.merit, self.best.plan
        if self.settled or self.problem.memory_bytes is None:
            return False
        from planner.families.fsdp.whole_transfers import fastest_units  # loads numpy

        units = fastest_units(self.problem, self.problem.meshes[plan.mesh], deadline, time)
        saved = self.problem.activations if self.problem.checkpoint_bytes is not None else ()
        shape = at_use(plan.mesh, ((*unit, any(saved[slice(*unit[:2])])) for unit in units))
        for buffers in sorted({min(1, len(units)), min(2, len(units)), len(units)} - {0}):
            self._try_aheads(replace(shape, buffers=buffers))
        return self.best.merit.iteration_ns < time

    def _keeps(self, shape: Plan, buffers: int) -> Iterator[int]:
        """Yield how many last units to keep, from the most that fit downwards."""
        count = len(shape.units)

        def fits(number: int) -> bool:
            self.left -= count
            return prefetched(self.problem, keeping_last(shape, number, buffers)) is not None

        most = count
        if self.problem.memory_bytes is not None and not fits(count):
            most = bisect_left(range(1, count), True, key=lambda number: not fits(number))
        tried = {most, most - 1, most - 2, most * 3 // 4, most // 2, most // 4, 1, 0}
        yield from sorted((number for number in tried if 0 <= number <= most), reverse=True)

    def fallback(self, deadline: Deadline) -> None:
        """Start from a shape that fits if any does."""
        limit = self.problem.memory_bytes
        for mesh in range(len(self.problem.meshes)):
            if self.best is not None and deadline.passed:
                return
            shape = (
                at_use(mesh, ((*layers, False, False) for layers in finest_units(self.problem)))
                if limit is None
                else fitting(self.problem, mesh, limit)
            )
            if shape is not None:
                self.take(shape, FARTHEST, prefetched(self.problem, shape) or shape)


def _shapes(problem: Problem, mesh: int, deadline: Deadline) -> Iterator[Plan]:
    """Yield plans (`at_use`) with units and recomputation chosen, and nothing kept."""
    seen = set()
    yield from _tight(problem, mesh)
    for ranges in _partitions(problem, mesh, deadline):
        if ranges in seen:
            continue
        seen.add(ranges)
        for recompute in _recomputed(problem, mesh, ranges):
            yield _bare(mesh, ranges, recompute)


def _bare(mesh: int, ranges: Sequence[tuple[int, int]], recompute: Sequence[bool]) -> Plan:
    rows = zip(ranges, recompute, strict=True)
    return at_use(mesh, ((*layers, False, again) for layers, again in rows))


def _tight(problem: Problem, mesh: int) -> Iterator[Plan]:
    """Yield units for little memory, with and without recomputing all of them."""
    if problem.memory_bytes is None:
        return
    seen = set()
    for recompute in (False, True) if problem.checkpoint_bytes is not None else (False,):
        for ahead in range(4):
            ranges = cheapest_units(problem, mesh, recompute=recompute, ahead=ahead)
            if ranges is None or (ranges, recompute) in seen:
                continue
            seen.add((ranges, recompute))
            saves = (any(problem.activations[slice(*layers)]) for layers in ranges)
            yield _bare(mesh, ranges, [recompute and some for some in saves])


def _partitions(
    problem: Problem, mesh: int, deadline: Deadline
) -> Iterator[tuple[tuple[int, int], ...]]:
    from planner.families.fsdp.partitions import best_units  # loads numpy

    most = total = sum(problem.parameter_bytes)
    starts = spread(problem, MAX_STARTS)
    while most >= 1:
        best = best_units(
            problem,
            problem.meshes[mesh],
            most_bytes=None if most == total else most,
            starts=starts,
            kept=64 if most == total else 6,
            deadline=deadline,
        )
        yield best.ranges
        if len(best.ranges) >= len(starts):
            break
        most //= 2
    yield wrapped(problem)
    yield finest_units(problem)


def _recomputed(
    problem: Problem, mesh: int, ranges: tuple[tuple[int, int], ...]
) -> Iterator[tuple[bool, ...]]:
    """Yield no recomputation, then numbers of units that save most memory for their time."""
    yield (False,) * len(ranges)
    if problem.checkpoint_bytes is None or problem.memory_bytes is None:
        return
    rates = {}
    for u, layers in enumerate(ranges):
        whole, again = (load_of(problem, mesh, *layers, recompute) for recompute in (False, True))
        saved = whole.activation_bytes - again.activation_bytes
        if saved > 0:
            rates[u] = whole.forward_ns / saved
    ordered = sorted(rates, key=lambda u: (rates[u], u))

    def of(number: int) -> tuple[bool, ...]:
        chosen = set(ordered[:number])
        return tuple(u in chosen for u in range(len(ranges)))

    def fits(number: int) -> bool:
        shape = keeping_last(_bare(mesh, ranges, of(number)), 1, 1)
        return needs_of(problem, shape).within(problem.memory_bytes) is not None

    low = bisect_left(range(len(ordered)), True, key=fits)
    step = max((len(ordered) - low) // 4, 1)
    numbers = {low, low + 1, low + 2, *range(low, len(ordered), step), len(ordered)}
    yield from (of(number) for number in sorted(numbers) if 0 < number <= len(ordered))


# ---
# Tie-breaking: among plans of equal time fewest transfers, then fewest bytes, then least memory.
#
# Method: with the same units, less memory leaves less room for gathers ahead; bisection finds the
# least memory at which the time stays the same. The same for other numbers of kept units and
# buffers, and for local search. Guarantee: fits, and is no worse in the criteria of `Merit`.
# Complexity: O(SLIMMING) steps simulated. Source: own.

SLIMMING = 30_000
"""Steps simulated for the tie-breaking."""


class _Slim(_Pool):
    """A pool for plans of equal time: those better in the other criteria replace the incumbent."""

    best: _Candidate

    def __init__(self, problem: Problem, plan: Plan, ahead: PrefetchDistance) -> None:
        super().__init__(problem, -1, SLIMMING)
        shape = at_use(plan.mesh, plan.units, plan.buffers)
        self.best = _Candidate(merit(problem, plan), shape, ahead, plan)

    def improve(self, deadline: Deadline) -> None:
        """Try less memory, fewer kept units and fewer buffers, then local search."""
        self.offer(self.best.shape, self.best.ahead)
        count, buffers = len(self.best.shape.units), self.best.shape.buffers
        for most in sorted({1, 2, buffers}):
            for kept in sorted({1, count // 4, count // 2, count * 3 // 4, count} - {0}):
                deadline.check()
                shape = keeping_last(self.best.shape, kept, min(most, count))
                self.offer(shape, self.best.ahead)
        self.climb(deadline)

    def offer(self, shape: Plan, ahead: PrefetchDistance) -> bool:
        """Take units with their least memory at equal time if that is better; return whether so."""
        self.left -= 2 * len(shape.units)
        needs, sent = needs_of(self.problem, shape), sent_by(self.problem, shape)
        known = self.best.merit.transfers, self.best.merit.gathered_bytes
        if sent > known:
            return False
        most = self.best.merit.peak_bytes - 1 if sent == known else self.problem.memory_bytes
        plan = self._as_fast(shape, ahead, needs, most)
        if plan is None:
            return False

        def within(memory_bytes: int) -> Plan | None:
            return self._as_fast(shape, ahead, needs, memory_bytes) if self.left > 0 else None

        plan = shrunk(self.problem, plan, needs.least - 1, within, CLOSE)
        self.best = _Candidate(merit(self.problem, plan), shape, ahead, plan)
        return True

    def _as_fast(
        self, shape: Plan, ahead: PrefetchDistance, needs: MemoryNeeds, memory_bytes: int | None
    ) -> Plan | None:
        """Return the plan with these units in the given memory, or None if it is slower."""
        self.left -= 2 * len(shape.units)
        plan = filled_within(shape, needs, memory_bytes, ahead)
        if plan is None:
            return None
        slower = iteration_ns(self.problem, plan) > self.best.merit.iteration_ns
        return None if slower else plan
