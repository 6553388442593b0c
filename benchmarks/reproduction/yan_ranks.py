"""Table 1 of Yan et al.: the halves, constants taken from elsewhere, and orders compared.

Problem: the paper prints ranks of eight configurations for each of two networks, and no constants.
Constants fitted to the ranks they are to explain prove nothing.

Method: the two constants that were fitted to a half's ranks (`FITTED`) are replaced by those fitted
to the other half (`transferred`), and the order that comes out is scored (`pairs_right`). What else
was chosen with the ranks in view stays, and is said: interference for ImageNet-22K, one thread and
the two rows of conv2 for MNIST. `everything` also takes interference and latencies, and with them
the number of threads, from the other half.

Complexity: a search for the best layers of each configuration (`planner.families.yan.exact`).
Source: Yan et al., "Performance Modeling and Scalability Optimization of Distributed Deep Learning
Systems", KDD'15, Table 1.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from planner.families.yan import Problem, solve
from planner.families.yan.configuration import Ranked
from planner.jsonio import decode_request
from planner.jsonio.yan import problem_of

DATA = Path(__file__).parents[2] / "data" / "yan"

HALVES = {"mnist": "MNIST, Table 1(a)", "imagenet22k": "ImageNet-22K, Table 1(b)"}

FITTED = ("muladd_ns", "read_every")
"""Constants that were fitted to the ranks of their own half."""

Triple = tuple[int, int, int]


def load(name: str) -> Problem:
    """Return a request of ``data/yan`` as a problem."""
    return problem_of(decode_request((DATA / f"{name}.json").read_bytes()))


def given(problem: Problem) -> list[Triple]:
    """Return the configurations in the order in which they are given: the paper's."""
    return [(r.workers_per_replica, r.replicas, r.parameter_servers) for r in problem.fixed]


def label(triple: Triple) -> str:
    """Return a configuration as the paper writes it."""
    return "/".join(map(str, triple))


def ranking(problem: Problem) -> tuple[Ranked, ...]:
    """Return the configurations by the model, the fastest first, with the best layers of each."""
    plan = solve(problem).plan
    assert plan is not None
    return plan.ranking


def order(problem: Problem) -> list[Triple]:
    """Return the configurations by the model, the fastest first; ties by more servers."""
    return [ranked.configuration.triple for ranked in ranking(problem)]


def transferred(problem: Problem, other: Problem) -> Problem:
    """Return the problem with the constants that were fitted to the other half's ranks."""
    constants = replace(problem.constants, muladd_ns=other.constants.muladd_ns)
    return replace(problem, constants=constants, read_every=other.read_every)


def everything(problem: Problem, other: Problem) -> Problem:
    """Return the problem with all constants of the other half, threads included."""
    return replace(problem, constants=other.constants, read_every=other.read_every)


def pairs_right(
    found: Sequence[Triple], paper: Sequence[Triple], known: Sequence[Triple] = ()
) -> tuple[int, int]:
    """Return how many pairs are in the paper's order, and of how many.

    Pairs of two configurations in `known` are left out: constants were fitted to them.
    """
    place = {triple: rank for rank, triple in enumerate(found)}
    pairs = [
        (first, second)
        for first, second in combinations(paper, 2)
        if first not in known or second not in known
    ]
    return sum(place[first] < place[second] for first, second in pairs), len(pairs)
