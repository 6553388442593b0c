"""Fit transfers to cap and memory limit, assign their algorithms, merge them, and adapt old ones.

Problem: decide whether a mode has feasible transfers, and not too many; cut transfers over the
limit.
Guarantee: a cut plan sends the same bytes in the same order.
Complexity: O(parts + transfers).
Source: own.
"""

from dataclasses import replace
from functools import cache, partial
from itertools import repeat

from planner.families import caramel
from planner.families.caramel.one_machine import list_schedule
from planner.families.caramel.pricing import LoadPricer, groups_of, joined
from planner.families.caramel.search import resized
from planner.families.caramel.windows import Windows
from planner.families.iteration.baselines import both_ways, enforced
from planner.families.iteration.evaluation import lasting
from planner.families.iteration.plan import Mode, Plan, Way, fastest, from_gradients
from planner.families.iteration.problem import Problem
from planner.model.costs import TableCost
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility
from planner.solving.transfers import Kind, Part, Transfer, undivided

EQUAL, PIECES = 8, 64
"""Most equal pieces, and most pieces, that a transfer is cut into where that takes less time."""

MAX_TRANSFERS = 4_000
"""Transfers of a plan if all have the largest size; more would take too long to plan."""


def limit_infeasible(problem: Problem, mode: Mode) -> Infeasibility | None:
    """Return why a mode has no feasible transfer, or None."""
    room = problem.transfer_limit(mode)
    largest = max(problem.pushed if mode == "replicated" else problem.pushed + problem.pulled)
    element = min(problem.element_bytes, largest)
    if room is None or room >= element:
        return None
    if room == problem.max_transfer_bytes:
        return Infeasibility(
            f"max_transfer_bytes = {room} is less than an element ({element} bytes)",
            ("max_transfer_bytes",),
        )
    memory, footprint = problem.cluster.worker_memory_bytes, problem.footprint
    assert memory is not None
    assert footprint is not None
    # Name all modes: a reader who learns that one does not fit needs the other too.
    reason = footprint.shortage(problem.modes, problem.cluster.workers, memory, element)
    return Infeasibility(reason, ("memory_bytes",))


def too_many_transfers(problem: Problem, mode: Mode) -> Infeasibility | None:
    """Return why the transfers of a mode are too many to be planned, or None."""
    room = problem.transfer_limit(mode)
    size = sum(problem.pushed if mode == "replicated" else problem.pushed + problem.pulled)
    if room is None or size <= room * MAX_TRANSFERS:
        return None
    binding = problem.binding(mode)
    return Infeasibility(
        f"{mode}: {binding} leaves transfers room for {room} of {size} bytes, and at most "
        f"{MAX_TRANSFERS} transfers are planned",
        (binding,),
    )


def split_to_limit(problem: Problem, plan: Plan) -> Plan:
    """Return the plan with every transfer over the limit cut."""
    room = problem.transfer_limit(plan.mode)
    if room is None or all(transfer.size_bytes <= room for transfer in plan.transfers):
        return plan
    pieces = tuple(
        piece
        for transfer in plan.transfers
        for piece in _cut(transfer, room, problem.element_bytes)
    )
    return replace(plan, transfers=pieces)


def split_where_cheaper(problem: Problem, plan: Plan, way: Way) -> Plan:
    """Return the plan with transfers cut where a table gives their pieces less time together.

    Pieces are as large as a point of the table, or all alike; the last one may be smaller.
    """
    tables = {kind: way.cost(kind) for kind in ("all_reduce", "push", "pull")}
    pieces: list[Transfer] = []
    for transfer in plan.transfers:
        cost, size = tables[transfer.kind], transfer.size_bytes
        made = [transfer]
        if isinstance(cost, TableCost):
            least = max(problem.element_bytes, size // PIECES)
            known = [room for room, _ in cost.points if least <= room < size]
            rooms = [*known, *(-(-size // count) for count in range(2, EQUAL + 1))]
            room = min(rooms, key=lambda room: _cut_ns(cost, size, room))
            if _cut_ns(cost, size, room) < cost.cost_ns(size):
                made = _cut(transfer, max(room, problem.element_bytes), problem.element_bytes)
            if sum(cost.cost_ns(piece.size_bytes) for piece in made) >= cost.cost_ns(size):
                made = [transfer]
        pieces += made
    return plan if len(pieces) == len(plan.transfers) else replace(plan, transfers=tuple(pieces))


def _cut_ns(cost: TableCost, size: int, room: int) -> int:
    """Return the time of pieces of `room` bytes and a last one."""
    whole, rest = divmod(size, room)
    return whole * cost.cost_ns(room) + (cost.cost_ns(rest) if rest else 0)


def _cut(transfer: Transfer, room: int, element: int) -> list[Transfer]:
    """Return transfers of at most `room` bytes that carry the same bytes in the same order."""
    pieces: list[list[Part]] = [[]]
    left = room
    for index, first, last in transfer.parts:
        start = first
        while start < last:
            size = last - start if last - start <= left else left - left % element
            if size:
                pieces[-1].append(Part(index, start, start + size))
                start += size
                left -= size
            if start < last:
                pieces.append([])
                left = room
    return [replace(transfer, parts=tuple(parts)) for parts in pieces if parts]


# ---
# Greedy filling: transfers up to a cap, filled whenever the channel is free.
#
# Problem: group and order bytes if transfers are no larger than a cap. Method: Jackson's preemptive
# rule, optimal without start-ups, but without interruptions
# (`planner.families.caramel.one_machine`). One variant sends at once, the other waits for full
# transfers. Sharded plans push in this way, then pull in order of use. Guarantee: no transfer
# exceeds the cap; the waiting variant fills all transfers but the last. None for the time.
# Complexity: O((parameters + transfers) log parameters). Source: Jackson 1955; Horn 1974; the
# filling is our own.


def greedy_fill(problem: Problem, synchronisation: Way, mode: Mode, *, waiting: bool) -> Plan:
    """Return a plan whose transfers are filled up to the mode's transfer limit.

    `waiting`: transfers wait until they are full while gradients are to come. The limit exists, and
    is at least an element.
    """
    room, known, element = problem.transfer_limit(mode), problem.base.windows, problem.element_bytes
    assert room is not None
    sides: list[tuple[Kind, Windows]] = [("all_reduce", known)]
    if mode == "sharded":
        pulls = replace(known, sizes=problem.pulled, heads=(0,) * len(known.heads))
        sides = [("push", known), ("pull", pulls)]
    transfers: list[Transfer] = []
    for kind, side in sides:
        pricer = LoadPricer(side, synchronisation.cost(kind))
        # An element may be larger than the limit where every parameter is smaller.
        loads = list_schedule(pricer, repeat((room, 0)), min(element, room), full=waiting)
        transfers += groups_of(loads, side.sizes, element, kind=kind)
    return enforced(problem, synchronisation.algorithm, transfers)


# ---
# Assign an algorithm and a depth to each transfer of a plan.
#
# Problem: the algorithms and depths that a plan may use cost differently by the size of a transfer.
# Method: the cheapest option for each transfer. Transfers share one channel in a fixed order, so a
# shorter transfer delays nothing. Guarantee: no other choice for the same transfers makes a shorter
# iteration. Complexity: O(transfers · options). Source: own.


def assign_algorithms(plan: Plan, way: Way) -> Plan:
    """Return the plan with the cheapest algorithm and depth for each transfer.

    The plan's own algorithm is the one that carries most bytes.
    """
    option_of = cache(partial(fastest, way))  # many transfers have the same size
    options = [option_of(transfer.kind, transfer.size_bytes) for transfer in plan.transfers]
    carried: dict[str, int] = {}
    for option, transfer in zip(options, plan.transfers, strict=True):
        carried[option.algorithm] = carried.get(option.algorithm, 0) + transfer.size_bytes
    main = max(carried, key=lambda name: carried[name])
    transfers = tuple(
        replace(
            transfer,
            algorithm=None if option.algorithm == main else option.algorithm,
            depth=option.depth,
        )
        for option, transfer in zip(options, plan.transfers, strict=True)
    )
    return replace(plan, algorithm=main, transfers=transfers)


def with_both(problem: Problem, way: Way, plan: Plan, place: int) -> Plan | None:
    """Return the plan with a transfer and the next one of its kind merged, or None."""
    first, second = plan.transfers[place : place + 2]
    room = problem.transfer_limit("sharded")
    if first.kind != second.kind or (
        room is not None and first.size_bytes + second.size_bytes > room
    ):
        return None
    parts = joined(first.parts, second.parts)
    if parts is None:
        return None
    both = Transfer(parts, 1, max(first.not_before_ns, second.not_before_ns), first.kind)
    transfers = (*plan.transfers[:place], both, *plan.transfers[place + 2 :])
    return assign_algorithms(replace(plan, transfers=transfers), way)


# ---
# Plans of all-reduces with fewer transfers, by the tie-breaking of `caramel`.
#
# Problem: among plans by the same algorithms within a given time, find one with few transfers.
# Guarantee: no longer than allowed and no more transfers; the fewest transfers of whole parameters
# if these are few and there is one algorithm, except at the time limit. Under contention the plan
# stays unchanged. Complexity: that of `caramel`: O(parts), and O(3^n) for few parameters.


def fewer_transfers(problem: Problem, plan: Plan, most_ns: int, deadline: Deadline) -> Plan:
    """Return a plan with fewer transfers that takes at most `most_ns`, or the plan itself."""
    gradients = problem.gradients.get(plan.way)
    if gradients is None or plan.mode != "replicated" or not problem.interference.is_none:
        return plan
    old = replace(plan.as_gradients, groups=undivided(plan.transfers))
    try:
        fewer = caramel.CARAMEL.simplest(gradients, old, most_ns, deadline)
    except TimeUpError:
        return plan
    way = next(option for option in problem.options if option.algorithm == plan.way)
    made = assign_algorithms(split_to_limit(problem, from_gradients(plan.algorithm, fewer)), way)
    longer = lasting(problem, made)(problem.costs) > most_ns
    return plan if longer or len(made.transfers) >= len(plan.transfers) else made


# ---
# Warm start: adapt an old plan to changed numbers, within milliseconds.
#
# Method: parameters of another size are cut at the same shares. All-reduces are improved as in
# `planner.families.caramel.search`; pushes and pulls compete with iBatch's batches both ways
# (`planner.families.iteration.baselines`). Each transfer takes the algorithm of the old plan's
# algorithms that suits its size now. Transfers over the limit are cut, unless there would be
# none or too many. Guarantee: never worse than the old transfers in the old order; mode and
# algorithms stay. Complexity: that of `planner.families.caramel.search`. Source: own.


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Adapt an old plan to the sizes of the problem's parameters.

    If an algorithm is no longer available, each transfer takes the plan's algorithm that suits its
    size. Raises `InvalidPlanError` if the plan sends bytes that no parameter can have.
    """
    kinds = {}
    for pull, sizes in ((False, problem.pushed), (True, problem.pulled)):
        parts = [transfer.parts for transfer in plan.transfers if (transfer.kind == "pull") is pull]
        kinds[pull] = iter(resized(parts, sizes, problem.element_bytes))
    made = (
        replace(transfer, parts=next(kinds[transfer.kind == "pull"])) for transfer in plan.transfers
    )
    way = _way_of(problem, plan)
    plan = replace(plan, transfers=tuple(transfer for transfer in made if transfer.parts))
    known = all(plan.how(transfer) in problem.costs for transfer in plan.transfers)
    return plan if known or way is None else assign_algorithms(plan, way)


def improved_start(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an adapted plan, cut to the transfer limit and improved."""
    way = _way_of(problem, plan)
    if way is None:
        return Outcome(plan)
    small = limit_infeasible(problem, plan.mode) or too_many_transfers(problem, plan.mode)
    if small is not None:  # cutting would make no transfer, or too many
        return Outcome(None, infeasibility=small)
    if plan.mode == "replicated":
        old = replace(plan.as_gradients, groups=undivided(plan.transfers))
        gradients = problem.gradients[way.algorithm]
        better = caramel.CARAMEL.improve(gradients, old, deadline).plan
        if better is not None and better is not old:
            plan = from_gradients(way.algorithm, better)
        return Outcome(assign_algorithms(split_to_limit(problem, plan), way))
    batches = both_ways(problem, way, problem.transfer_limit("sharded"))
    plans = plan, enforced(problem, way.algorithm, batches)
    fitting = [assign_algorithms(split_to_limit(problem, made), way) for made in plans]
    return Outcome(min(fitting, key=lambda made: lasting(problem, made)(problem.costs)))


def _way_of(problem: Problem, plan: Plan) -> Way | None:
    """Return the algorithms that an old plan chose from, or None if the plan must not change."""
    free = len(plan.backward_orders) == 1 and not (plan.barrier or plan.late)
    fixed = problem.target is not None or not problem.interference.is_none
    if fixed or not free:
        return None
    return next((way for way in problem.options if way.algorithm == plan.way), None)
