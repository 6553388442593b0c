"""Verify plans: each node once, after its dependences; merged collectives adjacent; memory limit.

Complexity: O(nodes + dependences).
"""

from planner.errors import BrokenConstraintError, InvalidPlanError
from planner.overlap.evaluation import Evaluation, evaluate
from planner.overlap.plan import Plan
from planner.overlap.problem import Problem

__all__ = ["check", "check_memory", "check_structure"]


def check(problem: Problem, plan: Plan) -> Evaluation:
    """Verify a plan, and return its evaluation.

    Raises
    ------
    InvalidPlanError
        Naming the place, and the nodes.
    """
    check_structure(problem, plan)
    evaluation = evaluate(problem, plan)
    check_memory(problem, evaluation)
    return evaluation


def check_structure(problem: Problem, plan: Plan) -> None:
    """Verify that a rank can issue the plan, ignoring memory."""
    count = len(problem.nodes)
    if sorted(plan.order) != list(range(count)):
        raise InvalidPlanError("order", f"expected each of the nodes 0 to {count - 1} once")
    place = [0] * count
    for number, node in enumerate(plan.order):
        place[node] = number
    for node, about in enumerate(problem.nodes):
        for other in about.after:
            if place[other] > place[node]:
                raise InvalidPlanError(
                    f"order[{place[node]}]",
                    f"{about.name} comes before {problem.nodes[other].name}, which it needs",
                )
    taken: set[int] = set()
    for number, group in enumerate(plan.merged):
        _check_group(problem, group, place, taken, f"merged[{number}]")


def _check_group(
    problem: Problem, group: tuple[int, ...], place: list[int], taken: set[int], path: str
) -> None:
    if len(group) < 2:
        raise InvalidPlanError(path, "expected at least two collectives")
    for number, member in enumerate(group):
        if not 0 <= member < len(problem.collectives) or member in taken:
            raise InvalidPlanError(f"{path}[{number}]", "expected each collective at most once")
        taken.add(member)
    members = [problem.collectives[member] for member in group]
    if len({member.kind for member in members}) > 1:
        raise InvalidPlanError(path, "expected collectives of one kind")
    if not problem.kinds[members[0].kind].mergeable:
        raise InvalidPlanError(path, f"{problem.kinds[members[0].kind].name} cannot be merged")
    for what, nodes in (
        ("starts", [member.start for member in members]),
        ("waits", [member.wait for member in members]),
    ):
        places = [place[node] for node in nodes]
        if max(places) - min(places) != len(places) - 1:
            raise InvalidPlanError(path, f"expected the {what} side by side in the order")


def check_memory(problem: Problem, evaluation: Evaluation) -> None:
    """Raise `BrokenConstraintError` if the plan exceeds the memory limit."""
    limit = problem.memory_limit_bytes
    if limit is not None and evaluation.peak_bytes > limit:
        raise BrokenConstraintError(
            f"order[{evaluation.peak_at}]",
            f"{evaluation.peak_bytes} bytes are held here, more than {limit}",
            "memory_limit_bytes",
        )
