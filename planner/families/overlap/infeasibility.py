"""Results of methods that found no order within the memory limit."""

from planner.families.overlap.evaluation import Plan, own_order, peak_memory
from planner.families.overlap.problem import Problem
from planner.solving.family import OUT_OF_TIME
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


def no_order(problem: Problem, *, timed_out: bool = False) -> Outcome[Plan]:
    """Return the outcome without a plan: proven infeasible by a single moment, or nothing found."""
    reason = proven_infeasible(problem)
    if reason is not None:
        return Outcome(None, infeasibility=reason)
    if timed_out:
        return Outcome(None, timed_out=True, infeasibility=OUT_OF_TIME)
    own, _ = peak_memory(problem, own_order(problem))
    found = Infeasibility(
        f"no order within {problem.memory_limit_bytes} bytes was found, and none was ruled out; "
        f"the graph's own order needs {own}",
        ("memory_limit_bytes",),
    )
    return Outcome(None, infeasibility=found)


def proven_infeasible(problem: Problem) -> Infeasibility | None:
    """Return the infeasibility if a single moment needs more memory than the limit, else None.

    The moments are the begin, the end, and the issue of a node with all tensors it produces and
    reads.
    """
    limit = problem.memory_limit_bytes
    if limit is None:
        return None
    needs, begin, end, always = [0] * len(problem.nodes), 0, 0, 0
    for tensor in problem.tensors:
        users = set(tensor.readers)
        stays = tensor.kept or not (users or tensor.producer is not None)
        end += tensor.size_bytes if stays else 0
        if tensor.producer is not None:
            users.add(tensor.producer)
        else:
            begin += tensor.size_bytes
            if stays:
                always += tensor.size_bytes
                continue
        for user in users:
            needs[user] += tensor.size_bytes
    node = max(range(len(needs)), key=needs.__getitem__)
    for what, held, nodes in (
        (problem.nodes[node].name, needs[node] + always, (node,)),
        ("the begin of the graph", begin, ()),
        ("the end of the graph", end, ()),
    ):
        if held > limit:
            return Infeasibility(
                f"{what} needs {held} bytes at once, more than {limit}",
                ("memory_limit_bytes",),
                nodes,
            )
    return None
