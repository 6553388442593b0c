"""The best configuration under the canonical mapping.

Problem: choose servers, replicas, workers, and partitions, copies and threads of every layer, so
that an epoch is shortest (`planner.yan.model`) and everything fits in memory.

Method: best first over triples (`planner.yan.search`), a dynamic program over layers for each
(`planner.yan.layerwise`, or `planner.yan.memory` where memory is short), rational arithmetic on
what rounding cannot tell apart (`planner.yan.ties`). The same search with each segment on the
worker that holds most of what it needs bounds every other mapping.

Guarantee: the least time under the canonical mapping, proven; the ranking holds the best
configuration of each triple, in order, ties by more servers first.

Complexity: see there. Source: Yan et al., KDD'15; exactness, bounds and ranking are ours.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from planner.deadline import Deadline
from planner.errors import BrokenConstraintError, InvalidInputError
from planner.results import Infeasibility
from planner.validation import MAX_VALUE
from planner.yan.applicable import refuse_different
from planner.yan.checker import server_bytes, worker_bytes
from planner.yan.configuration import Configuration, Explored, LayerChoice, Outcome, Plan, Ranked
from planner.yan.layerwise import Chosen, Layerwise, Program, State, Triple
from planner.yan.mapping import canonical_mapping
from planner.yan.memory import Memory, fitting
from planner.yan.model import estimate
from planner.yan.problem import Problem
from planner.yan.search import Search, Space, search
from planner.yan.tables import Choice, Tables, choices
from planner.yan.ties import Exact, exact_best

__all__ = [
    "Engine",
    "any_mapping_bound",
    "best_of",
    "configuration_of",
    "exact",
    "infeasibility",
    "normal",
    "rank",
    "space_of",
]


def normal(problem: Problem) -> Problem:
    """Return the same problem with the speed all machines share in the constants."""
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
    return replace(problem, constants=scaled, machine_speeds=None, nic_speeds=None)


def configuration_of(triple: Triple, states: Iterable[State]) -> Configuration:
    """Return a configuration under the canonical mapping."""
    states = list(states)
    mappings = canonical_mapping([one.choice for one in states], triple.workers)
    return Configuration(
        triple.servers,
        triple.replicas,
        triple.workers,
        tuple(
            LayerChoice(one.partitions, one.threads, one.copies, mapping)
            for one, mapping in zip(states, mappings, strict=True)
        ),
    )


def fewest_servers(problem: Problem) -> int:
    """Return how many servers the weights need."""
    if problem.memory_bytes is None:
        return 1
    one = server_bytes(problem, 1)
    servers = max(1, -(-one // problem.memory_bytes))
    while server_bytes(problem, servers) > problem.memory_bytes:
        servers += 1
    return servers


def space_of(problem: Problem) -> Space:
    """Return all triples of a problem."""
    return Space(problem.machines, fewest_servers(problem), problem.machines, problem.machines)


def infeasibility(problem: Problem) -> Infeasibility | None:
    """Return why there is no configuration at all, and the smallest relaxation; None if there is.

    A layer needs least with one thread; mostly, but not always, in as many partitions as there can
    be: an inner band of a convolution reads more rows than one at the edge, which has padding.
    """
    if problem.machines < 2:
        return Infeasibility(
            "a job needs a parameter server and a worker: machines must be at least 2",
            ("machines",),
        )
    if problem.memory_bytes is None:
        return None

    @cache
    def least(place: int, workers: int) -> tuple[int, int]:
        """Return the least bytes of a layer, and in how many partitions."""
        layer = problem.layers[place]
        partitions = {p for p, _ in choices(problem, layer, workers)}
        return min((worker_bytes(problem, place, p, 1), p) for p in partitions)

    def needed(workers: int) -> list[int]:
        return [least(place, workers)[0] for place in range(len(problem.layers))]

    def both(servers: int) -> int:
        return max(server_bytes(problem, servers), sum(needed(problem.machines - servers)))

    low, high = 1, problem.machines - 1  # servers need less the more there are, workers more
    while low < high:
        middle = (low + high) // 2
        if server_bytes(problem, middle) <= sum(needed(problem.machines - middle)):
            high = middle
        else:
            low = middle + 1
    servers = min(range(max(1, low - 1), low + 1), key=both)
    if both(servers) <= problem.memory_bytes:
        return None
    parts = needed(problem.machines - servers)
    largest = max(range(len(parts)), key=parts.__getitem__)
    layer, best = problem.layers[largest], least(largest, problem.machines - servers)[1]
    return Infeasibility(
        f"memory: at least {both(servers)} bytes a machine are needed, memory_bytes is "
        f"{problem.memory_bytes}; with {servers} of {problem.machines} machines as servers each "
        f"holds {server_bytes(problem, servers)} bytes and each worker up to {sum(parts)}, most of "
        f"it ({parts[largest]}) for layer {layer.name!r} in {best} partitions",
        ("memory_bytes",),
        (largest,),
    )


class Solved(NamedTuple):
    """The layers of one triple.

    Attributes
    ----------
    chosen : tuple of Chosen
        The best; more than one where memory is short and rounding cannot tell them apart.
    program : Program or None
        What they come from; None where memory is short.
    complete : bool
        Whether nothing else can be better.
    states : int
        States that were looked at.
    """

    chosen: tuple[Chosen, ...]
    program: Program | None
    complete: bool
    states: int


class Exactly(NamedTuple):
    """The best layers of one triple, and their exact time.

    Attributes
    ----------
    epoch : Fraction
        In nanoseconds.
    states : tuple of State
        Layer 0 first.
    bound : Fraction
        Bound on the triple: `epoch` where nothing better can have been missed.
    """

    epoch: Fraction
    states: tuple[State, ...]
    bound: Fraction


class Engine:
    """Solves the triples of one problem; what several share is computed once.

    Parameters
    ----------
    problem : Problem
        What to plan; its machines alike.
    space : Space, optional
        Triples to search; all by default.
    allowed : callable, optional
        Whether a layer may have so many partitions and copies.
    optimistic : bool
        Bound every mapping instead.
    """

    def __init__(
        self,
        problem: Problem,
        space: Space | None = None,
        allowed: Callable[[Choice], bool] = lambda _: True,
        *,
        optimistic: bool = False,
    ) -> None:
        self.problem = normal(problem)
        self.space = space or space_of(problem)
        most = min(self.space.most_workers, problem.machines - self.space.fewest_servers)
        self.tables = Tables(self.problem, optimistic=optimistic)
        self.layerwise = Layerwise(self.tables, max(1, most), allowed)
        self.exact = Exact(self.problem)
        self.memory = (
            None if problem.memory_bytes is None else Memory(self.problem, problem.memory_bytes)
        )
        self._solved: dict[Triple, Solved | None] = {}
        self._exact: dict[Triple, Exactly] = {}

    def key(self, triple: Triple) -> Triple:
        """Return the triple with as many servers as are read from side by side."""
        side = 1 if self.problem.read_model == "max" else min(triple.servers, triple.workers)
        return triple._replace(servers=side)

    def solve(self, triple: Triple) -> tuple[float, Solved] | None:
        """Return the time of a triple, but for rounding, and its layers; None if none fit."""
        key = self.key(triple)
        if key not in self._solved:
            self._solved[key] = self._solve(key)
        found = self._solved[key]
        return None if found is None else (found.chosen[0].epoch, found)

    def _solve(self, triple: Triple) -> Solved | None:
        program, states = self.layerwise.program(triple)
        chosen = program.best()
        if self.memory is None or self.memory.fits(chosen.states):
            return Solved((chosen,), program, complete=True, states=states)
        found = fitting(self.layerwise, self.memory, triple)
        if found is None:
            return None
        return Solved(found.chosen, None, found.complete, found.states)

    def exactly(self, triple: Triple) -> Exactly:
        """Return the exact best of a triple that was solved and has a solution."""
        key = self.key(triple)
        if key not in self._exact:
            self._exact[key] = self._exactly(key)
        return self._exact[key]

    def _exactly(self, triple: Triple) -> Exactly:
        solved = self._solved[triple]
        assert solved is not None
        if solved.program is not None:
            found = exact_best(self.exact, solved.program, triple)
            if found is not None and (self.memory is None or self.memory.fits(found[1])):
                return Exactly(*found, found[0])
            if found is not None and self.memory is not None:  # one of the ties does not fit
                some = fitting(self.layerwise, self.memory, triple)
                assert some is not None
                solved = Solved(some.chosen, None, some.complete, solved.states)
        epoch, states = min(
            (self.exact.epoch(triple, one.states), one.states) for one in solved.chosen
        )
        if solved.complete and solved.program is None:
            return Exactly(epoch, states, epoch)
        return Exactly(epoch, states, min(epoch, self.below(solved.chosen[0].epoch)))

    def below(self, time: float) -> Fraction:
        """Return a bound on what a time is but for rounding."""
        return Fraction(time * (1 - 2 * self.tables.error))

    def search(self, top: int, deadline: Deadline, below: float = float("inf")) -> Search[Solved]:
        """Return the best triples."""
        return search(self.layerwise, self.space, self.solve, top, deadline, below)

    def ranked(self, triples: Iterable[Triple]) -> list[Ranked]:
        """Return the best configurations of solved triples, in exact order."""
        found = []
        for triple in triples:
            one = self.exactly(triple)
            found.append(Ranked(configuration_of(triple, one.states), one.epoch))
        return sorted(found, key=rank)

    def all_states(self) -> int:
        """Return the states of all layers over all triples."""
        return sum(
            len(self.space.servers(workers, replicas)) * self.layerwise.states(workers)
            for replicas, most in self.space.pairs()
            for workers in range(1, most + 1)
        )

    def explored(self, result: Search[Solved]) -> Explored:
        """Return how much of the space a search looked at."""
        states = self.all_states()
        seen = sum(one.states for one in self._solved.values() if one is not None)
        return Explored(result.triples, result.triples - result.solved, states, states - seen)


def rank(ranked: Ranked) -> tuple[Fraction, int, int, int]:
    """Return what orders configurations: time, then more servers, then fewer workers."""
    workers, replicas, servers = ranked.configuration.triple
    return ranked.epoch, -servers, workers, replicas


def exact(problem: Problem, deadline: Deadline) -> Outcome:
    """Find the best configuration.

    Raises
    ------
    NotApplicableError
        If machines differ.
    """
    refuse_different(problem, "exact")
    return best_of(problem, deadline)


def best_of(
    problem: Problem,
    deadline: Deadline,
    space: Space | None = None,
    allowed: Callable[[Choice], bool] = lambda _: True,
) -> Outcome:
    """Find the best configuration of a part of the space.

    Parameters
    ----------
    problem : Problem
        What to plan; its machines alike.
    deadline : Deadline
        When to stop.
    space : Space, optional
        Triples to search; all by default.
    allowed : callable, optional
        Whether a layer may have so many partitions and copies.
    """
    nothing = infeasibility(problem)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    engine = Engine(problem, space, allowed)
    if problem.fixed:
        return _fixed(problem, engine)
    result = engine.search(problem.top, deadline)
    if not result.found:
        reason = (
            f"memory: no configuration of this kind fits {problem.memory_bytes} bytes a machine"
        )
        return Outcome(None, infeasibility=Infeasibility(reason, ("memory_bytes",)))
    ranking = engine.ranked(one.triple for one in result.found)
    bound = min(engine.exactly(one.triple).bound for one in result.found)
    if result.timed_out:
        bound = min(bound, engine.below(result.bound))
    plan = Plan(
        ranking[0].configuration,
        tuple(ranking[: problem.top]),
        engine.explored(result),
        any_mapping_bound(problem, deadline, space, allowed),
    )
    return Outcome(plan, bound, result.timed_out)


def any_mapping_bound(
    problem: Problem,
    deadline: Deadline,
    space: Space | None = None,
    allowed: Callable[[Choice], bool] = lambda _: True,
) -> int:
    """Return a bound, in nanoseconds, on every configuration under every mapping."""
    free = replace(problem, memory_bytes=None, fixed=())
    engine = Engine(free, space, allowed, optimistic=True)
    result = engine.search(1, deadline)
    best = min(one.epoch for one in result.found)
    if result.timed_out:
        best = min(best, result.bound)
    return -int(-engine.below(best) // 1)


def _fixed(problem: Problem, engine: Engine) -> Outcome:
    """Price what is given instead of searching."""
    ranking, bounds = [], []
    for place, one in enumerate(problem.fixed):
        triple = Triple(one.workers_per_replica, one.replicas, one.parameter_servers)
        if one.layers is not None:
            configuration = one.configuration()
            try:
                epoch = estimate(problem, configuration).epoch
            except BrokenConstraintError as error:
                raise InvalidInputError(f"fixed[{place}]", error.message) from None
            ranking.append(Ranked(configuration, epoch))
            bounds.append(epoch)
        elif server_bytes(problem, triple.servers) > (problem.memory_bytes or MAX_VALUE):
            message = f"its servers need {server_bytes(problem, triple.servers)} bytes each"
            raise InvalidInputError(f"fixed[{place}]", f"{message}, got {problem.memory_bytes}")
        elif engine.solve(triple) is None:
            message = f"no choice of layers fits {problem.memory_bytes} bytes a worker"
            raise InvalidInputError(f"fixed[{place}]", message)
        else:
            ranking += engine.ranked([triple])
            bounds.append(engine.exactly(triple).bound)
    ranking.sort(key=rank)
    count = len(ranking)
    explored = Explored(count, 0, count * len(problem.layers), 0)
    return Outcome(Plan(ranking[0].configuration, tuple(ranking), explored), min(bounds))
