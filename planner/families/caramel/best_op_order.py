"""Optimal order of the backward ops, with grouping and order of the transfers (CP-SAT).

Problem: as in `planner.families.caramel.exact_split`, with the backward ops in any order their
dependencies allow: they run one at a time, and a gradient is ready when its last updater has ended.
Choose op order, groups of whole parameters and their order so that the iteration is shortest.
Guarantee: optimal, unless the deadline passes: then the best order found, and a bound. Complexity:
exponential; for small graphs, to measure how far the greedy activation order is from the optimum
(`planner.families.caramel.activation_order`). Source: own; OR-Tools CP-SAT.
"""

from dataclasses import dataclass, replace
from math import gcd

from planner.families.caramel.exact_split import best_grouping
from planner.families.caramel.jackson import preemptive_bound
from planner.families.caramel.model_lines import is_subadditive, model_lines, shares_of
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.transfer_model import TransferModel
from planner.families.caramel.windows import windows
from planner.model.costs import TransferCost
from planner.model.graphs import Graph
from planner.solving.deadline import Deadline


@dataclass(frozen=True, slots=True)
class BestOpOrder:
    """An order of the backward ops (indices), and the best plan of whole parameters for it."""

    backward: tuple[int, ...]
    value: int  # iteration time of the plan (ns)
    lower_bound: int  # no order and plan last less (ns)
    timed_out: bool


def best_op_order(graph: Graph, cost: TransferCost, *, deadline: Deadline) -> BestOpOrder:
    """Find the order of the backward ops with the best plan of whole parameters.

    The forward ops keep the order of ``graph.pass_order("forward")``. For small graphs only.

    Parameters
    ----------
    graph : Graph
        The graph.
    cost : TransferCost
        Cost of a transfer by its size.
    deadline : Deadline
        When to stop; the order of ``graph.pass_order("backward")`` is tried in any case.

    Raises
    ------
    NotApplicableError
        If the numbers are too large for CP-SAT.
    """
    forward = graph.pass_order("forward")
    ops = graph.pass_order("backward")
    known = windows(graph, ops, forward)
    start = best_grouping(known, cost, deadline=deadline.share(4))
    assert start.value is not None
    limit = start.value
    total, count = sum(known.sizes), len(known.sizes)
    durations = {index: graph.ops[index].duration_ns for index in ops}
    position = {index: number for number, index in enumerate(ops)}
    # A gradient is ready no earlier than after all ancestors of its updaters.
    ancestors: dict[int, set[int]] = {}
    for index in ops:
        needed = [before for before in graph.predecessors[index] if before in durations]
        ancestors[index] = {index}.union(*(ancestors[before] for before in needed))
    closures = [set().union(*map(ancestors.__getitem__, own)) for own in graph.updaters]
    earliest = tuple(sum(durations[index] for index in closure) for closure in closures)
    lower = preemptive_bound(replace(known, heads=earliest), cost)
    if lower >= limit:
        return BestOpOrder(ops, limit, limit, timed_out=False)
    classes = sorted({tuple(sorted(updaters)) for updaters in graph.updaters})
    places = count
    if is_subadditive(cost, total):
        places = min(count, len(classes) + len(set(known.tails)) - 1)
    search = TransferModel(limit - 1, lower, min(known.tails))
    shares = [shares_of(size, size) for size in known.sizes]
    unit = gcd(*known.sizes)
    transfers = search.transfers(
        shares, places, unit, model_lines(cost, unit, total, search.horizon)
    )
    ends = search.ops(graph, ops, known.backward_ns)
    search.after_ops(transfers, graph.updaters, ends)
    search.before_tails(transfers, known.tails)
    answer = search.run(deadline, (0, 1))
    if answer.solution is None:
        return BestOpOrder(ops, limit, answer.proven(limit), not answer.finished)
    solution = answer.solution
    end = {index: solution.value(variable) for index, variable in ends.items()}
    backward = tuple(
        sorted(ops, key=lambda index: (end[index] - durations[index], end[index], position[index]))
    )
    pricer = LoadPricer(windows(graph, backward, forward), cost)
    value = pricer.iteration_ns(transfers.groups(solution))
    return BestOpOrder(backward, value, answer.proven(value), not answer.finished)
