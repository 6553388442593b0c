"""Check plans of whole iterations, and their schedules.

Plans are checked whatever method made them, schedules independently of the code that computed them.
A plan that passes can be executed; `check_room` checks memory.

Complexity: O(ops + dependencies + parts), times the number of op orders.
Source: own.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache

from planner.families.caramel.delayed_release import check_held
from planner.families.caramel.evaluation import check as check_gradients
from planner.families.caramel.evaluation import check_lanes
from planner.families.caramel.problem import Plan as GradientPlan
from planner.families.iteration.evaluation import heads_of
from planner.families.iteration.plan import How, Plan
from planner.families.iteration.problem import Problem
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.solving.simulator import Iteration
from planner.solving.transfers import Kind, Part, Transfer, undivided


def check(problem: Problem, plan: Plan) -> None:
    """Check that `plan` is a plan of `problem`.

    Every byte of every gradient is summed exactly once, by an all-reduce or a push. Every byte of a
    parameter whose gradient is pushed is pulled exactly once, after it was pushed; after all of the
    gradient was pushed, if gradients and parameters differ in size. All parameters are pushed or
    all are all-reduced. They are cut only between whole elements; every order runs each op of its
    pass once, after the ops it depends on.

    Raises
    ------
    InvalidPlanError
        With the first transfer or op that breaks a rule.
    """
    problem.synchronisation(plan.algorithm)
    for number, transfer in enumerate(plan.transfers):
        if (transfer.algorithm or plan.algorithm, 1) not in problem.costs:
            raise InvalidPlanError(f"transfers[{number}].algorithm", "cannot be used here")
        if plan.how(transfer) not in problem.costs:
            raise InvalidPlanError(f"transfers[{number}].depth", "is none of this algorithm")
        if transfer.kind not in ("all_reduce", "push", "pull"):
            raise InvalidPlanError(f"transfers[{number}].kind", "is none")
    summed = [number for number, transfer in enumerate(plan.transfers) if transfer.kind != "pull"]
    gradients = as_gradients(plan, [plan.transfers[number] for number in summed])
    try:
        check_gradients(problem.base, gradients)
    except InvalidPlanError as error:
        raise InvalidPlanError(_in_transfers(error.path, summed), error.message) from None
    _check_pulls(problem, plan)


def _in_transfers(path: str, summed: Sequence[int]) -> str:
    """Return a path into a plan of gradient transfers as a path into the whole plan."""
    inner = re.fullmatch(r"groups\[(\d+)\](.*)", path)
    if inner:
        return f"transfers[{summed[int(inner[1])]}]{inner[2]}"
    return "transfers" if path == "groups" else path


def check_room(problem: Problem, plan: Plan) -> None:
    """Check that no transfer exceeds the cap or the available memory.

    Raises `BrokenConstraintError` with the first such transfer, and the binding limit.
    """
    room = problem.room(plan.mode)
    if room is None:
        return
    for number, transfer in enumerate(plan.transfers):
        if transfer.size_bytes > room:
            capped = room == problem.max_transfer_bytes
            binding = "max_transfer_bytes" if capped else "memory_bytes"
            raise BrokenConstraintError(
                f"transfers[{number}]",
                f"carries {transfer.size_bytes} bytes, and {binding} leaves room for {room}",
                binding,
            )


def as_gradients(plan: Plan, transfers: Sequence[Transfer]) -> GradientPlan:
    """Return the transfers that sum gradients, as a plan of gradient transfers at depth 1."""
    orders = plan.backward_orders, plan.forward_order
    return GradientPlan(undivided(transfers), *orders, plan.barrier, late=plan.late)


def _check_pulls(problem: Problem, plan: Plan) -> None:
    pushed = {
        part.parameter
        for transfer in plan.transfers
        if transfer.kind == "push"
        for part in transfer.parts
    }
    reduced = any(transfer.kind == "all_reduce" for transfer in plan.transfers)
    if pushed and reduced:
        raise InvalidPlanError("transfers", "some gradients are pushed, some all-reduced")
    pushes: dict[int, list[tuple[int, Part]]] = {index: [] for index in pushed}
    pulled: dict[int, list[Part]] = {index: [] for index in pushed}
    for number, transfer in enumerate(plan.transfers):
        for part in transfer.parts if transfer.kind == "push" else ():
            pushes[part.parameter].append((number, part))
    last = {index: _last_pushes(problem, index, parts) for index, parts in pushes.items()}
    for number, transfer in enumerate(plan.transfers):
        if transfer.kind != "pull":
            continue
        if not transfer.parts:
            raise InvalidPlanError(f"transfers[{number}]", "carries nothing")
        if transfer.not_before_ns < 0:
            raise InvalidPlanError(f"transfers[{number}].not_before_ns", "expected a time >= 0")
        for part in transfer.parts:
            if part.parameter not in pushed:
                raise InvalidPlanError(f"transfers[{number}]", "pulls what nobody pushed")
            if number < last[part.parameter](part):
                name = problem.graph.parameters[part.parameter].name
                raise InvalidPlanError(
                    f"transfers[{number}]", f"pulls {name} before all of it was pushed"
                )
            pulled[part.parameter].append(part)
    for index, parts in pulled.items():
        _check_whole(problem, index, parts)


def _last_pushes(
    problem: Problem, index: int, pushes: Sequence[tuple[int, Part]]
) -> Callable[[Part], int]:
    """Return a function from a pull to the number of the last push that it needs, or -1.

    A pull needs the pushes of the same bytes, or all if sizes differ. Pushes do not overlap.
    """
    if problem.pulled[index] != problem.pushed[index]:
        latest = max(number for number, _ in pushes)
        return lambda _: latest
    ordered = sorted(pushes, key=lambda push: push[1].start)
    starts = [push.start for _, push in ordered]
    stops = [push.stop for _, push in ordered]

    def last(pull: Part) -> int:
        same = ordered[bisect_right(stops, pull.start) : bisect_left(starts, pull.stop)]
        return max((number for number, _ in same), default=-1)

    return last


def _check_whole(problem: Problem, index: int, parts: Sequence[Part]) -> None:
    name, size = problem.graph.parameters[index].name, problem.pulled[index]
    reached = 0
    for _, start, stop in sorted(parts, key=lambda part: part.start):
        if not start < stop <= size or start != reached:
            raise InvalidPlanError(
                "transfers", f"bytes [{reached}, {start}) of {name} are not pulled exactly once"
            )
        if stop != size and stop % problem.element_bytes:
            raise InvalidPlanError("transfers", f"{name} is cut inside an element")
        reached = stop
    if reached != size:
        raise InvalidPlanError("transfers", f"bytes [{reached}, {size}) of {name} are not pulled")


def check_times(problem: Problem, plan: Plan, iteration: Iteration) -> None:
    """Check a schedule of the plan independently of the code that computed it.

    No transfer starts before its last gradient is ready, no pull before the backward pass has
    ended. Transfers do not overlap on the channel and take what they cost; no parameter is read
    before it has arrived; no two ops overlap. Raises `InvalidPlanError` for the first violation.
    """
    graph, heads = problem.graph, heads_of(problem, plan)
    computed = (*plan.backward_orders[0], *plan.forward_order)

    @cache  # many of thousands of transfers are alike
    def priced(how: How, kind: Kind, size: int) -> tuple[int, int, int]:
        lasts, disturbed = problem.costs[how].cost(kind).cost_ns(size), problem.beside(kind)
        return lasts, disturbed.processor_ns(size, lasts), disturbed.beside_ns(lasts)

    prices = [
        priced(plan.how(transfer), transfer.kind, transfer.size_bytes)
        for transfer in plan.transfers
    ]
    lasting, processor, beside = ([price[place] for price in prices] for place in range(3))
    ops = [graph.ops[index] for index in computed]
    before = check_lanes(ops, iteration, lasting, processor, beside, held=plan.late)
    if plan.late and problem.interference.is_none:
        gradients = as_gradients(plan, plan.transfers)
        check_held(problem.base, gradients, iteration, heads, lasting)
    starts = dict(zip(plan.forward_order, (start for start, _ in iteration.forward), strict=True))
    ended = iteration.backward[-1][1]
    begin = iteration.forward[0][0]
    for number, (transfer, (start, end), done) in enumerate(
        zip(plan.transfers, iteration.transfers, before, strict=True)
    ):
        path = f"transfers[{number}]"
        if start < transfer.not_before_ns:
            raise InvalidPlanError(path, "leaves before it may")
        if transfer.kind == "pull" and start < ended:
            raise InvalidPlanError(path, "pulls before the backward pass has ended")
        if plan.barrier and begin < end:
            raise InvalidPlanError(path, "ends after the forward pass has begun")
        for part in transfer.parts:
            name = graph.parameters[part.parameter].name
            if transfer.kind != "pull" and done < heads[part.parameter]:
                raise InvalidPlanError(path, f"leaves before the gradient of {name} is ready")
            if transfer.kind != "push" and any(
                starts[index] < end for index in graph.readers[part.parameter]
            ):
                raise InvalidPlanError(path, f"{name} is read before it has arrived")
