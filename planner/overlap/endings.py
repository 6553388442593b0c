"""What a method says that has found no order within the memory limit."""

from planner.errors import NotApplicableError
from planner.methods import Outcome
from planner.overlap.plan import Plan
from planner.overlap.problem import Problem
from planner.results import Infeasibility

__all__ = ["no_order", "proven_infeasible"]


def no_order(problem: Problem) -> Outcome[Plan]:
    """Return that there is no order, if one node alone proves it.

    Raises
    ------
    NotApplicableError
        If nothing proves it.
    """
    reason = proven_infeasible(problem)
    if reason is None:
        raise NotApplicableError(
            "memory_limit_bytes",
            f"no order within {problem.memory_limit_bytes} bytes was found, and none was ruled "
            "out; the graph's own order needs more",
        )
    return Outcome(None, infeasibility=reason)


def proven_infeasible(problem: Problem) -> Infeasibility | None:
    """Return the node that alone holds more tensors than there is memory, if there is one."""
    limit = problem.memory_limit_bytes
    if limit is None:
        return None
    needs = [0] * len(problem.nodes)
    for tensor in problem.tensors:
        users = set(tensor.readers)
        if tensor.producer is not None:
            users.add(tensor.producer)
        for user in users:
            needs[user] += tensor.size_bytes
    node = max(range(len(needs)), key=needs.__getitem__)
    if needs[node] <= limit:
        return None
    return Infeasibility(
        f"{problem.nodes[node].name} needs {needs[node]} bytes at once, more than {limit}",
        ("memory_limit_bytes",),
        (node,),
    )
