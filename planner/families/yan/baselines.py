"""Baselines: pure data parallelism and pure model parallelism.

Method: that of `planner.families.yan.exact` on a part of the space. `data_parallel`: a replica is
one worker with the whole model; replicas, servers and threads are optimal. `model_parallel`: one
replica and one copy of every layer; partitions, workers, servers and threads are optimal.

Guarantee: the best of its kind under the canonical mapping; the bound holds for every
configuration. Complexity: see `planner.families.yan.exact`. Source: the two ends of the design
space of Yan et al., KDD'15.
"""

from dataclasses import replace
from fractions import Fraction

from planner.families.yan.configuration import Plan
from planner.families.yan.exact import any_mapping_bound, best_of
from planner.families.yan.feasibility import fewest_servers
from planner.families.yan.problem import Problem, refuse_different, refuse_fixed
from planner.families.yan.search import Space
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def data_parallel(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the best configuration with one worker per replica.

    NotApplicableError if machines differ or configurations are fixed.
    """
    refuse_different(problem, "data_parallel")
    refuse_fixed(problem, "data_parallel")
    machines = problem.machines
    space = Space(machines, fewest_servers(problem), 1, machines)
    return _bounded(problem, best_of(problem, deadline, space), deadline)


def model_parallel(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the best configuration with one replica and one copy of every layer.

    NotApplicableError if machines differ or configurations are fixed.
    """
    refuse_different(problem, "model_parallel")
    refuse_fixed(problem, "model_parallel")
    machines = problem.machines
    space = Space(machines, fewest_servers(problem), machines, 1)
    kind = best_of(problem, deadline, space, lambda choice: choice[1] == 1)
    return _bounded(problem, kind, deadline)


def _bounded(problem: Problem, outcome: Outcome[Plan], deadline: Deadline) -> Outcome[Plan]:
    """Return the outcome with a lower bound over configurations of every kind."""
    if outcome.plan is None:
        return outcome
    bound = any_mapping_bound(problem, deadline)
    plan = replace(outcome.plan, any_mapping_bound_ns=bound)
    return replace(outcome, plan=plan, lower_bound=None if bound is None else Fraction(bound))
