"""Plans of all-reduces with fewer transfers, as the family `caramel` finds them.

Problem: of the plans by a plan's algorithms within a time, find one with few transfers.
Method: the tie-breaking of `caramel` with the cost of an all-reduce by these algorithms; then each
transfer takes its algorithm by its size again.
Guarantee: no longer than allowed and no more transfers; the fewest of whole parameters if these are
few and the algorithm is one, unless the time cuts in. Under contention the plan stays as it is.
Complexity: that of `caramel`: O(parts), and O(3^n) for few parameters.
Source: own.
"""

from planner.families import caramel
from planner.families.iteration.baselines import from_gradients
from planner.families.iteration.checker import as_gradients
from planner.families.iteration.evaluation import lasting
from planner.families.iteration.plan import Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.transfer_limit import capped, settled
from planner.solving.deadline import Deadline, TimeUpError


def fewer_transfers(problem: Problem, plan: Plan, most_ns: int, deadline: Deadline) -> Plan:
    """Return a plan with fewer transfers that takes at most `most_ns`, or the plan itself."""
    gradients = problem.gradients.get(plan.way)
    if gradients is None or plan.mode != "replicated" or not problem.interference.is_none:
        return plan
    old = as_gradients(plan, plan.transfers)
    try:
        fewer = caramel.CARAMEL.simplest(gradients, old, most_ns, deadline)
    except TimeUpError:
        return plan
    way = next(option for option in problem.options if option.algorithm == plan.way)
    made = settled(capped(problem, from_gradients(plan.algorithm, fewer)), way)
    longer = lasting(problem, made)(problem.costs) > most_ns
    return plan if longer or len(made.transfers) >= len(plan.transfers) else made
