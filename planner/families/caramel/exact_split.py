"""Optimal grouping and order of transfers, as a constraint program (CP-SAT).

Problem: parameter j has b_j bytes, a head r_j and a tail q_j (`planner.families.caramel.windows`).
Parameters, or ranges of their bytes, form groups; each group is one transfer. Minimise the
iteration. Strongly NP-hard already if every parameter travels alone (1 | r_j, q_j | Cmax).
Method: K transfers in time order; model and proof of K: docs/caramel.md, "The constraint program".
Guarantee: optimal, unless the deadline passes: then the best plan found, and a bound. Plans are
priced in exact integers; numbers too large for the solver are refused, never rounded.
Complexity: exponential; K (n + H + D) Booleans for H distinct heads and D distinct tails.
Source: own; OR-Tools CP-SAT with one worker and a fixed seed.
"""

from dataclasses import dataclass, replace
from math import gcd

from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.transfer_model import (
    TransferModel,
    is_subadditive,
    model_lines,
    shares_of,
)
from planner.families.caramel.windows import Windows, windows
from planner.model.costs import TransferCost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.solving.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups in time order, their iteration time (ns), and what was proven.

    Without a plan better than `upper` there are no groups and no value; if `lower_bound` equals
    `upper` then, it is proven that there is none.
    """

    groups: tuple[Load, ...]
    value: int | None
    lower_bound: int  # no plan lasts less (ns)
    timed_out: bool


def best_grouping(
    windows: Windows,
    cost: TransferCost,
    *,
    deadline: Deadline,
    split: bool = False,
    quantum: int = 1,
    upper: int | None = None,
    lower: int = 0,
    max_work: float | None = None,
) -> Grouping:
    """Group and order the transfers so that the iteration is shortest.

    With `split` a parameter's bytes may be sent in several transfers, cut at multiples of `quantum`
    bytes; its last piece holds the rest as well. Only plans better than `upper`, the value of a
    known plan, are searched for, and one that meets `lower`, a known bound, ends the search (ns).
    `max_work` is CP-SAT's deterministic time after which to stop, about seconds; the same on every
    machine. Raises `NotApplicableError` if `split` is set and the cost is not subadditive, or if
    the numbers are too large for CP-SAT.
    """
    if quantum < 1:
        raise InvalidInputError("quantum", f"expected an integer >= 1, got {quantum}")
    total = sum(windows.sizes)
    count = places = len(windows.sizes)
    if is_subadditive(cost, total):
        enough = len(set(windows.heads)) + len(set(windows.tails)) - 1
        places = enough if split else min(count, enough)
    elif split:
        raise NotApplicableError(
            "method",
            "exact splits parameters only if two transfers never take less time than one of the "
            "same bytes: they do with this cost",
        )
    pricer = LoadPricer(windows, cost)
    simple: tuple[Load, ...] = ()
    if upper is None:  # a simple plan: one transfer of everything, or each parameter alone
        heads, tails = windows.heads, windows.tails
        parts = sorted(enumerate(windows.sizes), key=lambda part: (heads[part[0]], -tails[part[0]]))
        simple = min(((tuple(parts),), tuple((part,) for part in parts)), key=pricer.iteration_ns)
    limit = pricer.iteration_ns(simple) if upper is None else upper
    known = Grouping(simple, limit if upper is None else None, limit, timed_out=False)
    lower = max(lower, preemptive_bound(windows, cost))
    if lower >= limit:
        return known
    # Only better plans than the known one are searched for; if there are none, the known one is
    # optimal. Sizes are counted in their greatest common divisor, which keeps products small and
    # exact.
    search = TransferModel(limit - 1, lower, min(windows.heads) + min(windows.tails))
    shares = [shares_of(size, quantum if split else size) for size in windows.sizes]
    unit = gcd(*(share.bytes for portions in shares for share in portions))
    transfers = search.transfers(
        shares, places, unit, model_lines(cost, unit, total, search.horizon)
    )
    search.after_heads(transfers, windows.heads)
    search.before_tails(transfers, windows.tails)
    if not split:
        search.alike_in_order(transfers, windows)
    answer = search.run(deadline, (2,) if split else (0, 1), max_work)
    if answer.solution is None:
        return Grouping(known.groups, known.value, answer.proven(limit), not answer.finished)
    groups = transfers.groups(answer.solution)
    value = pricer.iteration_ns(groups)
    return Grouping(groups, value, answer.proven(value), not answer.finished)


# ---
# Optimal order of the backward ops, with grouping and order of the transfers.
#
# Problem: as above, with whole parameters and the backward ops in any order their dependencies
# allow: they run one at a time, and a gradient is ready when its last updater has ended. For small
# graphs, to measure how far the greedy activation order is from the optimum.


@dataclass(frozen=True, slots=True)
class BestOpOrder:
    """An order of the backward ops (indices), and the best plan of whole parameters for it."""

    backward: tuple[int, ...]
    value: int  # iteration time of the plan (ns)
    lower_bound: int  # no order and plan last less (ns)
    timed_out: bool


def best_op_order(graph: Graph, cost: TransferCost, *, deadline: Deadline) -> BestOpOrder:
    """Find the order of the backward ops with the best plan of whole parameters.

    The forward ops keep the order of ``graph.pass_order("forward")``. At the deadline, the order of
    ``graph.pass_order("backward")`` has been tried in any case. Raises `NotApplicableError` if the
    numbers are too large for CP-SAT.
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
