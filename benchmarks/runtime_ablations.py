"""Plans of whole iterations without one of their decisions, and DDP's buckets as plans.

A plan decides three things that DDP does not: by which algorithm gradients are summed up, in which
order transfers leave (with the next forward pass beginning before all have arrived), and what is
grouped, cuts of parameters included. Each ablation takes one of them back.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from planner.families import caramel, iteration
from planner.families.caramel.baselines import ready_order, whole
from planner.families.iteration.plan import from_gradients
from planner.solving.bucketing import ddp_buckets

Limits = tuple[int, int]
"""Of DDP's first bucket and of the others, in bytes."""


def ddp_plan(problem: caramel.Problem, limits: Limits) -> caramel.Plan:
    """Return what DDP sends with buckets of these limits: no forward pass before the last."""
    known = problem.windows
    order = ready_order(known.heads)
    groups, place = [], 0
    for count in ddp_buckets([known.sizes[j] for j in order], *limits):
        groups.append(whole(problem, order[place : place + count]))
        place += count
    return caramel.Plan(
        tuple(groups), (problem.order.backward,), problem.order.forward, barrier=True
    )


def bucketed(problem: iteration.Problem, algorithm: str, limits: Limits) -> iteration.Plan:
    """Return the same as a plan of a whole iteration, by some algorithm."""
    name = next(iter(problem.gradients))  # for all of them gradients are ready at the same times
    return from_gradients(algorithm, ddp_plan(problem.gradients[name], limits))


def without_order(
    problem: iteration.Problem, plan: iteration.Plan, limits: Limits
) -> iteration.Plan:
    """Return a plan's transfers in the order in which they are ready.

    All-reduces end before the forward pass begins, as DDP's do; pulls follow all pushes. The
    `limits` of buckets do not count.
    """
    del limits
    heads = problem.base.windows.heads

    def place(transfer: iteration.Transfer) -> tuple[bool, int]:
        return transfer.kind == "pull", max(heads[part.parameter] for part in transfer.parts)

    transfers = tuple(sorted(plan.transfers, key=place))
    return replace(plan, transfers=transfers, barrier=plan.mode == "replicated")


def without_grouping(
    problem: iteration.Problem, plan: iteration.Plan, limits: Limits
) -> iteration.Plan:
    """Return DDP's buckets in a plan's order: each leaves where the first of its bytes would.

    The forward pass begins before all have arrived, as in the plan; pulls follow all pushes. All go
    by the plan's own algorithm.
    """
    buckets = bucketed(problem, plan.algorithm, limits)
    transfers: list[iteration.Transfer] = []
    for kind in sorted({transfer.kind for transfer in plan.transfers}, reverse=True):
        place: dict[int, int] = {}
        for number, transfer in enumerate(plan.transfers):
            for part in transfer.parts if transfer.kind == kind else ():
                place.setdefault(part.parameter, number)
        firsts = [
            min(place[part.parameter] for part in bucket.parts) for bucket in buckets.transfers
        ]
        order = sorted(range(len(firsts)), key=firsts.__getitem__)
        transfers += [replace(buckets.transfers[number], kind=kind) for number in order]
    return replace(buckets, transfers=tuple(transfers), barrier=plan.barrier)


def algorithm_only(
    problem: iteration.Problem, plan: iteration.Plan, limits: Limits
) -> iteration.Plan:
    """Return DDP's buckets in DDP's order, by the plan's own algorithm."""
    return bucketed(problem, plan.algorithm, limits)


Ablation = Callable[[iteration.Problem, iteration.Plan, Limits], iteration.Plan]

ABLATIONS: Mapping[str, Ablation] = MappingProxyType(
    {
        "`joint`, in DDP's order": without_order,
        "`joint`, in DDP's buckets": without_grouping,
        "DDP's buckets by its algorithm": algorithm_only,
    }
)
"""Those that need no other cluster, by their names in tables."""
