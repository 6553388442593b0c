"""The least time of an epoch for every number of machines, as a Pareto front.

For each number of machines, bounds (`planner.families.yan.layerwise`) on configurations that need
all machines cut nearly all triples; the remaining triples are solved, most promising first, with
shared caches. See docs/yan.md, "Why the front of machines is fast".

Guarantee: each point is the exact least time under the canonical mapping. Complexity: N ln N bounds
O(L·K·C) for C choices a layer, times some numbers of servers; then 2 to 3 dynamic programs for each
number of machines. Source: own; the concavity is that of Eisner and Severance, JACM 1976.
"""

import sys
from heapq import heapify, heappop, heappush

import numpy as np

from planner.families.yan.configuration import Ranked, Triple
from planner.families.yan.memory import infeasibility
from planner.families.yan.problem import DEPENDS, Problem, refuse_different
from planner.families.yan.search import Engine, bounded, rank
from planner.solving.deadline import NEVER, Deadline, TimeUpError

MAX_TIME = sys.float_info.max / 4
"""Bound where no configuration exists; finite, because bounds are subtracted."""


def pareto_front(
    problem: Problem,
    *,
    deadline: Deadline = NEVER,
) -> tuple[Ranked, ...]:
    """Return the best configuration for every number of machines that beats all smaller numbers.

    Parameters
    ----------
    problem : Problem
        The problem; its `fixed` and `top` are ignored.
    deadline : Deadline
        When to stop: the front then ends early, but is valid up to there.

    Returns
    -------
    tuple of Ranked
        Fewest machines first: strictly more machines, strictly less time. Empty if nothing fits,
        or if there was no time for a first one.

    Raises
    ------
    NotApplicableError
        If machines differ.
    """
    refuse_different(problem, "a front", DEPENDS)
    if infeasibility(problem) is not None:
        return ()
    try:
        candidates = _Candidates(problem, deadline)
    except TimeUpError:
        return ()
    front: list[Ranked] = []
    for machines in range(2, problem.machines + 1):
        if deadline.passed:
            break
        best = candidates.best(machines, front[-1] if front else None)
        if best is not None:
            front.append(best)
    return tuple(front)


def _interpolated(known: dict[int, float], servers: int) -> float:
    """Return a bound for a number of servers, by the bounds known for others; 0 if unknown."""
    fewer = max((count for count in known if count <= servers), default=0)
    more = min((count for count in known if count >= servers), default=0)
    if not fewer or not more:
        return 0.0
    if fewer == more:
        return known[fewer]
    # reading time is linear in 1 / servers
    share = (1 / servers - 1 / more) / (1 / fewer - 1 / more)
    return known[more] + share * (known[fewer] - known[more])


class _Candidates:
    """All numbers of workers and replicas, with their bounds."""

    def __init__(self, problem: Problem, deadline: Deadline) -> None:
        deadline.check()
        # Without the deadline, so that no triple is solved in haste: points are exact.
        self.engine = Engine(problem)
        self.layerwise = self.engine.layerwise
        self.error = self.layerwise.tables.error
        space = self.engine.space
        self.fewest = space.fewest_servers
        triples: list[Triple] = []
        lowest: list[float] = []
        for row in bounded(self.layerwise, space):
            deadline.check()
            for bound, triple in row:
                last = max(self.fewest, triple.workers if problem.read_model != "max" else 0)
                triples.append(triple._replace(servers=min(last, triple.servers)))
                lowest.append(bound)
        self.triples = triples
        """Each with the largest useful number of servers."""
        self.used = np.array(
            [triple.workers * triple.replicas for triple in triples], dtype=np.int64
        )
        self.last = np.array([triple.servers for triple in triples], dtype=np.int64)
        self.lowest = np.array(lowest)
        self.bounds: list[dict[int, float]] = [{} for _ in triples]
        """Bounds by number of servers, on configurations with a segment on every worker."""

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
                time = self.engine.solve(triple)
                if time is not None:
                    self._add(place, triple, time)
                    solved_triples.append((time, triple))
                    limit = min(limit, time * (1 + 4 * self.error))
        ranking = self.engine.ranked(triple for time, triple in solved_triples if time < limit)
        for _, solved_triple in solved_triples:
            self.engine.forget(solved_triple)
        if ranking and (fewer is None or ranking[0].epoch < fewer.epoch):
            return min(ranking, key=rank)
        return None

    def _add(self, place: int, triple: Triple, bound: float) -> None:
        known = self.bounds[place]
        known[triple.servers] = max(known.get(triple.servers, 0.0), bound)

    def _needs_all(self, triple: Triple) -> bool:
        """Return whether a worker without a segment would be redundant."""
        return triple.servers < triple.workers or self.engine.problem.read_model == "max"

    def _between(self, place: int, triple: Triple) -> float:
        """Return a bound on a triple, interpolated between other numbers of servers."""
        if not self._needs_all(triple):
            return 0.0
        known = self.bounds[place]
        if not known:
            self._bound(place, self.triples[place])
            self._bound(place, triple)
        return _interpolated(known, triple.servers)

    def _bound(self, place: int, triple: Triple) -> float:
        """Return a bound on configurations that need all machines of a triple."""
        through, anything = self.layerwise.coarse(triple)
        bound = MAX_TIME
        for options, times in zip(self.layerwise.options, through, strict=True):
            full = times[options.segments[: len(times)] == triple.workers]
            if full.size:
                bound = min(bound, float(full.min()))
        self._add(place, triple, bound)
        return bound if self._needs_all(triple) else anything
