"""Every configuration of a small problem, priced one by one: what the other methods must equal.

Problem: as `planner.families.yan.exact`, and where machines differ also which machine is which
server or worker.

Method: every triple of workers, replicas and servers, every choice of partitions, copies and
threads of every layer under the canonical mapping, every assignment of machines. Left out is only
what changes no price: the order of servers among themselves and of replicas among themselves, and
which of several machines of the same speeds is taken. Everything is checked and priced by the
model; no bound, no table and no rounding.

Guarantee: the least time of all. The bound is that time: it proves nothing about other mappings.

Complexity: O(Σ over triples of (K·C)^L·assignments) with C choices a layer; refused above
`MAX_CONFIGURATIONS`. Source: own.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, islice, product
from math import prod

from planner.families.yan.configuration import (
    Configuration,
    Explored,
    LayerChoice,
    Plan,
    Ranked,
    canonical_mapping,
)
from planner.families.yan.exact import any_mapping_bound
from planner.families.yan.memory import infeasibility
from planner.families.yan.model import estimate
from planner.families.yan.problem import Choice, Problem, choices, refuse_fixed
from planner.families.yan.search import rank
from planner.model.errors import BrokenConstraintError, NotApplicableError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

MAX_CONFIGURATIONS = 50_000


def brute_force(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Find the best configuration by pricing all of them.

    Raises
    ------
    NotApplicableError
        If there are more than `MAX_CONFIGURATIONS`, or configurations are fixed.
    """
    refuse_fixed(problem, "brute_force")
    _refuse_large(problem)
    best: dict[tuple[int, int, int], Ranked] = {}
    timed_out = False
    for configuration in configurations(problem):
        if deadline.passed and best:
            timed_out = True
            break
        try:
            epoch = estimate(problem, configuration).epoch
        except BrokenConstraintError:  # memory
            continue
        known = best.get(configuration.triple)
        if known is None or epoch < known.epoch:
            best[configuration.triple] = Ranked(configuration, epoch)
    if not best:
        nothing = infeasibility(problem)
        assert nothing is not None
        return Outcome(None, infeasibility=nothing)
    ranking = sorted(best.values(), key=rank)
    anywhere = any_mapping_bound(problem, deadline) if problem.uniform else None
    bound = ranking[0].epoch
    plan = Plan(
        ranking[0].configuration,
        tuple(ranking[: problem.top]),
        Explored(sum(1 for _ in _triples(problem)), 0),
        anywhere,
    )
    if timed_out:
        return Outcome(plan, None if anywhere is None else Fraction(anywhere), timed_out=True)
    return Outcome(plan, bound)


def _triples(problem: Problem) -> Iterator[tuple[int, int, int]]:
    """Yield workers, replicas, servers."""
    for workers in range(1, problem.machines):
        for replicas in range(1, (problem.machines - 1) // workers + 1):
            for servers in range(1, problem.machines - workers * replicas + 1):
                yield workers, replicas, servers


def _layer_states(problem: Problem, workers: int) -> list[list[tuple[Choice, int]]]:
    """Return the choices and threads of each layer."""
    threads = range(1, problem.threads + 1)
    return [list(product(choices(problem, layer, workers), threads)) for layer in problem.layers]


def _refuse_large(problem: Problem) -> None:
    """Raise an error if there are too many configurations; counts no more than that."""
    count = 0
    for triple in _triples(problem):
        each = prod(
            len(choices(problem, layer, triple[0])) * problem.threads for layer in problem.layers
        )
        room = (MAX_CONFIGURATIONS - count) // each
        count += each * sum(1 for _ in islice(assignments(problem, *triple), room + 1))
        if count > MAX_CONFIGURATIONS:
            raise NotApplicableError(
                "method",
                f"brute_force prices at most {MAX_CONFIGURATIONS} configurations, and this "
                "problem has more; use 'auto'",
            )


def configurations(problem: Problem) -> Iterator[Configuration]:
    """Yield all configurations, whether they fit in memory or not."""
    for workers, replicas, servers in _triples(problem):
        used = list(assignments(problem, workers, replicas, servers))
        for states in product(*_layer_states(problem, workers)):
            mappings = canonical_mapping([choice for choice, _ in states], workers)
            layers = tuple(
                LayerChoice(p, threads, r, mapping)
                for ((p, r), threads), mapping in zip(states, mappings, strict=True)
            )
            for machines in used:
                yield Configuration(servers, replicas, workers, layers, machines)


def assignments(
    problem: Problem, workers: int, replicas: int, servers: int
) -> Iterator[tuple[int, ...] | None]:
    """Yield the machines of servers and workers in all ways that may differ in price.

    None, once, where machines are alike.
    """
    if problem.uniform:
        yield None
        return
    kinds = list(problem.machine_speeds or ())
    for chosen in _arranged(Counter(kinds), workers, replicas, servers):
        spare: dict[Fraction, list[int]] = {}
        for machine in reversed(range(problem.machines)):
            spare.setdefault(kinds[machine], []).append(machine)
        yield tuple(spare[kind].pop() for kind in chosen)


def _arranged(
    left: Counter[Fraction], workers: int, replicas: int, servers: int
) -> Iterator[tuple[Fraction, ...]]:
    """Yield the kinds of the servers' machines, in order, then those of each replica's workers.

    Replicas do not fall in lexicographic order.
    """
    for picked in combinations_with_replacement(sorted(left), servers):
        rest = left - Counter(picked)
        if rest.total() == left.total() - servers:  # else more of a kind than there are
            yield from _replicas(rest, picked, workers, replicas, ())


def _replicas(
    left: Counter[Fraction],
    done: tuple[Fraction, ...],
    workers: int,
    replicas: int,
    least: tuple[Fraction, ...],
) -> Iterator[tuple[Fraction, ...]]:
    if not replicas:
        yield done
        return
    for picked in _tuples(left, workers):
        if picked >= least:
            rest = left - Counter(picked)
            yield from _replicas(rest, done + picked, workers, replicas - 1, picked)


def _tuples(left: Counter[Fraction], length: int) -> Iterator[tuple[Fraction, ...]]:
    """Yield all sequences of kinds of which there are enough."""
    if not length:
        yield ()
        return
    for kind in sorted(left):
        for others in _tuples(left - Counter([kind]), length - 1):
            yield (kind, *others)
