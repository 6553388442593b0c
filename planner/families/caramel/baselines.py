"""Baselines: how today's systems send the same gradients.

No baseline enforces an order of the computation. Each worker draws its own op order and a gradient
is ready when the last worker has it, unless the problem fixes an op order. All baselines but
ByteScheduler and parameter servers finish every transfer before the forward pass begins.

Guarantee: none.
Complexity: O(n log n) each, after O(workers · ops) for the op orders.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate, pairwise

from planner.families.caramel.evaluation import plan_heads
from planner.families.caramel.problem import Plan, Problem
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import NotApplicableError
from planner.solving.bucketing import DDP_LIMITS, ddp_buckets, mg_wfbp_groups
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.transfers import Part, Transfer

HOROVOD_CYCLE_NS = 10**6
HOROVOD_FUSION_BYTES = 128 * 2**20
"""Horovod's defaults since version 0.21 (before: 5 ms and 64 MiB)."""

PARTITION_BYTES = 4 * 10**6
"""ByteScheduler's default: a million parameters of four bytes each."""

MAX_PARTITIONS = 10_000
"""More partitions (40 GB of gradients) would take too long to check and to price in every scenario.
"""


def unordered(problem: Problem, deadline: Deadline) -> Plan:
    """Return a plan without transfers that enforces no op order."""
    return Plan((), problem.drawn_orders(deadline), problem.order.forward)


def whole(problem: Problem, parameters: Sequence[int]) -> Transfer:
    """Return the group of these parameters, uncut, at depth 1."""
    sizes = problem.windows.sizes
    return Transfer(tuple(Part(j, 0, sizes[j]) for j in parameters))


def ready_order(heads: Sequence[int]) -> list[int]:
    """Return the parameters in order of readiness; of equally ready ones, the last comes first.

    Models list parameters in the order of the forward pass, so this is the order of the backward
    pass.
    """
    return sorted(range(len(heads)), key=lambda j: (heads[j], -j))


def layer_by_layer(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Send each layer when it is ready: parameters with the same updating and reading ops."""
    plan = unordered(problem, deadline)
    heads = plan_heads(problem.graph, plan)
    graph = problem.graph
    layers: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for j in ready_order(heads):
        layers.setdefault((graph.updaters[j], graph.readers[j]), []).append(j)
    return _finished(problem, plan, layers.values())


def ddp(
    problem: Problem, deadline: Deadline, limits: tuple[int, int] = DDP_LIMITS
) -> Outcome[Plan]:
    """Fill buckets as PyTorch's DistributedDataParallel, in the order in which worker 0 is ready.

    `limits`: size of the first bucket and of the other buckets (bytes).

    Source: Li et al., VLDB 2020, §4.2 (see `planner.solving.bucketing.ddp_buckets`). Buckets follow
    the order of gradients on rank 0 in the first iteration, and leave in that order.
    """
    plan = unordered(problem, deadline)
    first = Plan((), plan.backward_orders[:1], plan.forward_order)
    order = ready_order(plan_heads(problem.graph, first))
    sizes = problem.windows.sizes
    return _finished(problem, plan, _runs(order, ddp_buckets([sizes[j] for j in order], *limits)))


def mg_wfbp(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Merge gradients as MG-WFBP (see `planner.solving.bucketing.mg_wfbp_groups`)."""
    plan = unordered(problem, deadline)
    heads = plan_heads(problem.graph, plan)
    order = ready_order(heads)
    sent = list(accumulate((problem.windows.sizes[j] for j in order), initial=0))
    cost = cost_of(problem).cost_ns
    groups = mg_wfbp_groups(
        [heads[j] for j in order],
        lambda first, stop: cost(sent[stop] - sent[first]),
        problem.cost.startup_ns,
    )
    return _finished(problem, plan, _runs(order, groups))


def horovod(
    problem: Problem,
    deadline: Deadline,
    cycle_ns: int = HOROVOD_CYCLE_NS,
    fusion_bytes: int = HOROVOD_FUSION_BYTES,
) -> Outcome[Plan]:
    """Send in each cycle the gradients that all workers have ready, fused up to the buffer's size.

    A cycle begins `cycle_ns` after the previous one, or when the previous cycle's transfers end.

    Source: Sergeev and Del Balso, arXiv 1802.05799, §4 (Tensor Fusion), and Horovod's documentation
    of its cycle.
    """
    plan = unordered(problem, deadline)
    heads = plan_heads(problem.graph, plan)
    alone = [whole(problem, [j]) for j in ready_order(heads)]
    groups = in_cycles(problem, cycle_ns, alone, heads, fusion_bytes)
    return Outcome(replace(plan, groups=tuple(groups), barrier=True))


def in_cycles(
    problem: Problem,
    cycle_ns: int,
    groups: Sequence[Transfer],
    heads: Sequence[int],
    fusion_bytes: int = 0,
) -> list[Transfer]:
    """Return the groups in the order in which Horovod's cycles send them, with earliest starts.

    A cycle sends the groups that are complete when it begins, fused up to `fusion_bytes`. `heads`:
    when each gradient is ready (ns).
    """
    cost_ns, tick = cost_of(problem).cost_ns, 0
    complete = [max(heads[part.parameter] for part in group.parts) for group in groups]
    timed: list[Transfer] = []
    queued: list[Transfer] = []  # by the cycle at `tick`
    for place in sorted(range(len(groups)), key=complete.__getitem__):
        if complete[place] > tick:
            if queued:
                lasting = sum(cost_ns(group.size_bytes) for group in queued)
                tick += max(cycle_ns, lasting)
            tick += max(-(-(complete[place] - tick) // cycle_ns), 0) * cycle_ns  # without a group
            timed += queued
            queued = []
        parts = groups[place].parts
        if queued and queued[-1].size_bytes + groups[place].size_bytes <= fusion_bytes:
            parts = queued.pop().parts + parts
        queued.append(Transfer(parts, not_before_ns=tick))
    return timed + queued


def bytescheduler(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Send partitions, always the ready partition whose parameter is read first.

    One partition is in flight at a time (a credit of one): the best case for priorities.

    Source: Peng et al., SOSP 2019, §4 (priority queuing, tensor partitioning).
    """
    plan = unordered(problem, deadline)
    heads = plan_heads(problem.graph, plan)
    sizes, tails = problem.windows.sizes, problem.windows.tails
    element = problem.element_bytes
    step = max(PARTITION_BYTES - PARTITION_BYTES % element, element)
    if sum(sizes) // step > MAX_PARTITIONS:
        raise NotApplicableError(
            "parameters",
            f"bytescheduler cuts {step} bytes at a time: expected at most {MAX_PARTITIONS} "
            f"partitions, got {sum(sizes)} bytes",
        )
    cost = cost_of(problem).cost_ns
    arriving = sorted(range(len(sizes)), key=lambda j: (heads[j], j), reverse=True)
    queue: list[tuple[int, int, int]] = []  # (-tail, parameter, next byte)
    groups: list[Transfer] = []
    now = 0
    while arriving or queue:
        if groups and not len(groups) % 1024 and deadline.passed:
            raise NotApplicableError(
                "time_limit_s",
                f"it passed before {sum(sizes)} bytes were cut into partitions of {step}",
            )
        if not queue:
            now = max(now, heads[arriving[-1]])
        while arriving and heads[arriving[-1]] <= now:
            j = arriving.pop()
            heappush(queue, (-tails[j], j, 0))
        priority, j, start = heappop(queue)
        stop = min(start + step, sizes[j])
        groups.append(Transfer((Part(j, start, stop),)))
        now += cost(stop - start)
        if stop < sizes[j]:
            heappush(queue, (priority, j, stop))
    return Outcome(replace(plan, groups=tuple(groups)))


def parameter_servers(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Push every parameter to its server and pull it back, as each becomes ready.

    The servers are separate machines with an even load, the best case. For each byte of a parameter
    the W workers push W bytes to the S servers and pull W bytes, over S network cards; an
    all-reduce moves 2(W - 1)/W bytes over each worker's card. So the traffic is W²/(S(W - 1)) times
    that of an all-reduce, with one start-up for push and pull together. Pulls may end in the
    forward pass.

    Source: Caramel §6.1 and Fig. 8 (as many servers as workers, and half as many).
    """
    workers = problem.workers
    if workers < 2:
        raise NotApplicableError("workers", "ps needs at least 2 workers")
    servers = workers if problem.servers is None else problem.servers
    plan = unordered(problem, deadline)
    heads = plan_heads(problem.graph, plan)
    tails = problem.windows.tails
    order = sorted(range(len(heads)), key=lambda j: (heads[j], -tails[j], j))
    groups = tuple(whole(problem, [j]) for j in order)
    traffic = Fraction(workers * workers, servers * (workers - 1))
    return Outcome(replace(plan, groups=groups, traffic=traffic))


def cost_of(problem: Problem) -> AffineCost | TableCost:
    """Return the cost at depth 1: these systems do not choose a depth."""
    cost = problem.cost
    return cost.at_depth(1) if isinstance(cost, DepthCost) else cost


def _runs(order: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
    ends = accumulate(counts, initial=0)
    return [list(order[start:stop]) for start, stop in pairwise(ends)]


def _finished(problem: Problem, plan: Plan, groups: Iterable[Sequence[int]]) -> Outcome[Plan]:
    """Return the plan that sends these groups in this order before the forward pass."""
    made = tuple(whole(problem, group) for group in groups)
    return Outcome(replace(plan, groups=made, barrier=True))
