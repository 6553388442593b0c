"""Best-first search over triples of workers, replicas and servers, and the solver of each triple.

Problem: the best configurations over all N_ps + N_mr·N_wr <= N, in order. Method: every triple
starts with a bound. The triple with the least bound gets a stronger bound (with its own servers,
then of the coarse program), and at last is solved (`planner.families.yan.layerwise`, or
`planner.families.yan.memory` where memory is short). When the least entry is solved, no other is
better. More servers never cost more, so the largest number comes first, and the next smaller one
only after it. Guarantee: the least times in order, except for rounding; `Engine.ranked` makes them
exact. Complexity: O(N ln N) bounds, each O(L·K·C) for C choices a layer on N workers; then one
dynamic program for each triple that is not cut. The paper's search runs O(N²) times as many
programs. Source: Yan et al., KDD'15, slides "Efficient Search Algorithm" (the outer loops); bounds
and order are ours.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from planner.families.yan.configuration import (
    Configuration,
    Fixed,
    LayerChoice,
    LayerMapping,
    Ranked,
    Space,
    Triple,
)
from planner.families.yan.layer_program import (
    Chosen,
    Exact,
    LayerProgram,
    LayerState,
    Limit,
    best_path,
)
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.memory import Memory, space_of
from planner.families.yan.problem import COMPUTATION, Choice, Problem, scaled
from planner.families.yan.tables import Tables
from planner.solving.deadline import NEVER, Deadline, TimeUpError


class Solution(NamedTuple):
    """A solved triple."""

    epoch: float  # except for rounding
    triple: Triple


@dataclass(slots=True)
class SearchResult:
    """Result of a search."""

    solutions: list[Solution] = field(default_factory=list)  # by time, with ties
    bound: float = float("inf")  # on every triple outside `solutions`, except for rounding
    triples: int = 0  # in the space
    solved: int = 0
    cut: int = 0  # triples that bounds cut: all unsolved triples, or 0 if the time was up
    least: float = float("inf")  # bound on every solved triple
    timed_out: bool = False


def bounded(layerwise: Layerwise, space: Space) -> Iterator[list[tuple[float, Triple]]]:
    """Yield for each number of replicas the triples with most servers, each with a bound."""
    for replicas, most in space.rows():
        side = max(1, min(most, space.machines // (replicas + 1)))
        bounds = layerwise.bounds(replicas, most, side)
        yield [
            (float(bound), Triple(workers, replicas, space.servers(workers, replicas)[-1]))
            for workers, bound in enumerate(bounds, start=1)
        ]


def search(
    layerwise: Layerwise,
    space: Space,
    solve: Callable[[Triple], float | None],
    top: int,
    deadline: Deadline,
    *,
    stronger: Sequence[Callable[[Triple], float]] = (),
    monotone: bool = True,
) -> SearchResult:
    """Return the best `top` triples.

    `solve` returns the time of a triple, at least its bound, or None. One triple is solved even
    after the deadline; TimeUpError if `solve` raises it for the first one. `stronger` are the
    bounds of a triple with its own servers, the last one the strongest. If `monotone`, fewer
    servers never take less time; else only the triple's bound holds for fewer servers.
    """
    stronger = stronger or (layerwise.bound, lambda triple: layerwise.coarse(triple)[1])
    last = len(stronger)  # the stage in which a triple is solved

    def push(value: float, stage: int, triple: Triple) -> None:
        if triple.servers in space.servers(triple.workers, triple.replicas):
            heappush(heap, (value, stage, -triple.servers, triple))

    result = SearchResult(triples=space.count)
    heap: list[tuple[float, int, int, Triple]] = []  # time or bound, stage, -servers, triple
    error = layerwise.tables.error
    waiting: dict[Triple, float] = {}  # solved triples, while other triples may be better
    every, more = bounded(layerwise, space), True
    while more and not (result.solutions or waiting):
        more = False
        for bounds in every:
            heap += [(bound, 0, -triple.servers, triple) for bound, triple in bounds]
            if deadline.passed and heap:
                more = True  # continues only if no triple so far has a solution
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
                break
            fewer = triple._replace(servers=triple.servers - 1)
            if stage < last and not deadline.passed:
                try:
                    better = max(value, stronger[stage](triple))
                except TimeUpError:
                    better = value
                push(better, stage + 1, triple)
            elif stage <= last:
                try:
                    epoch = solve(triple)
                except TimeUpError:
                    if not (result.solutions or waiting):
                        raise
                    result.bound, result.timed_out = value, True
                    break
                result.solved += 1
                result.least = min(result.least, value)
                if epoch is not None:
                    waiting[triple] = epoch
                    push(epoch, last + 1, triple)
                if not monotone:
                    push(value, 0, fewer)
            else:
                result.solutions.append(Solution(waiting.pop(triple), triple))
                if monotone:
                    push(value, 0, fewer)
    if more:
        result.bound, result.timed_out = 0.0, True
    if not result.timed_out:
        result.cut = result.triples - result.solved
    elif waiting and not result.solutions:
        first = min(waiting, key=waiting.__getitem__)
        result.solutions = [Solution(waiting[first], first)]
    return result


# ---
# Solver of single triples, first in floating point, then exactly. Triples with equal numbers of
# servers that can be read in parallel share their solution.

GRACE_S = 0.1
"""Seconds that the first configuration may take after the time limit."""


def normal(problem: Problem) -> Problem:
    """Return the same problem with the machines' common speed moved into the constants."""
    if problem.machine_speeds is None:
        return problem
    speed = problem.machine_speeds[0]
    for constant in COMPUTATION:
        problem = scaled(problem, constant, 1 / speed)
    return replace(problem, machine_speeds=None)


def configuration_of(
    triple: Triple, states: Sequence[LayerState], mappings: Sequence[LayerMapping] = ()
) -> Configuration:
    """Return a configuration, under the canonical mapping unless others are given."""
    layers = tuple(
        LayerChoice(state.partitions, state.threads, state.copies, mapping)
        for state, mapping in zip(states, mappings or [()] * len(states), strict=True)
    )
    return Fixed(triple.servers, triple.replicas, triple.workers, layers).configuration()


def rank(ranked: Ranked) -> tuple[Fraction, int, int, int]:
    """Return the sort key of configurations: time, then more servers, then fewer workers."""
    workers, replicas, servers = ranked.configuration.triple
    return ranked.epoch, -servers, workers, replicas


class Solved(NamedTuple):
    """Solution of one triple in floating point."""

    chosen: Chosen
    program: LayerProgram | None  # None where memory or time is short
    bound: float  # on the triple, except for rounding


class Exactly(NamedTuple):
    """The best layers of one triple, with exact time and bound (ns)."""

    epoch: Fraction
    states: tuple[LayerState, ...]
    bound: Fraction


class Engine:
    """Solver of the triples of one problem, with shared caches; the machines must be equal.

    `allowed` filters (partitions, copies) of layers. After the deadline a triple gets a quick
    solution; making the engine then raises TimeUpError. `optimistic` bounds every mapping instead
    of solving the canonical one.
    """

    def __init__(
        self,
        problem: Problem,
        space: Space | None = None,
        allowed: Callable[[Choice], bool] = lambda _: True,
        *,
        deadline: Deadline = NEVER,
        optimistic: bool = False,
    ) -> None:
        self.problem = normal(problem)
        self.space = space or space_of(problem)
        most = min(self.space.most_workers, problem.machines - self.space.fewest_servers)
        self.tables = Tables(self.problem, optimistic=optimistic)
        self.layerwise = Layerwise(self.tables, max(1, most), allowed, deadline)
        self.exact = Exact(self.problem)
        self.memory = (
            None if problem.memory_bytes is None else Memory(self.layerwise, problem.memory_bytes)
        )
        self.deadline = deadline
        self.stopped = False
        """Whether time ran out while a triple was solved, so that its layers may not be optimal."""
        self._solved: dict[Triple, Solved | None] = {}
        self._exact: dict[Triple, Exactly] = {}

    def key(self, triple: Triple) -> Triple:
        """Return the cache key: the triple with only the servers that can be read in parallel."""
        side = 1 if self.problem.read_model == "max" else min(triple.servers, triple.workers)
        return triple._replace(servers=side)

    def solve(self, triple: Triple) -> float | None:
        """Return the time of a triple, except for rounding; None if no configuration fits."""
        solved = self.solved(triple)
        return None if solved is None else solved.chosen.epoch

    def solved(self, triple: Triple) -> Solved | None:
        """Return the solution of a triple, or None if no configuration fits."""
        key = self.key(triple)
        if key not in self._solved:
            self._solved[key] = self._solve(key)
        return self._solved[key]

    def _solve(self, triple: Triple) -> Solved | None:
        try:
            program = self.layerwise.program(triple)
            chosen = program.best()
        except TimeUpError:
            return self._quickly(triple)
        if self.memory is None or self.memory.fits(chosen.states):
            return Solved(chosen, program, chosen.epoch)
        fitted = self.memory.fitting(self.exact, triple)
        if fitted is None:
            return None
        epoch, states = fitted
        self._exact[triple] = Exactly(epoch, states, epoch)
        return Solved(Chosen(float(epoch), states), None, float(epoch))

    def _quickly(self, triple: Triple) -> Solved | None:
        """Return some configuration of a triple, or None if it finds none that fits.

        TimeUpError if even this takes too long.
        """
        bound = self.layerwise.bound(triple)
        program = self.layerwise.few(triple, self.layerwise.lowest(triple))
        chosen = replace(program, deadline=self.deadline.at_least(GRACE_S)).best()
        if self.memory is not None and not self.memory.fits(chosen.states):
            states = self.memory.smallest(triple)
            if states is None:
                return None
            chosen = Chosen(self.layerwise.time(triple, states), states)
        return Solved(chosen, None, bound)

    def forget(self, triple: Triple) -> None:
        """Free the caches of a triple: its program may take megabytes."""
        self._solved.pop(self.key(triple), None)
        self._exact.pop(self.key(triple), None)

    def exactly(self, triple: Triple) -> Exactly:
        """Return the exact optimum of a triple that was solved and has a solution."""
        key = self.key(triple)
        if key not in self._exact:
            self._exact[key] = self._exactly(key)
        return self._exact[key]

    def _exactly(self, triple: Triple) -> Exactly:
        solved = self._solved[triple]
        assert solved is not None
        if solved.program is not None:
            limit = None
            if self.memory is not None:  # some of the paths within rounding may not fit
                limit = Limit(self.memory.sizes(solved.program.options), self.memory.room)
            found = best_path(solved.program, self.exact, triple, limit)
            if found is not None:
                return Exactly(*found, found[0])
        epoch = self.exact.epoch(triple, solved.chosen.states)
        return Exactly(epoch, solved.chosen.states, min(epoch, self.below(solved.bound)))

    def below(self, time: float) -> Fraction:
        """Return a lower bound on a time that is exact except for rounding."""
        return Fraction(time * (1 - 2 * self.tables.error))

    def search(self, top: int, deadline: Deadline) -> SearchResult:
        """Return the best triples."""
        return search(self.layerwise, self.space, self.solve, top, deadline)

    def ranked(self, triples: Iterable[Triple]) -> list[Ranked]:
        """Return the best configurations of solved triples, in exact order."""
        ranking = []
        for triple in triples:
            exact = self.exactly(triple)
            ranking.append(Ranked(configuration_of(triple, exact.states), exact.epoch))
        return sorted(ranking, key=rank)
