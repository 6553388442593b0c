"""The whole iteration planned at once: synchronisation algorithm, batches, order and windows.

`solve` composes the families: the cluster's topology gives the cost of a transfer
(`planner.collectives`), the families choose batches and their order (`planner.caramel`,
`planner.ibatch`), and one simulator prices the iteration. Baselines are the plans of single
families and of other systems.

Source: the composition is our own; each part names its paper.
"""

from planner.iteration.alternatives import Alternative, alternatives
from planner.iteration.bounds import bound, network_bound
from planner.iteration.checker import check
from planner.iteration.crossover import Change
from planner.iteration.evaluation import Evaluation, evaluate
from planner.iteration.explanation import Explanation, explain
from planner.iteration.family import ITERATION, JOINT, METHODS, best_of, solve, solve_all
from planner.iteration.memory import Footprint
from planner.iteration.plan import MODES, Plan, Transfer
from planner.iteration.problem import Problem
from planner.iteration.synchronisation import ALGORITHMS, KNOWN
from planner.iteration.ways import MIXED, Mixture, Synchronisation

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
    "Mixture",
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
