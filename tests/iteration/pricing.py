"""What an iteration lasts, found out event by event: an oracle for prices.

Independent of the library's simulator, which computes starts in closed form: here workers compute,
one channel carries, and at every event each of them does what it may. It knows what both take from
each other, and rounds nothing but the times of transfers.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

from planner.families.caramel import Plan as Gradients
from planner.families.iteration import Plan, Problem, Synchronisation, Transfer
from planner.families.iteration.plan import How
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.graphs import Graph


def takes(synchronisation: Synchronisation, transfer: Transfer) -> int:
    """What a transfer costs, or two halves of it where nothing else is said, rounded up once."""
    sent = sum(stop - start for _, start, stop in transfer.parts)
    cost, halves = synchronisation.half, 1
    if transfer.kind == "all_reduce":
        cost, halves = synchronisation.whole or cost, 1 if synchronisation.whole else 2
    return ceil(halves * (cost.startup_ns + Fraction(cost.ns_per_byte) * sent))


def ready_times(graph: Graph, plan: Gradients) -> list[int]:
    """When each gradient is there on every worker."""
    ready = [0] * len(graph.parameters)
    for order in plan.backward_orders:
        now = 0
        for index in order:
            now += graph.ops[index].duration_ns
            for number, parameter in enumerate(graph.parameters):
                if graph.ops[index].name in parameter.updated_by:
                    ready[number] = max(ready[number], now)
    return ready


def _waits(graph: Graph, op: str, transfer: Transfer, barrier: bool) -> bool:
    if barrier:
        return True
    return transfer.kind != "push" and any(
        op in graph.parameters[part.parameter].read_by for part in transfer.parts
    )


def lasts(
    problem: Problem, plan: Plan, known: Mapping[How, Synchronisation] | None = None
) -> Fraction:
    """Return the iteration time of a plan, given the costs of its algorithms."""
    if known is None:
        known = {(option.algorithm, option.depth): option for option in problem.single}
    prices = [takes(known[plan.how(transfer)], transfer) for transfer in plan.transfers]
    return run(problem.graph, plan.as_gradients, prices, problem.cluster.interference)


def run(
    graph: Graph, plan: Gradients, prices: Sequence[int], contention: Interference = NO_CONTENTION
) -> Fraction:
    """Run a plan by shares of work at constant rates, exactly; return when it has computed all."""
    ready = ready_times(graph, plan)
    backward = sum(graph.ops[index].duration_ns for index in plan.backward_orders[0])
    starts, total = {}, backward  # work before each forward op
    for index in plan.forward_order:
        starts[graph.ops[index].name] = total
        total += graph.ops[index].duration_ns

    def limit(coming: list[Transfer]) -> int:
        """How much can be computed before one of them has to be there."""
        waiting = [
            start
            for name, start in starts.items()
            if any(_waits(graph, name, one, plan.barrier) for one in coming)
        ]
        return min([total, *waiting])

    to_send, durations = list(plan.groups), list(prices)
    under_way: Transfer | None = None
    left = now = done = Fraction(0)  # of the transfer, alone; of the clock; of computation
    while done < total or to_send or under_way is not None:
        if under_way is not None and not left:
            under_way = None
            continue
        if under_way is None and to_send:
            one = to_send[0]
            amount = backward
            if one.kind != "pull":
                amount = max(ready[part.parameter] for part in one.parts)
            if done >= amount and now >= one.not_before_ns:
                under_way = to_send.pop(0)
                alone = left = Fraction(durations.pop(0))
                share = 1 if under_way.kind == "all_reduce" else 2
                sent = sum(stop - start for _, start, stop in under_way.parts)
                taken = Fraction(-(-contention.startup_ns // share))
                taken = min(left, taken + ceil(contention.ns_per_byte * sent / share))
                continue
        most = limit(to_send if under_way is None else [under_way, *to_send])
        computes = done < most
        sending, computing = Fraction(under_way is not None), Fraction(computes)
        if computes and under_way is not None:
            delay = -(-contention.delay_ns // share)
            sending = alone / (contention.slowdown * alone + delay)
            computing = 1 - taken * sending / alone
        moments = [left / sending] if sending else []
        if computing:
            goals = {most, *(amount for amount in (*ready, backward) if done < amount < most)}
            moments += [(goal - done) / computing for goal in goals]
        moments += [one.not_before_ns - now for one in to_send if one.not_before_ns > now]
        step = min(moments)
        now, done, left = now + step, done + computing * step, left - sending * step
    return now
