"""The whole iteration planned at once: synchronisation algorithm, batches, order and windows.

`solve` composes the families: the cluster's topology gives the cost of a transfer
(`planner.collectives`), the families choose batches and their order (`planner.caramel`,
`planner.ibatch`), and one simulator prices the iteration. Baselines are the plans of single
families and of other systems.

Source: the composition is our own; each part names its paper.
"""

from planner.families.iteration.alternatives import Alternative, alternatives
from planner.families.iteration.bounds import bound, network_bound
from planner.families.iteration.evaluation import Evaluation, check, evaluate
from planner.families.iteration.family import ITERATION, JOINT, METHODS, best_of, solve, solve_all
from planner.families.iteration.memory import Footprint
from planner.families.iteration.plan import MIXED, MODES, MixedAlgorithms, Plan, Synchronisation
from planner.families.iteration.problem import Problem
from planner.families.iteration.synchronisation import ALGORITHMS, KNOWN
from planner.families.iteration.why import Change, Explanation, explain
from planner.solving.transfers import Transfer

__all__ = [
    "ALGORITHMS",
    "ITERATION",
    "JOINT",
    "KNOWN",
    "METHODS",
    "MIXED",
    "MODES",
    "Alternative",
    "Change",
    "Evaluation",
    "Explanation",
    "Footprint",
    "MixedAlgorithms",
    "Plan",
    "Problem",
    "Synchronisation",
    "Transfer",
    "alternatives",
    "best_of",
    "bound",
    "check",
    "evaluate",
    "explain",
    "network_bound",
    "solve",
    "solve_all",
]
