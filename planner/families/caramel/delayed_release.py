"""Delayed release (`held`, `late`): DeepSpeed ZeRO starts a bucket late and blocks computation.

Problem: a bucket starts when the next gradient arrives and does not fit into it, the last bucket at
the end of the backward pass; computation waits there for the previous bucket. When does each start?
Method: `late_heads` gives the simulator the computation done before each start; `check_held`
follows the schedule independently, from one bucket to the next.
Guarantee: exact without contention.
Complexity: O(parts).
Source: ``reduce_independent_p_g_buckets_and_remove_grads`` and ``average_tensor`` of DeepSpeed.
"""

from collections.abc import Sequence
from itertools import accumulate

from planner.families.caramel.problem import Plan, Problem
from planner.model.errors import InvalidPlanError
from planner.solving.simulator import Iteration


def late_heads(
    ready: Sequence[int], firsts: Sequence[int], backward_ns: Sequence[int]
) -> list[int]:
    """Return the computation that must be done before each delayed transfer starts (ns).

    `ready` and `firsts`: when all gradients of a transfer, and the first of them, are ready (ns).
    """
    return list(accumulate(map(max, ready, (*firsts[1:], sum(backward_ns))), max))


def check_held(
    problem: Problem,
    plan: Plan,
    iteration: Iteration,
    heads: Sequence[int],
    lasting: Sequence[int],
) -> None:
    """Check the starts of delayed transfers: one in flight, and computation waits for it.

    Without contention. `heads`: when each gradient is ready if computation never waits (ns). Raises
    `InvalidPlanError` for the first transfer that starts at another time.
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
