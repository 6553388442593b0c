"""Price plans of whole iterations, and list when everything happens.

All plans of this family are priced here, whatever method made them;
`planner.families.iteration.checker` checks them. Optimisers update parameters when the backward
pass has ended, so no pull starts before.

Complexity: O(ops + parts), times the number of op orders.
Source: the iteration as in Caramel §3.1; pulls as in iBatch §3: a layer computes once its
parameters have arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from planner.families.caramel.delayed_release import late_heads
from planner.families.caramel.evaluation import TransferTimes, plan_heads
from planner.families.caramel.problem import Plan as GradientPlan
from planner.families.caramel.windows import windows
from planner.families.iteration.plan import How, Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.ways import Way
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.solving.robustness import Step, strained
from planner.solving.simulator import Iteration, TimedTransfer, simulate
from planner.solving.transfers import Kind, Transfer

Costs = Mapping[How, Way]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The timeline and the cost of a plan.

    Attributes
    ----------
    iteration : Iteration
        When each op and each transfer happens.
    times : tuple of TransferTimes
        Times of each transfer, in transfer order. A pull is ready when the backward pass and the
        pushes of its parameters have ended; a push is due with the earliest pull that follows it.
    iteration_ns : int
        Backward pass and next forward pass, stalls included: the objective.
    communication_ns, computation_ns : int
        Total time of the transfers, and of the ops, both slowed down by contention.
    startup_ns : int
        Start-up cost of all transfers, a part of `communication_ns`.
    """

    iteration: Iteration
    times: tuple[TransferTimes, ...]
    iteration_ns: int
    communication_ns: int
    computation_ns: int
    startup_ns: int

    @property
    def stall_ns(self) -> int:
        """How long computation waits for communication (ns)."""
        return self.iteration_ns - self.computation_ns


def cost_of(costs: Costs, plan: Plan, transfer: Transfer) -> AffineCost | TableCost | DepthCost:
    """Return the cost of a transfer of a plan, by its size."""
    return costs[plan.how(transfer)].cost(transfer.kind)


def evaluate(problem: Problem, plan: Plan, costs: Costs | None = None) -> Evaluation:
    """Price a checked plan.

    Parameters
    ----------
    problem : Problem
        Its problem.
    plan : Plan
        The plan.
    costs : mapping from How to Way, optional
        Cost of transfers by each algorithm at each depth, if not that of the cluster.
    """
    graph = problem.graph
    heads = heads_of(problem, plan)
    place = {index: position for position, index in enumerate(plan.forward_order)}
    first_read = [min(place[index] for index in readers) for readers in graph.readers]
    backward_ns = [graph.ops[index].duration_ns for index in plan.backward_orders[0]]
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    never = len(forward_ns)  # no op waits for a push, only for the pulls behind it
    known = problem.costs if costs is None else costs

    @cache  # many of thousands of transfers are alike
    def priced(how: How, kind: Kind, size: int) -> tuple[int, int, int]:
        lasts, beside = known[how].cost(kind).cost_ns(size), problem.beside(kind)
        return lasts, beside.processor_ns(size, lasts), beside.beside_ns(lasts) - lasts

    steps = []
    works = [_work_before(transfer, heads, sum(backward_ns)) for transfer in plan.transfers]
    if plan.late:
        firsts = [heads[transfer.parts[0].parameter] for transfer in plan.transfers]
        works = late_heads(works, firsts, backward_ns)
    for transfer, work in zip(plan.transfers, works, strict=True):
        needed = never
        if transfer.kind != "push":
            needed = min(first_read[part.parameter] for part in transfer.parts)
        lasts, *taken = priced(plan.how(transfer), transfer.kind, transfer.size_bytes)
        steps.append(TimedTransfer(work, lasts, needed, transfer.not_before_ns, *taken))
    iteration = simulate(backward_ns, forward_ns, steps, barrier=plan.barrier, held=plan.late)
    undisturbed = iteration.undisturbed
    return Evaluation(
        iteration=iteration,
        times=_times(plan, steps, iteration, undisturbed),
        iteration_ns=iteration.end_ns,
        communication_ns=sum(end - start for start, end in iteration.transfers),
        computation_ns=undisturbed[-1],
        startup_ns=sum(cost_of(known, plan, transfer).startup_ns for transfer in plan.transfers),
    )


def lasting(problem: Problem, plan: Plan) -> Callable[[Costs], int]:
    """Return a function from costs of transfers to the iteration time of a plan, as `evaluate`.

    Faster for searches: without contention no other times are computed.
    """
    if plan.late or not problem.interference.is_none:
        return lambda costs: evaluate(problem, plan, costs).iteration_ns
    steps, compute_ns = _unpriced(problem, plan), problem.base.windows.compute_ns
    ways = {way for _, way, _, _ in steps}

    def lasts(costs: Costs) -> int:
        prices = {(how, kind): costs[how].cost(kind) for how, kind in ways}
        free, end = 0, compute_ns
        for ready, way, size, tail in steps:
            free = max(free, ready) + prices[way].cost_ns(size)
            end = max(end, free + tail)
        return end

    return lasts


def simplicity(plan: Plan) -> tuple[int, bool, int]:
    """Return the tie-breaking key of plans of equal makespan; the least is preferred.

    The fewest transfers come first, then one algorithm before several, then the fewest bytes.
    """
    several = len({plan.how(transfer)[0] for transfer in plan.transfers}) > 1
    return len(plan.transfers), several, sum(transfer.size_bytes for transfer in plan.transfers)


def simplest(problem: Problem, plans: Sequence[Plan]) -> Plan:
    """Return the simplest of plans of equal makespan; of equally simple plans the most robust."""
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda plan: (simplicity(plan), strained_of(problem, plan)))


def strained_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return the iteration time under each delay scenario (`strain`), without contention."""
    steps = [
        Step(ready, problem.costs[how].cost(kind).cost_ns(size), tail)
        for ready, (how, kind), size, tail in _unpriced(problem, plan)
    ]
    return strained(steps, problem.base.windows.compute_ns)


def _unpriced(problem: Problem, plan: Plan) -> list[tuple[int, tuple[How, str], int, int]]:
    """Return for each transfer when it is ready, how it is sent, its bytes, and its tail."""
    known = problem.base.windows
    heads, tails = known.heads, known.tails
    order = problem.base.order
    if (plan.backward_orders, plan.forward_order) != ((order.backward,), order.forward):
        heads = heads_of(problem, plan)
        tails = windows(problem.graph, plan.backward_orders[0], plan.forward_order).tails
    steps: list[tuple[int, tuple[How, str], int, int]] = []
    for transfer in plan.transfers:
        ready, tail = _work_before(transfer, heads, known.backward_ns), 0
        ready = max(ready, transfer.not_before_ns)
        if transfer.kind != "push":
            tail = max(tails[part.parameter] for part in transfer.parts)
        if plan.barrier:
            tail = known.forward_ns
        steps.append((ready, (plan.how(transfer), transfer.kind), transfer.size_bytes, tail))
    return steps


def _work_before(transfer: Transfer, heads: Sequence[int], backward_ns: int) -> int:
    """Return how much of the backward pass must be done before a transfer may start (ns)."""
    if transfer.kind == "pull":
        return backward_ns
    return max(heads[part.parameter] for part in transfer.parts)


def _times(
    plan: Plan, steps: Sequence[TimedTransfer], iteration: Iteration, undisturbed: Sequence[int]
) -> tuple[TransferTimes, ...]:
    due: dict[int, int] = {}  # deadline of each parameter's pulls
    deadlines = []
    for transfer, step in reversed(list(zip(plan.transfers, steps, strict=True))):
        parameters = [part.parameter for part in transfer.parts]
        deadline = undisturbed[0 if plan.barrier else min(step.needed_by, len(undisturbed) - 1)]
        if transfer.kind == "push":
            deadline = min((due[j] for j in parameters if j in due), default=deadline)
        elif transfer.kind == "pull":
            due.update({j: min(deadline, due.get(j, deadline)) for j in parameters})
        deadlines.append(deadline)
    pushed: dict[int, int] = {}  # end of each parameter's last push so far
    times = []
    for transfer, computed, (start, end), deadline in zip(
        plan.transfers, iteration.ready, iteration.transfers, reversed(deadlines), strict=True
    ):
        ready = computed
        if transfer.kind == "pull":
            ready = max(computed, *(pushed[part.parameter] for part in transfer.parts))
        elif transfer.kind == "push":
            pushed.update({part.parameter: end for part in transfer.parts})
        times.append(TransferTimes(ready, start, end, deadline))
    return tuple(times)


def heads_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return when each gradient is ready on the last worker under a plan's op orders (ns)."""
    orders = GradientPlan((), plan.backward_orders, plan.forward_order)
    return plan_heads(problem.graph, orders)
