"""Caramel's own method: its four stages sequentially, each of which can be switched off.

1. Activation order and control edges (`activation`, `enforcement`); if off, each worker draws its
own order. 2. Batches of small parameters (`batching`); if off, each parameter travels alone. 3. Bin
packing of the groups into both passes (`packing`); if off, groups leave when ready and the forward
pass waits for all. 4. Adaptive depth (`depth`).

Guarantee: none.
Complexity: the sum of the stages'.
Source: Caramel §4, with the switches of §5.
"""

from planner.caramel.baselines import unordered, whole
from planner.caramel.batching import small_batches
from planner.caramel.depth import adaptive_depth
from planner.caramel.evaluation import duration_ns, plan_heads
from planner.caramel.network import batching_threshold
from planner.caramel.packing import Item, pack
from planner.caramel.problem import Group, Part, Plan, Problem
from planner.costs import DepthCost
from planner.deadline import Deadline
from planner.solving.methods import Outcome

__all__ = ["caramel", "threshold_of"]


def threshold_of(problem: Problem) -> int | None:
    """Return the threshold between small and large parameters (bytes), or None if all are small."""
    if problem.threshold_bytes is not None:
        return problem.threshold_bytes
    return batching_threshold(problem.cost)


def caramel(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Plan as the paper does."""
    stages, known = problem.stages, problem.windows
    order = problem.order
    # §4.1: one op order for all workers, or one each.
    base = Plan((), (order.backward,), order.forward)
    if not stages.serialization:
        base = unordered(problem, deadline)
    heads = plan_heads(problem.graph, base)
    rank = {j: place for place, j in enumerate(problem.activation)}
    by_update = sorted(range(len(heads)), key=lambda j: (heads[j], rank[j]))
    threshold = threshold_of(problem)

    def alone(size: int) -> int:
        """Return the time of one transfer at the depth it will have."""
        return duration_ns(problem, _with_depth(problem, Group((Part(0, 0, size),)), threshold))

    # §4.2: small parameters join in the order of updates. §4.4: the depth follows the size.
    batches = (
        small_batches(by_update, known.sizes, heads, alone, threshold)
        if stages.batching
        else [[j] for j in by_update]
    )
    groups = [_with_depth(problem, whole(problem, batch), threshold) for batch in batches]
    timed_out = False
    if stages.scheduling:  # §4.3
        # A group's window is that of its latest update and of its earliest read.
        items = [
            Item(
                ready_ns=max(heads[j] for j in batch),
                due_ns=known.forward_ns - max(known.tails[j] for j in batch),
                duration_ns=duration_ns(problem, group),
                size_bytes=group.size_bytes,
            )
            for batch, group in zip(batches, groups, strict=True)
        ]
        order_of_groups, timed_out = pack(items, known.backward_ns, deadline)
        groups = [groups[number] for number in order_of_groups]
    plan = Plan(tuple(groups), base.backward_orders, base.forward_order, not stages.scheduling)
    return Outcome(plan, timed_out=timed_out)


def _with_depth(problem: Problem, group: Group, threshold: int | None) -> Group:
    size, cost = group.size_bytes, problem.cost
    if isinstance(cost, DepthCost):
        depth = adaptive_depth(size, threshold, [depth for depth, _ in cost.by_depth])
    else:
        depth = adaptive_depth(size, threshold)
    return Group(group.parts, depth)
