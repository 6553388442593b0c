"""Baselines without search, O(L) each and without a guarantee.

One batch (the default parameter server), layer by layer (Poseidon, without merging), and for
gradients the merging rule of MG-WFBP and the buckets of PyTorch's DDP. A baseline whose batches
break a constraint of the problem has no plan.
"""

from collections.abc import Sequence
from itertools import accumulate

from planner.families.ibatch.problem import Plan, Problem
from planner.model.errors import NotApplicableError
from planner.solving.bucketing import ddp_buckets, mg_wfbp_groups
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def one_batch(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Send all layers in one communication."""
    return Outcome(problem.plan((0, problem.layers)))


def layer_by_layer(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Send each layer by itself."""
    return Outcome(problem.plan(range(problem.layers + 1)))


def ddp(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Group gradients into DDP's default buckets; raise `NotApplicableError` without sizes."""
    if problem.layer_bytes is None:
        raise NotApplicableError("layer_bytes", "missing: method ddp needs it")
    return _from_ready_order(problem, ddp_buckets(problem.layer_bytes[::-1]))


def mg_wfbp(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Group gradients by MG-WFBP's rule."""
    count = problem.layers

    def duration(first: int, stop: int) -> int:
        return problem.transfer_time(count - stop, count - first)

    ready = list(accumulate(problem.compute_ns[::-1]))
    return _from_ready_order(problem, mg_wfbp_groups(ready, duration, problem.transfer_startup_ns))


def _from_ready_order(problem: Problem, groups: Sequence[int]) -> Outcome[Plan]:
    """Return the batches of layers for group sizes in backward order."""
    return Outcome(problem.plan(list(accumulate(groups[::-1], initial=0))))
