"""Price and check plans of whole iterations, and their schedules.

All plans of this family are priced and checked here, whatever method made them, as in
`planner.families.caramel.evaluation`. A plan that passes can be executed; `check_room` checks
memory.

Complexity: O(ops + dependencies + parts), times the number of op orders.
Source: the iteration as in Caramel §3.1; pulls as in iBatch §3.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import eq

from planner.families.caramel.checker import check as check_gradients
from planner.families.caramel.checker import check_contents, check_schedule
from planner.families.caramel.evaluation import Evaluation as GradientEvaluation
from planner.families.caramel.evaluation import Price, heads_and_tails, plan_heads, scheduled
from planner.families.iteration.plan import How, Plan, Way
from planner.families.iteration.problem import Problem
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.validation import one_of
from planner.solving.simulator import Iteration
from planner.solving.transfers import Kind, Part, Transfer, undivided

Costs = Mapping[How, Way]


@dataclass(frozen=True, slots=True)
class Evaluation(GradientEvaluation):
    """Timeline and cost of a plan: those of a plan of gradient transfers, and the start-ups.

    Attributes
    ----------
    startup_ns : int
        Start-up cost of all transfers, a part of `communication_ns`.
    """

    startup_ns: int


def cost_of(costs: Costs, plan: Plan, transfer: Transfer) -> AffineCost | TableCost | DepthCost:
    """Return the cost of a transfer of a plan, by its size."""
    return costs[plan.how(transfer)].cost(transfer.kind)


def _prices(problem: Problem, plan: Plan, costs: Costs) -> list[Price]:
    """Return the durations of each transfer."""

    @cache  # many of thousands of transfers are alike
    def priced(how: How, kind: Kind, size: int) -> Price:
        lasts, contention = costs[how].cost(kind).cost_ns(size), problem.contention(kind)
        return Price(lasts, contention.processor_ns(size, lasts), contention.overlapped_ns(lasts))

    return [priced(plan.how(each), each.kind, each.size_bytes) for each in plan.transfers]


def evaluate(problem: Problem, plan: Plan, costs: Costs | None = None) -> Evaluation:
    """Price a checked plan.

    `costs`: costs of transfers by each algorithm at each depth; by default those of the cluster.
    """
    known = problem.costs if costs is None else costs
    made = scheduled(problem.graph, plan.as_gradients, _prices(problem, plan, known))
    startups = sum(cost_of(known, plan, transfer).startup_ns for transfer in plan.transfers)
    shared = {field.name: getattr(made, field.name) for field in fields(made)}
    return Evaluation(**shared, startup_ns=startups)


def lasting(problem: Problem, plan: Plan) -> Callable[[Costs], int]:
    """Return a function from costs of transfers to the iteration time of a plan, as `evaluate`.

    Faster for searches: without contention no other times are computed.
    """
    if plan.late or not problem.interference.is_none:
        return lambda costs: evaluate(problem, plan, costs).iteration_ns
    windows = heads_and_tails(problem.graph, plan.as_gradients)
    compute_ns = problem.base.windows.compute_ns
    steps = [
        (ready, (plan.how(transfer), transfer.kind), transfer.size_bytes, tail)
        for transfer, (ready, tail) in zip(plan.transfers, windows, strict=True)
    ]
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


def heads_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return when each gradient is ready on the last worker under a plan's op orders (ns)."""
    return plan_heads(problem.graph, plan.as_gradients)


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
    one_of(plan.algorithm, problem.by_name, "algorithm")
    for number, transfer in enumerate(plan.transfers):
        if (transfer.algorithm or plan.algorithm, 1) not in problem.costs:
            raise InvalidPlanError(f"transfers[{number}].algorithm", "cannot be used here")
        if plan.how(transfer) not in problem.costs:
            raise InvalidPlanError(f"transfers[{number}].depth", "is none of this algorithm")
        if transfer.kind not in ("all_reduce", "push", "pull"):
            raise InvalidPlanError(f"transfers[{number}].kind", "is none")
    summed = [number for number, transfer in enumerate(plan.transfers) if transfer.kind != "pull"]
    sums = undivided(plan.transfers[number] for number in summed)
    with in_transfers(summed):
        check_gradients(problem.base, replace(plan.as_gradients, groups=sums))
    names = [parameter.name for parameter in problem.graph.parameters]
    check_pulls(names, problem.pushed, problem.pulled, problem.element_bytes, plan.transfers)


@contextmanager
def in_transfers(numbers: Sequence[int]) -> Iterator[None]:
    """Translate the paths of errors in some transfers, checked as groups, to the whole plan."""
    try:
        yield
    except InvalidPlanError as error:
        path = error.path
        if inner := re.fullmatch(r"groups(\[(\d+)\](.*))?", path):
            path = f"transfers[{numbers[int(inner[2])]}]{inner[3]}" if inner[1] else "transfers"
        raise InvalidPlanError(path, error.message) from None


def check_room(problem: Problem, plan: Plan) -> None:
    """Check that no transfer exceeds the cap or the available memory.

    Raises `BrokenConstraintError` with the first such transfer, and the binding limit.
    """
    room = problem.transfer_limit(plan.mode)
    if room is None:
        return
    for number, transfer in enumerate(plan.transfers):
        if transfer.size_bytes > room:
            binding = problem.binding(plan.mode)
            raise BrokenConstraintError(
                f"transfers[{number}]",
                f"carries {transfer.size_bytes} bytes, and {binding} leaves room for {room}",
                binding,
            )


def check_pulls(
    names: Sequence[str],
    pushed: Sequence[int],
    pulled: Sequence[int],
    element_bytes: int,
    transfers: Sequence[Transfer],
) -> None:
    """Check the pulls of transfers by which all gradients are summed exactly once.

    `names`, `pushed` and `pulled`: name, gradient bytes and bytes of each parameter.
    """
    pulls = [number for number, transfer in enumerate(transfers) if transfer.kind == "pull"]
    pushes: list[list[tuple[int, Part]]] = [[] for _ in pushed]
    for number, transfer in enumerate(transfers):
        for part in transfer.parts if transfer.kind == "push" else ():
            pushes[part.parameter].append((number, part))
    if not any(pushes):
        if pulls:
            raise InvalidPlanError(f"transfers[{pulls[0]}]", "pulls what nobody pushed")
        return
    if any(transfer.kind == "all_reduce" for transfer in transfers):
        raise InvalidPlanError("transfers", "some gradients are pushed, some all-reduced")
    with in_transfers(pulls):
        handed_out = [transfers[number] for number in pulls]
        check_contents(names, pulled, element_bytes, handed_out, "pulled")
    alike = map(eq, pushed, pulled)
    last = [_last_pushes(same, parts) for same, parts in zip(alike, pushes, strict=True)]
    for number, transfer in zip(pulls, handed_out, strict=True):
        for part in transfer.parts:
            if number < last[part.parameter](part):
                raise InvalidPlanError(
                    f"transfers[{number}]",
                    f"pulls {names[part.parameter]} before all of it was pushed",
                )


def _last_pushes(alike: bool, pushes: Sequence[tuple[int, Part]]) -> Callable[[Part], int]:
    """Return a function from a pull to the number of the last push that it needs, or -1.

    A pull needs the pushes of the same bytes, or all if sizes are not `alike`. Pushes do not
    overlap.
    """
    if not alike:
        latest = max(number for number, _ in pushes)
        return lambda _: latest
    ordered = sorted(pushes, key=lambda push: push[1].start)
    starts = [push.start for _, push in ordered]
    stops = [push.stop for _, push in ordered]

    def last(pull: Part) -> int:
        same = ordered[bisect_right(stops, pull.start) : bisect_left(starts, pull.stop)]
        return max((number for number, _ in same), default=-1)

    return last


def check_times(problem: Problem, plan: Plan, iteration: Iteration) -> None:
    """Check a schedule of the plan independently of the code that computed it."""
    prices = _prices(problem, plan, problem.costs)
    still = problem.interference.is_none
    check_schedule(problem.graph, plan.as_gradients, iteration, prices, still=still)
