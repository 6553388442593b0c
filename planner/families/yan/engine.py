"""Solver of single triples of a problem, first in floating point, then exactly.

Method: a dynamic program over layers (`planner.families.yan.layerwise`, or
`planner.families.yan.memory` where memory is short), then rational arithmetic on ties within
rounding (`planner.families.yan.exact_tie_break`). Triples with equal numbers of servers that can be
read in parallel share their solution.

Guarantee and complexity: see these modules. Source: own.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from planner.families.yan.configuration import (
    Configuration,
    Explored,
    LayerChoice,
    Ranked,
    canonical_mapping,
)
from planner.families.yan.exact_tie_break import Exact, exact_best
from planner.families.yan.feasibility import space_of
from planner.families.yan.layer_program import Chosen, LayerProgram, LayerState, Triple
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.memory import Memory, fitting, smallest
from planner.families.yan.problem import Problem
from planner.families.yan.search import SearchResult, Space, search
from planner.families.yan.tables import Choice, Tables
from planner.solving.deadline import NEVER, Deadline, TimeUpError

GRACE_S = 0.1
"""Seconds that the first configuration may take after the time limit."""


def normal(problem: Problem) -> Problem:
    """Return the same problem with the machines' common speed moved into the constants."""
    if problem.machine_speeds is None and problem.nic_speeds is None:
        return problem
    speed = problem.machine_speeds[0] if problem.machine_speeds else 1
    nic = problem.nic_speeds[0] if problem.nic_speeds else 1
    constants = problem.constants
    scaled = replace(
        constants,
        muladd_ns=constants.muladd_ns / speed,
        activation_ns=constants.activation_ns / speed,
        error_ns=constants.error_ns / speed,
        nic_bits_per_s=constants.nic_bits_per_s * nic,
    )
    layers = [layer.times(1 / Fraction(speed)) for layer in problem.layers]
    return replace(problem, layers=layers, constants=scaled, machine_speeds=None, nic_speeds=None)


def configuration_of(triple: Triple, states: Iterable[LayerState]) -> Configuration:
    """Return a configuration under the canonical mapping."""
    states = list(states)
    mappings = canonical_mapping([state.choice for state in states], triple.workers)
    return Configuration(
        triple.servers,
        triple.replicas,
        triple.workers,
        tuple(
            LayerChoice(state.partitions, state.threads, state.copies, mapping)
            for state, mapping in zip(states, mappings, strict=True)
        ),
    )


def rank(ranked: Ranked) -> tuple[Fraction, int, int, int]:
    """Return the sort key of configurations: time, then more servers, then fewer workers."""
    workers, replicas, servers = ranked.configuration.triple
    return ranked.epoch, -servers, workers, replicas


class Solved(NamedTuple):
    """Solution of one triple in floating point."""

    chosen: tuple[Chosen, ...]  # several if memory is short and rounding ties them
    program: LayerProgram | None  # None where memory is short
    complete: bool  # whether no other can be better
    states: int  # states examined
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
            None if problem.memory_bytes is None else Memory(self.problem, problem.memory_bytes)
        )
        self.deadline = deadline
        self._solved: dict[Triple, Solved | None] = {}
        self._exact: dict[Triple, Exactly] = {}

    def key(self, triple: Triple) -> Triple:
        """Return the cache key: the triple with only the servers that can be read in parallel."""
        side = 1 if self.problem.read_model == "max" else min(triple.servers, triple.workers)
        return triple._replace(servers=side)

    def solve(self, triple: Triple) -> tuple[float, Solved] | None:
        """Return the time of a triple, except for rounding, and its solution; None if none fits."""
        key = self.key(triple)
        if key not in self._solved:
            self._solved[key] = self._solve(key)
        solved = self._solved[key]
        return None if solved is None else (solved.chosen[0].epoch, solved)

    def _solve(self, triple: Triple) -> Solved | None:
        try:
            program, states = self.layerwise.program(triple)
            chosen = program.best()
        except TimeUpError:
            return self._quickly(triple)
        if self.memory is None or self.memory.fits(chosen.states):
            return Solved((chosen,), program, complete=True, states=states, bound=chosen.epoch)
        fitted = fitting(self.layerwise, self.memory, triple)
        if fitted is None:
            return None
        epoch = fitted.chosen[0].epoch
        return Solved(fitted.chosen, None, fitted.complete, fitted.states, epoch)

    def _quickly(self, triple: Triple) -> Solved | None:
        """Return some configuration of a triple, or None if it finds none that fits.

        TimeUpError if even this takes too long.
        """
        bound = self.layerwise.bound(triple)
        program = replace(self.layerwise.quick(triple), deadline=self.deadline.at_least(GRACE_S))
        chosen = program.best()
        if self.memory is not None and not self.memory.fits(chosen.states):
            states = smallest(self.layerwise, self.memory, triple)
            if not self.memory.fits(states):
                return None
            chosen = Chosen(self.layerwise.time(triple, states), states)
        return Solved((chosen,), None, complete=False, states=0, bound=bound)

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
            exact = exact_best(self.exact, solved.program, triple)
            if exact is not None and (self.memory is None or self.memory.fits(exact[1])):
                return Exactly(*exact, exact[0])
            if exact is not None and self.memory is not None:  # one of the ties does not fit
                fitted = fitting(self.layerwise, self.memory, triple)
                assert fitted is not None
                solved = Solved(
                    fitted.chosen, None, fitted.complete, solved.states, fitted.chosen[0].epoch
                )
        epoch, states = min(
            (self.exact.epoch(triple, chosen.states), chosen.states) for chosen in solved.chosen
        )
        if solved.complete and solved.program is None:
            return Exactly(epoch, states, epoch)
        return Exactly(epoch, states, min(epoch, self.below(solved.bound)))

    def below(self, time: float) -> Fraction:
        """Return a lower bound on a time that is exact except for rounding."""
        return Fraction(time * (1 - 2 * self.tables.error))

    def search(
        self, top: int, deadline: Deadline, below: float = float("inf")
    ) -> SearchResult[Solved]:
        """Return the best triples."""
        return search(self.layerwise, self.space, self.solve, top, deadline, below)

    def ranked(self, triples: Iterable[Triple]) -> list[Ranked]:
        """Return the best configurations of solved triples, in exact order."""
        ranking = []
        for triple in triples:
            exact = self.exactly(triple)
            ranking.append(Ranked(configuration_of(triple, exact.states), exact.epoch))
        return sorted(ranking, key=rank)

    def all_states(self) -> int:
        """Return the number of states of all layers over all triples."""
        return sum(
            len(self.space.servers(workers, replicas)) * self.layerwise.states(workers)
            for replicas, most in self.space.pairs()
            for workers in range(1, most + 1)
        )

    def explored(self, result: SearchResult[Solved]) -> Explored:
        """Return how much of the space a search examined."""
        states = self.all_states()
        seen = sum(solved.states for solved in self._solved.values() if solved is not None)
        cut = 0 if result.timed_out else states - seen
        return Explored(result.triples, result.cut, states, cut)
