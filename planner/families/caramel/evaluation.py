"""Price plans of gradient transfers, and compute the times of all ops and transfers.

All plans of this family are priced here, whatever method made them. `scheduled` also takes pushes
and pulls, which `planner.iteration` plans. Optimisers update parameters when the backward pass has
ended, so no pull starts before.

Complexity: O(ops + parts), times the number of op orders.
Source: Caramel §3.1 (ρ, overlap coefficient, utilisation), §3.3.1 (transfer boundaries); pulls as
in iBatch §3: a layer computes once its parameters have arrived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.windows import last_ready, ready_times
from planner.model.costs import DepthCost
from planner.model.graphs import Graph
from planner.solving.simulator import Iteration, TimedTransfer, simulate
from planner.solving.transfers import Transfer


class TransferTimes(NamedTuple):
    """When a transfer is ready, starts and ends, in ns from the start of the backward pass.

    `due_ns` is when the forward pass would need the transfer if the pass never waited. A pull is
    ready when the backward pass and the pushes of its parameters have ended; a push is due with the
    earliest pull that follows it.
    """

    ready_ns: int
    start_ns: int
    end_ns: int
    due_ns: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The timeline and the cost of a plan.

    Attributes
    ----------
    iteration : Iteration
        When each op and each transfer happens.
    times : tuple of TransferTimes
        Times of each group, in transfer order.
    iteration_ns : int
        Backward pass and next forward pass, stalls included: the objective.
    communication_ns, computation_ns : int
        Total time of the transfers, and of the ops, both slowed down by contention.
    """

    iteration: Iteration
    times: tuple[TransferTimes, ...]
    iteration_ns: int
    communication_ns: int
    computation_ns: int

    @property
    def stall_ns(self) -> int:
        """How long computation waits for communication (ns)."""
        return self.iteration_ns - self.computation_ns

    @property
    def rho(self) -> float | None:
        """Communication over computation, ρ; None if nothing is computed."""
        return self.communication_ns / self.computation_ns if self.computation_ns else None

    @property
    def overlap(self) -> float:
        """Overlap coefficient α, ``(comm + comp - iteration) / min(comm, comp)``; 1 if that is 0.

        Negative if both wait at the same time, as between Horovod's cycles.
        """
        shorter = min(self.communication_ns, self.computation_ns)
        both = self.communication_ns + self.computation_ns - self.iteration_ns
        return both / shorter if shorter else 1.0

    @property
    def utilisation(self) -> float:
        """Share of the iteration that computes; ``1 / (1 + ρ - α·min(ρ, 1))`` if ρ > 0."""
        return self.computation_ns / self.iteration_ns if self.iteration_ns else 1.0


def duration_ns(problem: Problem, group: Transfer, traffic: Fraction = Fraction(1)) -> int:
    """Return how long a group occupies the network (ns), at its depth if costs by depth are known.

    More traffic never takes less time, even if a measured cost falls with the size.
    """
    cost = problem.cost
    cost = cost.at_depth(group.depth) if isinstance(cost, DepthCost) else cost
    size = group.size_bytes
    if traffic == 1:
        return cost.cost_ns(size)
    sent = -(-size * traffic.numerator // traffic.denominator)
    return max(cost.cost_ns(size), cost.cost_ns(sent))


class Price(NamedTuple):
    """A transfer's duration without contention, processor time, and duration under contention."""

    alone_ns: int
    processor_ns: int
    overlapped_ns: int


def prices_of(problem: Problem, plan: Plan) -> list[Price]:
    """Return the durations of each transfer; equal transfers, often very many, share one entry."""
    known: dict[tuple[int, int], Price] = {}
    contention, traffic = problem.interference, plan.traffic
    prices = []
    for group in plan.groups:
        key = group.size_bytes, group.depth
        if key not in known:
            alone = duration_ns(problem, group, traffic)
            sent = -(-group.size_bytes * traffic.numerator // traffic.denominator)
            processor = contention.processor_ns(sent, alone)
            known[key] = Price(alone, processor, contention.overlapped_ns(alone))
        prices.append(known[key])
    return prices


def plan_heads(graph: Graph, plan: Plan) -> tuple[int, ...]:
    """Return when each gradient is ready on the last worker (ns)."""
    heads: tuple[int, ...]
    last, heads = graph.memo.get("heads", (None, ()))
    if last is plan.backward_orders:  # comparing thousands of orders is the slow part
        return heads
    orders = tuple(map(tuple, plan.backward_orders))
    heads = graph.remembered(
        ("heads", orders),
        lambda: ready_times(graph, *orders) if len(orders) == 1 else last_ready(graph, orders),
    )
    graph.memo["heads"] = plan.backward_orders, heads
    return heads


def _first_read(graph: Graph, plan: Plan) -> list[int]:
    """Return the position in the forward order of the first op that reads each parameter."""
    positions: list[int]
    last, positions = graph.memo.get("first_read", (None, []))
    if last is not plan.forward_order:  # most plans share the order
        place = {index: position for position, index in enumerate(plan.forward_order)}
        positions = [min(place[index] for index in readers) for readers in graph.readers]
        graph.memo["first_read"] = plan.forward_order, positions
    return positions


def heads_and_tails(graph: Graph, plan: Plan) -> list[tuple[int, int]]:
    """Return when each transfer is ready, and the computation that waits for it (ns)."""
    heads, first_read = plan_heads(graph, plan), _first_read(graph, plan)
    backward_ns = sum(graph.ops[index].duration_ns for index in plan.backward_orders[0])
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    left = list(accumulate(reversed(forward_ns), initial=0))[::-1]  # from each op on
    windows = []
    for group in plan.groups:
        ready = max(work_before(group, heads, backward_ns), group.not_before_ns)
        if plan.barrier:
            tail = left[0]
        elif group.kind == "push":
            tail = 0
        else:
            tail = left[min(first_read[part.parameter] for part in group.parts)]
        windows.append((ready, tail))
    return windows


def lasting_ns(problem: Problem, plan: Plan) -> int:
    """Return the iteration time (ns), as `evaluate` does.

    Faster for searches: without contention no other times are computed.
    """
    if plan.late or not problem.interference.is_none:
        return evaluate(problem, plan).iteration_ns
    free, end = 0, problem.windows.compute_ns
    windows = heads_and_tails(problem.graph, plan)
    for (ready, tail), price in zip(windows, prices_of(problem, plan), strict=True):
        free = max(free, ready) + price.alone_ns
        end = max(end, free + tail)
    return end


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan."""
    return scheduled(problem.graph, plan, prices_of(problem, plan))


def scheduled(graph: Graph, plan: Plan, prices: Sequence[Price]) -> Evaluation:
    """Return the earliest schedule of transfers of any kind, given the price of each."""
    heads, first_read = plan_heads(graph, plan), _first_read(graph, plan)
    backward_ns = [graph.ops[index].duration_ns for index in plan.backward_orders[0]]
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    never = len(forward_ns)  # no op waits for a push, only for the pulls behind it
    works = [work_before(group, heads, sum(backward_ns)) for group in plan.groups]
    if plan.late:
        firsts = [heads[group.parts[0].parameter] for group in plan.groups]
        works = _late_heads(works, firsts, sum(backward_ns))
    transfers = [
        TimedTransfer(
            work,
            price.alone_ns,
            never if group.kind == "push" else min(first_read[part[0]] for part in group.parts),
            group.not_before_ns,
            price.processor_ns,
            price.overlapped_ns - price.alone_ns,
        )
        for group, work, price in zip(plan.groups, works, prices, strict=True)
    ]
    iteration = simulate(backward_ns, forward_ns, transfers, barrier=plan.barrier, held=plan.late)
    return Evaluation(
        iteration=iteration,
        times=_times(plan, transfers, iteration),
        iteration_ns=iteration.end_ns,
        communication_ns=sum(end - start for start, end in iteration.transfers),
        computation_ns=iteration.undisturbed[-1],
    )


def work_before(transfer: Transfer, heads: Sequence[int], backward_ns: int) -> int:
    """Return how much of the backward pass must be done before a transfer may start (ns)."""
    if transfer.kind == "pull":
        return backward_ns
    return max(heads[part.parameter] for part in transfer.parts)


def _times(
    plan: Plan, transfers: Sequence[TimedTransfer], iteration: Iteration
) -> tuple[TransferTimes, ...]:
    undisturbed = iteration.undisturbed
    due: dict[int, int] = {}  # deadline of each parameter's pulls
    deadlines = []
    for group, transfer in reversed(list(zip(plan.groups, transfers, strict=True))):
        deadline = undisturbed[0 if plan.barrier else min(transfer.needed_by, len(undisturbed) - 1)]
        if group.kind == "push":
            later = (due[part.parameter] for part in group.parts if part.parameter in due)
            deadline = min(later, default=deadline)
        elif group.kind == "pull":
            pulled = (part.parameter for part in group.parts)
            due.update({j: min(deadline, due.get(j, deadline)) for j in pulled})
        deadlines.append(deadline)
    pushed: dict[int, int] = {}  # end of each parameter's last push so far
    times = []
    for group, ready, (start, end), deadline in zip(
        plan.groups, iteration.ready, iteration.transfers, reversed(deadlines), strict=True
    ):
        known = ready
        if group.kind == "pull":
            known = max(ready, *(pushed[part.parameter] for part in group.parts))
        elif group.kind == "push":
            pushed.update({part.parameter: end for part in group.parts})
        times.append(TransferTimes(known, start, end, deadline))
    return tuple(times)


def _late_heads(ready: Sequence[int], firsts: Sequence[int], backward_ns: int) -> list[int]:
    """Return the computation that must be done before each delayed transfer starts (ns).

    A bucket of DeepSpeed's ZeRO starts when the next gradient arrives and does not fit into it, the
    last bucket at the end of the backward pass; there computation waits for the previous bucket.
    `ready` and `firsts`: when all gradients of a transfer, and the first of them, are ready (ns).
    Source: ``reduce_independent_p_g_buckets_and_remove_grads`` and ``average_tensor``.
    """
    return list(accumulate(map(max, ready, (*firsts[1:], backward_ns)), max))
