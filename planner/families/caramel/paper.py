"""Caramel's own method: four stages one after the other; each can be switched off.

1. Activation order and control edges (`control_edges`); if off, each worker draws its own order.
2. Batches of small parameters (`small_batches`); if off, each parameter travels alone.
3. Bin packing of the groups into both passes (`pack`); if off, groups leave when ready and the
   forward pass waits for all.
4. Adaptive depth (`adaptive_depth`).

Guarantee: none.
Complexity: the sum of the stages'.
Source: Caramel §4, with the switches of §5.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from planner.families.caramel.activation_order import activation_steps
from planner.families.caramel.baselines import unordered, whole
from planner.families.caramel.evaluation import duration_ns, plan_heads
from planner.families.caramel.problem import Plan, Problem
from planner.model.costs import AffineCost, DepthCost, LinearPiece, TransferCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.model.validation import MAX_TOTAL
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome
from planner.solving.transfers import Part, Transfer

# ---
# Caramel's batcher: small parameters share a transfer while the network is busy.
#
# Problem: choose the gradients that travel together, as they become ready. Rule: in order of
# readiness, a parameter above the threshold travels alone. A smaller parameter joins the active
# batch. The batch leaves when it exceeds the threshold, or when the queued transfers end before the
# next update, so that waiting would leave the network idle. Gradients that become ready at the same
# moment count as one update. Guarantee: none. A batch of several parameters exceeds the threshold
# by less than its last member. Complexity: O(n) after sorting. Source: Caramel §4.2.


def small_batches(
    order: Sequence[int],
    sizes: Sequence[int],
    heads: Sequence[int],
    cost_ns: Callable[[int], int],
    threshold: int | None,
) -> list[list[int]]:
    """Return the batches in the order in which they join the queue.

    `order` lists the parameters by readiness; a parameter of at most `threshold` bytes is small
    (None: all are).
    """
    batches: list[list[int]] = []
    active: list[int] = []
    filled = 0  # bytes of the active batch
    free = 0  # when the queued transfers end

    def send(batch: list[int]) -> None:
        nonlocal free
        start = max(free, heads[batch[-1]])
        free = start + cost_ns(sum(sizes[j] for j in batch))
        batches.append(batch)

    for place, j in enumerate(order):
        if threshold is not None and sizes[j] > threshold:
            send([j])
        else:
            active.append(j)
            filled += sizes[j]
            if threshold is not None and filled > threshold:
                send(active)
                active, filled = [], 0
        last = place + 1 == len(order)
        upcoming = None if last else heads[order[place + 1]]
        idle = upcoming is None or (heads[j] < upcoming and free <= upcoming)
        if active and idle:
            send(active)
            active, filled = [], 0
    return batches


# ---
# Caramel's transfer scheduler: two-dimensional bin packing into the two passes.
#
# Problem: place each group within the window in which it delays nothing. Rule: in descending size,
# a group goes into the first gap of the backward pass after it is ready, else into the last gap of
# the forward pass before it is read, so that earlier gaps stay free for groups read earlier. A
# group that fits nowhere goes behind the backward pass or before the forward pass, whichever adds
# less to the iteration (the former if equal). Guarantee: none. Only the order is kept: transfers
# start as early as it allows. Complexity: O(g²) for g groups. Source: Caramel §4.3, which does not
# say where in a window.

Span = tuple[int, int]


class Item(NamedTuple):
    """A group: when it is ready, when it is read, its duration and size.

    `ready_ns` counts from the start of the backward pass, `due_ns` from that of the forward pass.
    """

    ready_ns: int
    due_ns: int
    duration_ns: int
    size_bytes: int


def pack(
    items: Sequence[Item], backward_ns: int, deadline: Deadline = NEVER
) -> tuple[list[int], bool]:
    """Return the items' numbers in transfer order, and whether the deadline ended the search.

    After the deadline no gap is searched for any more.
    """
    backward: list[tuple[Span, int]] = []
    forward: list[tuple[Span, int]] = []
    left = []
    # §4.3. Times of the forward pass count from its start.
    for number in sorted(range(len(items)), key=lambda i: (-items[i].size_bytes, i)):
        item = items[number]
        if deadline.passed:
            left.append(number)
            continue
        span = _first_gap(backward, item.ready_ns, backward_ns, item.duration_ns)
        if span is not None:
            insort(backward, (span, number))
            continue
        span = _last_gap(forward, item.due_ns, item.duration_ns)
        if span is not None:
            insort(forward, (span, number))
            continue
        left.append(number)
    # Place each remaining group where it adds least; ties go behind the backward pass.
    last = max((span[1] for span, _ in backward), default=0)
    first = min((span[0] for span, _ in forward), default=MAX_TOTAL)
    for number in left:
        item = items[number]
        behind = max(item.ready_ns, last) + item.duration_ns
        before = min(item.due_ns, first) - item.duration_ns
        added_behind = max(behind - max(last, backward_ns), 0)
        added_before = max(min(first, 0) - before, 0)
        if added_behind <= added_before:
            backward.append(((behind - item.duration_ns, behind), number))
            last = behind
        else:
            forward.insert(0, ((before, before + item.duration_ns), number))
            first = before
    return [number for _, number in backward + forward], deadline.passed


def _first_gap(taken: list[tuple[Span, int]], start: int, end: int, length: int) -> Span | None:
    for (begin, stop), _ in taken:
        if start + length <= begin:
            break
        start = max(start, stop)
    return (start, start + length) if start + length <= end else None


def _last_gap(taken: list[tuple[Span, int]], end: int, length: int) -> Span | None:
    for (begin, stop), _ in reversed(taken):
        if stop + length <= end:
            break
        end = min(end, begin)
    return (end - length, end) if end >= length else None


# ---
# Caramel's adaptive depth: the number of chunks of a transfer.
#
# Problem: the reduction of one chunk can overlap the sending of another, but each chunk costs a
# start-up. Rule: depth 1 up to the threshold, then one chunk per threshold's worth of bytes, at
# most 8. The paper gives both ends of this range but no rule in between. Without costs by depth,
# the depth is 1, because nothing says that chunks pay. Guarantee: none for the time. No chunk is
# smaller than the threshold. Complexity: O(depths). Source: Caramel §4.4.

MAX_DEPTH = 8


def adaptive_depth(size: int, threshold: int | None, known: Iterable[int]) -> int:
    """Return the depth of a transfer of `size` bytes, one of the `known` depths.

    A threshold of None means that no size uses the network well: depth 1.
    """
    if threshold is None or size <= threshold:
        return 1
    wanted = min(MAX_DEPTH, size // max(threshold, 1))
    return max((depth for depth in known if depth <= wanted), default=1)


def threshold_of(problem: Problem) -> int | None:
    """Return the threshold between small and large parameters (bytes), or None if all are small."""
    if problem.threshold_bytes is not None:
        return problem.threshold_bytes
    return batching_threshold(problem.cost)


def caramel(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the plan of Caramel's four stages."""
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
        return duration_ns(problem, _with_depth(problem, Transfer((Part(0, 0, size),)), threshold))

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


def _with_depth(problem: Problem, group: Transfer, threshold: int | None) -> Transfer:
    known = problem.cost.by_depth if isinstance(problem.cost, DepthCost) else ()
    depth = adaptive_depth(group.size_bytes, threshold, [depth for depth, _ in known])
    return Transfer(group.parts, depth)


# ---
# Control edges that leave only one order of gradients (Caramel's stage 2).
#
# Problem: a framework runs ready ops in any order. Add the dependencies that enforce the activation
# order. Method: the backward ops that a parameter needs and no earlier parameter needs form a
# *tag*; ops that no gradient needs form the last tag. Edges lead from the ends of a tag to the free
# ops of the next. See docs/caramel.md, "Why no control edge can be left out". Guarantee: the graph
# stays acyclic, and every order that it admits has each gradient ready at the same time as the
# given order. No edge can be left out. Complexity: O(n log n + m); at most two edges per op.
# Source: Hashemi et al., *Caramel* §4.1, stage 2. The paper adds all pairs' edges.

Edges = tuple[tuple[int, int], ...]


def control_edges(graph: Graph, activation: Sequence[int]) -> Edges:
    """Return the dependencies to add so that the gradients are completed in one order.

    Each is a pair of backward ops: the second waits for the first. Forward ops are taken to be
    done. `activation` lists all parameters as `activation_order` returns them. In any other order
    tags still run sequentially, but a parameter can be ready at different times if another
    parameter of its tag needs more ops.
    """
    return _edges_between(graph, _tags(graph, activation), hubs=False)


def edges_of_order(graph: Graph, backward: Sequence[int]) -> Edges:
    """Return the dependencies to add so that gradients are ready when a given op order has them.

    `backward` lists the backward ops in the order in which they run. It is cut into tags behind
    every op that completes a parameter.
    """
    place = {op: rank for rank, op in enumerate(backward)}
    stops = {max(updaters, key=place.__getitem__) for updaters in graph.updaters}
    tags: list[list[int]] = [[]]
    for op in backward:
        tags[-1].append(op)
        if op in stops:
            tags.append([])
    return _edges_between(graph, [ops for ops in tags if ops], hubs=True)


def _edges_between(graph: Graph, tags: Sequence[Sequence[int]], *, hubs: bool) -> Edges:
    """Return the edges that make tags, topologically ordered, run sequentially.

    With `hubs` the last op of each tag but the last waits for all other ops of the tag.
    """
    tag = {op: number for number, ops in enumerate(tags) for op in ops}
    frees, ends = [], []
    for number, ops in enumerate(tags):
        needed, needing = graph.predecessors, graph.successors
        frees.append([op for op in ops if all(tag.get(before) != number for before in needed[op])])
        ends.append([op for op in ops if all(tag[after] != number for after in needing[op])])
    hub: list[int | None] = [
        mine[-1] if len(mine) > 1 and (hubs or len(free) > 1) else None
        for mine, free in zip(ends, frees[1:], strict=False)
    ]
    last = ends[-1][-1]
    completes = any(last in updaters for updaters in graph.updaters)
    hub.append(last if hubs and len(ends[-1]) > 1 and completes else None)
    edges: list[tuple[int, int]] = []
    leaving: list[int] = []
    for mine, free, waits in zip(ends, frees, hub, strict=True):
        # The hub waits for the other ends of its tag, and so for everything before them.
        starting = [op for op in free if op != waits]
        edges += [
            (end, op) for end in leaving for op in starting if end not in graph.predecessors[op]
        ]
        if waits is not None:
            edges += [(end, waits) for end in mine if end != waits]
        leaving = mine if waits is None else [waits]
    return tuple(edges)


def _tags(graph: Graph, activation: Sequence[int]) -> list[list[int]]:
    """Return the backward ops of each tag, in the stable topological order."""
    backward = graph.pass_order("backward")
    known = set(backward)
    tags = [[op for op in step if op in known] for step in activation_steps(graph, activation)]
    rest = known.difference(*tags)
    tags.append([op for op in backward if op in rest])
    return [ops for ops in tags if ops]


# ---
# Caramel's batching threshold.
#
# Problem: find the smallest size x with f(2x) / (2·f(x)) > θ, for θ = 0.8: 2x bytes take more than
# 2θ times the time of x, so batching gains little. Method: for an affine cost α + β·x, x > α(2θ -
# 1) / (2β(1 - θ)), which is 1.5·α/β for θ = 0.8. A measured cost is searched piece by piece: if x
# and 2x each stay on one piece, the condition is linear. Guarantee: exact, on the unrounded cost.
# Complexity: O(pieces²) for a measured cost, O(1) for an affine one. Source: Caramel §4.2.

DOUBLING = Fraction(4, 5)
"""θ: a transfer is large enough if one of twice its size takes at least 2θ times as long."""


@lru_cache(maxsize=256)  # slow for a table: all pairs of pieces
def batching_threshold(cost: TransferCost, doubling: Fraction = DOUBLING) -> int | None:
    """Return the smallest size of at least a byte that uses the network well; None if none does.

    Of a cost by depth, that of depth 1 counts; `doubling` is θ, at least 1/2 and below 1.
    """
    if not Fraction(1, 2) <= doubling < 1:
        raise InvalidInputError("doubling", f"expected 1/2 <= θ < 1, got {doubling}")
    if isinstance(cost, DepthCost):
        cost = cost.at_depth(1)
    if isinstance(cost, AffineCost):
        if not cost.ns_per_byte:
            return None
        well = cost.startup_ns * (2 * doubling - 1) / (2 * cost.ns_per_byte * (1 - doubling))
        return well.__floor__() + 1
    pieces = cost.pieces()
    thresholds = [
        size
        for single in pieces
        for doubled in pieces
        if (size := _smallest(single, doubled, doubling)) is not None
    ]
    return min(thresholds, default=None)


def _smallest(single: LinearPiece, doubled: LinearPiece, doubling: Fraction) -> int | None:
    """Return the smallest threshold x on `single` with 2x on `doubled`, or None."""
    low = max(1, single.start, -(-doubled.start // 2))
    stops = [stop for stop in (single.stop, doubled.stop and doubled.stop // 2) if stop is not None]
    high = min(stops, default=None)
    if high is not None and high < low:
        return None

    def surplus(size: int) -> Fraction:
        return doubled.time(2 * size) - 2 * doubling * single.time(size)

    if surplus(low) > 0:
        return low
    slope = 2 * doubled.slope - 2 * doubling * single.slope
    if slope <= 0:
        return None
    size = low + (-surplus(low) / slope).__floor__() + 1
    return size if high is None or size <= high else None
