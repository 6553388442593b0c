"""Transfers that leave late, and computation that waits for them, as under DeepSpeed's ZeRO.

Problem: a bucket is sent when the gradient after it arrives and finds no room in it, the last one
at the end of the backward pass; and computation waits there for the bucket before. When does each
leave?

Method: `late_heads` says how much is computed before each leaves, which is what the simulator is
told; `check_held` follows the schedule in another way, from one bucket to the next.

Guarantee: exact without interference. Complexity: O(parts).
Source: ``reduce_independent_p_g_buckets_and_remove_grads`` and ``average_tensor`` of DeepSpeed.
"""

from collections.abc import Sequence
from itertools import accumulate

from planner.caramel.problem import Plan, Problem
from planner.errors import InvalidPlanError
from planner.simulator import Iteration

__all__ = ["check_held", "late_heads"]


def late_heads(
    ready: Sequence[int], firsts: Sequence[int], backward_ns: Sequence[int]
) -> list[int]:
    """Return how much has to be computed before each transfer leaves that leaves late.

    Parameters
    ----------
    ready : sequence of int
        Before its gradients are ready.
    firsts : sequence of int
        Before the first of them is.
    backward_ns : sequence of int
        Durations of the backward ops.
    """
    return list(accumulate(map(max, ready, (*firsts[1:], sum(backward_ns))), max))


def check_held(
    problem: Problem,
    plan: Plan,
    iteration: Iteration,
    heads: Sequence[int],
    lasting: Sequence[int],
) -> None:
    """Check when transfers that leave late do so: one in flight, and computation waits for it.

    Parameters
    ----------
    problem, plan, iteration : Problem, Plan, Iteration
        The plan, and its schedule without interference.
    heads : sequence of int
        When each gradient is ready if computation never waits.
    lasting : sequence of int
        What each transfer takes.

    Raises
    ------
    InvalidPlanError
        With the first transfer that leaves at another time.
    """
    order = [heads[part.parameter] for group in plan.groups for part in group.parts]
    backward_ns = sum(problem.graph.ops[index].duration_ns for index in plan.backward_orders[0])
    counts = accumulate(len(group.parts) for group in plan.groups)
    now = done = free = end = 0
    for number, (count, lasts, span) in enumerate(
        zip(counts, lasting, iteration.transfers, strict=True)
    ):
        needed = max(*order[: count + 1], backward_ns if count == len(order) else 0, done)
        end = now + needed - done if needed > done else end
        now = max(now + needed - done, free)
        done, free = needed, now + lasts
        if span != (now, free):
            raise InvalidPlanError(f"transfers[{number}]", "leaves at another time than it has to")
    if iteration.backward[-1][1] != end:
        raise InvalidPlanError("ops", "the backward pass ends at another time than it has to")
