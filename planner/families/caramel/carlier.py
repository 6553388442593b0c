"""Carlier's branch and bound: the best order of jobs on one machine with heads and tails.

Problem: 1 | r_j, q_j | Cmax (see `planner.solving.jackson`). Method: Schrage's schedule runs,
whenever the machine is free, the ready job with the longest tail. If no job of its critical block
a … b has a shorter tail than b, it is optimal. Otherwise take the last such job c, the critical
job: in any better schedule c goes before all jobs after it in the block, or after all of them. One
branch gives c a longer tail, the other a later head; Jackson's bound decides.
Guarantee: optimal, unless the deadline passes: then the best order found, and a bound.
Complexity: O(n log n) per node; few nodes in practice, also for hundreds of jobs.
Source: Carlier, "The one-machine sequencing problem", EJOR 11 (1982), §3; Schrage's heuristic
(1971).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from planner.solving.deadline import Deadline
from planner.solving.jackson import preemptive
from planner.solving.tie_break import NOMINAL, Step, delayed_makespan


@dataclass(frozen=True, slots=True)
class JobSequence:
    """The jobs in time order, their value, and the proven lower bound."""

    order: tuple[int, ...]
    value: int  # the largest sum of a job's end and its tail
    lower_bound: int  # no order has a smaller value
    timed_out: bool  # or too many nodes


def schrage(
    heads: Sequence[int], durations: Sequence[int], tails: Sequence[int]
) -> tuple[int, ...]:
    """Return Schrage's order; of equal tails, the longer job goes first, then the job given first.

    O(n log n). The order's value exceeds the optimum by less than one duration.
    """
    arrivals = sorted(range(len(heads)), key=lambda job: heads[job])
    ready: list[tuple[int, int, int]] = []
    order: list[int] = []
    clock = coming = 0
    while ready or coming < len(arrivals):
        if not ready:
            clock = max(clock, heads[arrivals[coming]])
        while coming < len(arrivals) and heads[arrivals[coming]] <= clock:
            job = arrivals[coming]
            heappush(ready, (-tails[job], -durations[job], job))
            coming += 1
        job = heappop(ready)[2]
        order.append(job)
        clock += durations[job]
    return tuple(order)


def carlier(
    heads: Sequence[int],
    durations: Sequence[int],
    tails: Sequence[int],
    deadline: Deadline,
    max_nodes: int | None = None,
) -> JobSequence:
    """Order the jobs, at least one, so that the largest sum of end and tail is least.

    Schrage's order is found even after the deadline. The search also stops after `max_nodes` nodes,
    a limit that is the same on every machine, unlike a deadline.
    """
    best: tuple[int, ...] = ()
    value = -1
    root = preemptive(zip(heads, durations, tails, strict=True))
    # Open nodes: bound, number (older first, so that every search is the same), heads, tails.
    nodes: list[tuple[int, int, list[int], list[int]]] = [(root, 0, list(heads), list(tails))]
    made = 1
    while nodes:
        bound = nodes[0][0]
        stop = deadline.passed or (max_nodes is not None and made > max_nodes)
        if best and (bound >= value or stop):
            return JobSequence(best, value, min(bound, value), timed_out=bound < value)
        bound, _, node_heads, node_tails = heappop(nodes)
        order = schrage(node_heads, durations, node_tails)
        steps = [Step(heads[job], durations[job], tails[job]) for job in order]
        priced = delayed_makespan(NOMINAL, steps, 0)
        if not best or priced < value:
            best, value = order, priced
        critical = _critical(order, node_heads, durations, node_tails)
        if critical is None:  # the order is optimal here: its value is the node's bound
            continue
        job, followers, last = critical
        work = sum(durations[follower] for follower in followers)
        earliest = min(node_heads[follower] for follower in followers)
        before = list(node_tails)
        before[job] = max(before[job], work + node_tails[last])
        after = list(node_heads)
        after[job] = max(after[job], earliest + work)
        for child_heads, child_tails in ((node_heads, before), (after, node_tails)):
            # Jackson's bound holds for all subsets, also for the followers and the job together.
            jobs = zip(child_heads, durations, child_tails, strict=True)
            child = max(bound, preemptive(jobs))
            if child < value:
                heappush(nodes, (child, made, child_heads, child_tails))
                made += 1
    return JobSequence(best, value, value, timed_out=False)


def _critical(
    order: Sequence[int], heads: Sequence[int], durations: Sequence[int], tails: Sequence[int]
) -> tuple[int, tuple[int, ...], int] | None:
    """Return the critical job, the jobs after it in the block, and the block's last job, or None.

    The block goes from the last idle time to the last job that decides the value. Its first job has
    its least head: no other job was ready then. The critical job is the last job of the block with
    a shorter tail than the block's last job; without one, Schrage's schedule is optimal.
    """
    clock = block = 0
    value, first, last = -1, 0, 0
    for place, job in enumerate(order):
        if heads[job] > clock:
            clock, block = heads[job], place
        clock += durations[job]
        if clock + tails[job] >= value:
            value, first, last = clock + tails[job], block, place
    final = order[last]
    for place in range(last - 1, first - 1, -1):
        if tails[order[place]] < tails[final]:
            return order[place], tuple(order[place + 1 : last + 1]), final
    return None
