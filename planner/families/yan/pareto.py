"""Pareto front of machines and time: the least time of an epoch for every number of machines.

Method: for one number of machines after the other, bounds (`planner.families.yan.coarse_bound`) on
configurations that need all of them cut nearly all triples; the others are solved, most promising
first, with shared caches. See docs/yan.md, "Why the front of machines is fast".

Guarantee: each point is the exact least time under the canonical mapping with at most this many
machines.
Complexity: N ln N bounds O(L·K·C) for C choices a layer, times some numbers of servers; then 2 to 3
dynamic programs for each number of machines (20 machines in 0.5 s, 100 in 3 s).
Source: own; the concavity is that of Eisner and Severance, JACM 1976.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from planner.families.yan.configuration import Ranked
from planner.families.yan.engine import Engine, rank
from planner.families.yan.feasibility import infeasibility
from planner.families.yan.layer_program import Triple
from planner.families.yan.problem import DEPENDS, Problem, refuse_different
from planner.solving.deadline import Deadline

MAX_TIME = sys.float_info.max / 4
"""Bound where no configuration exists; finite, because bounds are subtracted."""


class FrugalEngine(Engine):
    """An engine for very many triples, each needed for a short time."""

    def forget(self, triple: Triple) -> None:
        """Free the caches of a triple: its program may take megabytes."""
        self._solved.pop(self.key(triple), None)
        self._exact.pop(self.key(triple), None)


def pareto_front(
    problem: Problem,
    *,
    deadline: Deadline | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Ranked, ...]:
    """Return the best configuration for every number of machines that beats all smaller numbers.

    Parameters
    ----------
    problem : Problem
        The problem; its `fixed` and `top` are ignored.
    deadline : Deadline, optional
        When to stop: the front then ends early, but is valid up to there.
    progress : callable, optional
        Called after each number of machines with it, and the largest number.

    Returns
    -------
    tuple of Ranked
        Fewest machines first: strictly more machines, strictly less time. Empty if nothing fits.

    Raises
    ------
    NotApplicableError
        If machines differ.
    """
    refuse_different(problem, "a front", DEPENDS)
    if infeasibility(problem) is not None:
        return ()
    candidates = _Candidates(problem)
    front: list[Ranked] = []
    for machines in range(2, problem.machines + 1):
        if deadline is not None and deadline.passed:
            break
        best = candidates.best(machines, front[-1] if front else None)
        if best is not None:
            front.append(best)
        if progress is not None:
            progress(machines, problem.machines)
    return tuple(front)


@dataclass(slots=True)
class _Bounds:
    """Bounds on configurations with a segment on every worker, for some numbers of servers."""

    servers: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def add(self, servers: int, time: float) -> None:
        """Add a bound, or replace a weaker one."""
        place = bisect_left(self.servers, servers)
        if place < len(self.servers) and self.servers[place] == servers:
            self.times[place] = max(self.times[place], time)
        else:
            self.servers.insert(place, servers)
            self.times.insert(place, time)

    def at(self, servers: int) -> float | None:
        """Return an interpolated bound, or None without bounds on both sides."""
        place = bisect_left(self.servers, servers)
        if place == len(self.servers):
            return None
        if self.servers[place] == servers:
            return self.times[place]
        if place == 0:
            return None
        fewer, more = self.servers[place - 1], self.servers[place]
        # reading time is linear in 1 / servers
        share = (1 / servers - 1 / more) / (1 / fewer - 1 / more)
        return self.times[place] + share * (self.times[place - 1] - self.times[place])


class _Candidates:
    """All numbers of workers and replicas, with their bounds."""

    def __init__(self, problem: Problem) -> None:
        self.engine = FrugalEngine(problem)
        self.layerwise = self.engine.layerwise
        self.error = self.layerwise.tables.error
        space = self.engine.space
        self.fewest = space.fewest_servers
        triples: list[Triple] = []
        lowest: list[float] = []
        for replicas, most in space.pairs():
            side = max(1, min(most, space.machines // (replicas + 1)))
            lowest += self.layerwise.bounds(replicas, most, side).tolist()
            for workers in range(1, most + 1):
                last = max(self.fewest, workers) if problem.read_model != "max" else self.fewest
                room = space.machines - workers * replicas
                triples.append(Triple(workers, replicas, min(last, room)))
        self.triples = triples
        """With as many servers as can be of use."""
        self.used = np.array(
            [triple.workers * triple.replicas for triple in triples], dtype=np.int64
        )
        self.last = np.array([triple.servers for triple in triples], dtype=np.int64)
        self.lowest = np.array(lowest)
        self.bounds = [_Bounds() for _ in triples]

    def best(self, machines: int, fewer: Ranked | None) -> Ranked | None:
        """Return the best configuration with exactly `machines` machines if it beats `fewer`."""
        limit = float("inf") if fewer is None else float(fewer.epoch) * (1 + 4 * self.error)
        servers = machines - self.used
        usable = (servers >= self.fewest) & (servers <= self.last) & (self.lowest < limit)
        heap = [(float(self.lowest[place]), 0, place) for place in np.flatnonzero(usable).tolist()]
        heapify(heap)  # bound, stage, candidate
        solved_triples: list[tuple[float, Triple]] = []
        while heap and heap[0][0] < limit:
            bound, stage, place = heappop(heap)
            triple = self.triples[place]._replace(servers=int(servers[place]))
            if stage == 0:
                heappush(heap, (max(bound, self._between(place, triple)), 1, place))
            elif stage == 1:
                heappush(heap, (max(bound, self._bound(place, triple)), 2, place))
            else:
                solved = self.engine.solve(triple)
                if solved is not None:
                    self.bounds[place].add(triple.servers, solved[0])
                    solved_triples.append((solved[0], triple))
                    limit = min(limit, solved[0] * (1 + 4 * self.error))
        ranking = self.engine.ranked(triple for time, triple in solved_triples if time < limit)
        for _, solved_triple in solved_triples:
            self.engine.forget(solved_triple)
        if ranking and (fewer is None or ranking[0].epoch < fewer.epoch):
            return min(ranking, key=rank)
        return None

    def _needs_all(self, triple: Triple) -> bool:
        """Return whether a worker without a segment would be redundant."""
        return triple.servers < triple.workers or self.engine.problem.read_model == "max"

    def _between(self, place: int, triple: Triple) -> float:
        """Return a bound on a triple, interpolated between other numbers of servers."""
        if not self._needs_all(triple):
            return 0.0
        known = self.bounds[place]
        if not known.servers:
            self._bound(place, self.triples[place])
            self._bound(place, triple)
        bound = known.at(triple.servers)
        return 0.0 if bound is None else bound

    def _bound(self, place: int, triple: Triple) -> float:
        """Return a bound on configurations that need all machines of a triple."""
        through, anything = self.layerwise.coarse(triple)
        bound = MAX_TIME
        for options, times in zip(self.layerwise.options, through, strict=True):
            full = times[options.segments[: len(times)] == triple.workers]
            if full.size:
                bound = min(bound, float(full.min()))
        self.bounds[place].add(triple.servers, bound)
        return bound if self._needs_all(triple) else anything
