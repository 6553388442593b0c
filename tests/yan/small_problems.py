"""Problems small enough for brute force, and what brute force says of them."""

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from hypothesis import strategies as st
from yan_brute_force import assignments, brute_force
from yan_brute_force import configurations as all_configurations

from planner.families.yan import YAN, solve
from planner.families.yan.configuration import (
    Configuration,
    LayerChoice,
    Plan,
    Ranked,
    canonical_mapping,
)
from planner.families.yan.family import Method
from planner.families.yan.model import Estimate, estimate
from planner.families.yan.problem import Choice, Constants, Problem, choices
from planner.model.errors import BrokenConstraintError
from planner.solving.deadline import NEVER, Deadline
from planner.solving.result import Result
from tests.perturbed import CASES
from tests.solved import Solved
from tests.yan.yan_strategies import problems

Rank = tuple[Fraction, int, int, int]

TINY: Problem = CASES["yan"].example


def solved(problem: Problem, method: str = "auto") -> Solved[Plan]:
    """Return the answer to a problem that has a plan."""
    return Solved.of(solve(problem, method=method))


def alike(time: float | Fraction, threads: int = 1, nic: float = 10**9, **more: Any) -> Constants:
    """Return constants of which every time is the same, but for those that are given."""
    known: dict[str, Any] = dict.fromkeys(("muladd_ns", "activation_ns", "error_ns"), time)
    known |= {"latency_ns": (time,) * threads, "nic_bits_per_s": nic}
    return Constants(**{**known, "interference": (1,) * threads, **more})


def mapped(choices: list[Choice], workers: int, threads: int = 1) -> tuple[LayerChoice, ...]:
    """Return layers of these partitions and copies, mapped canonically."""
    mappings = canonical_mapping(choices, workers)
    return tuple(LayerChoice(len(one), threads, len(one[0]), one) for one in mappings)


def configurations(problem: Problem) -> int:
    """How many brute force prices."""
    count = 0
    for workers in range(1, problem.machines):
        each = prod(
            len(choices(problem, layer, workers)) * problem.threads for layer in problem.layers
        )
        for replicas in range(1, (problem.machines - 1) // workers + 1):
            for servers in range(1, problem.machines - workers * replicas + 1):
                count += each * len(list(assignments(problem, workers, replicas, servers)))
    return count


@st.composite
def small_problems(
    draw: st.DrawFn, *, most: int = 250, memory: bool = False, speeds: bool = False
) -> Problem:
    """A problem with at most so many configurations, or nearly so; reduced where it has more."""
    problem = draw(problems(max_machines=5, max_threads=2, memory=memory, speeds=speeds))
    problem = replace(problem, max_copies=draw(st.none() | st.integers(1, 3)))
    while configurations(problem) > most:
        if problem.threads > 1 and draw(st.booleans()):
            problem = replace(problem, cores=1)
        elif len(problem.layers) > 2 and draw(st.booleans()):
            problem = replace(problem, layers=problem.layers[:-1])
        elif problem.machines > 3:
            fewer, known = problem.machines - 1, problem.machine_speeds
            problem = replace(problem, machines=fewer, machine_speeds=known and known[:fewer])
        elif problem.threads > 1:
            problem = replace(problem, cores=1)
        else:
            break
    return problem


@st.composite
def near_ties(draw: st.DrawFn) -> Problem:
    """More threads take as much longer, but for what floating point cannot tell."""
    problem = draw(small_problems(most=300))
    hairs = [draw(st.lists(st.integers(-3, 3), min_size=3, max_size=3)) for _ in range(2)]
    latency, slower = (
        [number * (1 + Fraction(hair, 10**18)) for number, hair in enumerate(some, start=1)]
        for some in hairs
    )
    constants = replace(problem.constants, latency_ns=latency, interference=slower)
    return replace(problem, constants=constants, samples=10**6, read_every=10**18)


def rank(one: Ranked) -> Rank:
    """Time, then more servers, fewer workers, fewer replicas."""
    workers, replicas, servers = one.configuration.triple
    return one.epoch, -servers, workers, replicas


def brute_ranks(problem: Problem) -> list[Rank]:
    """The best of each triple, in order, by brute force; none if nothing fits."""
    outcome = brute_force(replace(problem, top=2**14, fixed=()), Deadline(None))
    return [] if outcome.plan is None else [rank(ranked) for ranked in outcome.plan.ranking]


def brute_result(problem: Problem) -> Result[Plan, Estimate]:
    """The plan of brute force, checked and priced as those of other methods are."""
    return as_method(brute_force, problem)


def as_method(method: Method, problem: Problem) -> Result[Plan, Estimate]:
    """What a function of a problem and a deadline answers, as a method of the family."""
    return YAN.run(problem, "oracle", {"oracle": method}, NEVER)


def everything(problem: Problem) -> list[tuple[Fraction, Configuration]]:
    """Every configuration that fits, and its time."""
    found = []
    for configuration in all_configurations(problem):
        try:
            found.append((estimate(problem, configuration).epoch, configuration))
        except BrokenConstraintError:
            continue
    return found
