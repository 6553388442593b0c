"""Best-first search over triples of workers, replicas and servers.

Problem: the best configurations over all N_ps + N_mr·N_wr <= N, in order. Method: every triple
starts with a bound. The triple with the least bound gets a stronger bound (with its own servers,
then of the coarse program), and at last is solved (`planner.families.yan.layerwise`). When the
least entry is solved, no other is better. More servers never cost more, so the largest number comes
first, and the next smaller one only after it. Guarantee: the least times in order, except for
rounding, which `planner.families.yan.exact_tie_break` removes. Complexity: O(N ln N) bounds, each
O(L·K·C) for C choices a layer on N workers; then one dynamic program for each triple that is not
cut. The paper's search runs O(N²) times as many programs. Source: Yan et al., KDD'15, slides
"Efficient Search Algorithm" (the outer loops); bounds and order are ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from planner.families.yan.layer_program import Triple
from planner.families.yan.layerwise import Layerwise
from planner.solving.deadline import Deadline, TimeUpError

SolvedT = TypeVar("SolvedT")


@dataclass(frozen=True, slots=True)
class Space:
    """The triples that are searched; `machines` and `fewest_machines` limit the machines in use."""

    machines: int
    fewest_servers: int
    most_workers: int
    most_replicas: int
    fewest_machines: int = 1

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield numbers of replicas, and the most workers of each."""
        room = self.machines - self.fewest_servers
        for replicas in range(1, min(self.most_replicas, room) + 1):
            yield replicas, min(self.most_workers, room // replicas)

    @property
    def count(self) -> int:
        """Number of triples."""
        return sum(
            len(self.servers(workers, replicas))
            for replicas, most in self.pairs()
            for workers in range(1, most + 1)
        )

    def servers(self, workers: int, replicas: int) -> range:
        """Return the numbers of servers possible with these workers."""
        used = workers * replicas
        fewest = max(self.fewest_servers, self.fewest_machines - used)
        return range(fewest, self.machines - used + 1)


@dataclass(frozen=True, slots=True)
class Solution(Generic[SolvedT]):
    """A solved triple."""

    triple: Triple
    epoch: float  # except for rounding
    solved: SolvedT


@dataclass(slots=True)
class SearchResult(Generic[SolvedT]):
    """Result of a search."""

    solutions: list[Solution[SolvedT]] = field(default_factory=list)  # by time, with ties
    bound: float = float("inf")  # on every other triple, except for rounding
    triples: int = 0  # in the space
    solved: int = 0
    cut: int = 0  # by bounds: all unsolved ones, unless the time was up
    timed_out: bool = False


def search(
    layerwise: Layerwise,
    space: Space,
    solve: Callable[[Triple], tuple[float, SolvedT] | None],
    top: int,
    deadline: Deadline,
    below: float = float("inf"),
) -> SearchResult[SolvedT]:
    """Return the best `top` triples with a time below `below`.

    `solve` returns the time of a triple, at least its bound, and the solution, or None. One triple
    is solved even after the deadline; TimeUpError if `solve` raises it for the first one.
    """
    result: SearchResult[SolvedT] = SearchResult(triples=space.count)
    heap: list[tuple[float, int, int, Triple]] = []  # time or bound, stage, -servers, triple
    error = layerwise.tables.error
    waiting: dict[Triple, Solution[SolvedT]] = {}
    pairs, more = space.pairs(), True
    while more and not (result.solutions or waiting):
        more = False
        for replicas, most in pairs:
            side = max(1, min(most, space.machines // (replicas + 1)))
            bounds = layerwise.bounds(replicas, most, side)
            for workers in range(1, most + 1):
                servers = space.servers(workers, replicas)
                if servers and bounds[workers - 1] < below:
                    triple = Triple(workers, replicas, servers[-1])
                    heap.append((float(bounds[workers - 1]), 0, -triple.servers, triple))
            if deadline.passed and heap:
                more = True  # continued only if no triple here has a solution
                break
        heapify(heap)
        while heap:
            value, stage, _, triple = heappop(heap)
            full = len(result.solutions) >= top
            if full and value > result.solutions[top - 1].epoch * (1 + 4 * error):
                result.bound = value
                break
            if deadline.passed and (result.solutions or waiting):
                result.bound, result.timed_out = value, True
                heappush(heap, (value, stage, -triple.servers, triple))
                break
            if stage < 2 and not deadline.passed:
                try:
                    stronger = layerwise.coarse(triple)[1] if stage else layerwise.bound(triple)
                except TimeUpError:
                    stronger = value
                better = max(value, stronger)
                if better < below:
                    heappush(heap, (better, stage + 1, -triple.servers, triple))
            elif stage <= 2:
                try:
                    outcome = solve(triple)
                except TimeUpError:
                    if not (result.solutions or waiting):
                        raise
                    result.bound, result.timed_out = value, True
                    heappush(heap, (value, stage, -triple.servers, triple))
                    break
                result.solved += 1
                if outcome is not None and outcome[0] < below:
                    waiting[triple] = Solution(triple, outcome[0], outcome[1])
                    heappush(heap, (outcome[0], 3, -triple.servers, triple))
            else:
                result.solutions.append(waiting.pop(triple))
                fewer = triple._replace(servers=triple.servers - 1)
                if fewer.servers in space.servers(triple.workers, triple.replicas):
                    heappush(heap, (value, 0, -fewer.servers, fewer))
    if more:
        result.bound, result.timed_out = 0.0, True
    result.cut = result.triples - result.solved
    if result.timed_out:
        if not result.solutions:
            result.solutions = sorted(waiting.values(), key=lambda solution: solution.epoch)[:1]
        worst = max((solution.epoch for solution in result.solutions), default=float("inf"))
        result.cut = sum(
            triple.servers - space.servers(triple.workers, triple.replicas)[0] + 1
            for value, stage, _, triple in heap
            if stage < 3 and value > worst
        )
    return result
