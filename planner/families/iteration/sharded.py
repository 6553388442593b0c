"""Sharded plans: iBatch both ways, on one channel.

Problem: every worker updates its share of the parameters. Batch the pushes and the pulls.
Method: with all pushes before all pulls the two sides are independent: the pulls start when the
pushes and the backward pass have ended. Each side is solved exactly by `planner.ibatch`, with
parameters as layers, in order of readiness and of first read.
Guarantee: the least iteration of all plans of whole parameters within the transfer limit whose
pushes, in order of readiness, come before all pulls, in order of use. Another order of parameters
ready at once can save rounding.
Complexity: that of iBatch's exact method, near-linear or quadratic in the parameters.
Source: Wang et al., iBatch, for batches; the composition is our own.
"""

from collections.abc import Sequence
from itertools import pairwise

from planner.families import ibatch
from planner.families.iteration.problem import Problem
from planner.families.iteration.ways import Way
from planner.solving.transfers import Kind, Part, Transfer


def both_ways(
    problem: Problem, synchronisation: Way, room: int | None = None
) -> tuple[Transfer, ...]:
    """Return pushes and pulls, each side batched exactly.

    `room`: largest batch (bytes); ignored by a side with a larger parameter.
    """
    known = problem.base.windows
    by_readiness = sorted(range(len(known.sizes)), key=lambda j: (-known.heads[j], j))
    by_use = sorted(range(len(known.sizes)), key=lambda j: (-known.tails[j], j))
    pushes = _batches(
        "push",
        by_readiness,
        [known.heads[j] for j in by_readiness],
        problem.pushed,
        synchronisation,
        room,
    )
    pulls = _batches(
        "pull", by_use, [known.tails[j] for j in by_use], problem.pulled, synchronisation, room
    )
    return (*pushes, *pulls)


def _batches(
    kind: Kind,
    order: Sequence[int],
    moments: Sequence[int],
    sizes: Sequence[int],
    synchronisation: Way,
    room: int | None,
) -> list[Transfer]:
    """Return the transfers of one side; `moments` fall, their differences are computation."""
    compute = [moment - following for moment, following in pairwise((*moments, 0))]
    side = ibatch.Problem(
        compute_ns=tuple(compute),
        layer_bytes=tuple(sizes[j] for j in order),
        cost=synchronisation.cost(kind),
        direction="push" if kind == "push" else "pull",
        max_batch_bytes=None if room is None or room < max(sizes) else room,
    )
    plan = ibatch.solve(side).plan
    assert plan is not None  # every parameter fits by itself
    return [
        Transfer(tuple(Part(j, 0, sizes[j]) for j in order[start:stop]), kind=kind)
        for start, stop in plan.batches
    ]
