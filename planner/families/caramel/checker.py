"""Check plans of gradient transfers, and their schedules.

Plans are checked whatever method made them, schedules independently of the code that computed them.
`check_contents` and `check_schedule` also take pushes and pulls, which `planner.iteration` plans.

Complexity: O(ops + dependencies + parts), times the number of op orders.
Source: own; Caramel §3.3.1 for transfer boundaries.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from planner.families.caramel.evaluation import Price, plan_heads, prices_of
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.windows import first_break
from planner.model.contention import progress
from planner.model.costs import DepthCost
from planner.model.errors import InvalidPlanError
from planner.model.graphs import Graph, Phase
from planner.solving.simulator import Iteration
from planner.solving.transfers import Transfer


def check(problem: Problem, plan: Plan) -> None:
    """Check that `plan` is a plan of `problem`.

    Every byte of every parameter is in exactly one group, and parameters are cut only between whole
    elements. Every order runs each op of its pass once, after the ops it depends on.

    Raises
    ------
    InvalidPlanError
        With the first group or op that breaks a rule.
    """
    graph = problem.graph
    if not plan.backward_orders:
        raise InvalidPlanError("backward_orders", "expected at least one order")
    for number, order in enumerate(plan.backward_orders):
        _check_order(graph, order, "backward", f"backward_orders[{number}]")
    _check_order(graph, plan.forward_order, "forward", "forward_order")
    if problem.fixed_order and (
        plan.forward_order != problem.order.forward
        or any(order != problem.order.backward for order in plan.backward_orders)
    ):
        raise InvalidPlanError("backward_orders", "not the op order the problem asks for")
    if plan.traffic < 1:
        raise InvalidPlanError("traffic", f"expected at least 1, got {plan.traffic}")
    _check_groups(problem, plan)


def _check_groups(problem: Problem, plan: Plan) -> None:
    depths = (
        [depth for depth, _ in problem.cost.by_depth]
        if isinstance(problem.cost, DepthCost)
        else None
    )
    for number, group in enumerate(plan.groups):
        path = f"groups[{number}]"
        if group.kind != "all_reduce" or group.algorithm is not None:
            raise InvalidPlanError(path, "expected an all-reduce by the algorithm that was priced")
        if group.depth < 1 or (depths is not None and group.depth not in depths):
            raise InvalidPlanError(f"{path}.depth", f"no cost is known for depth {group.depth}")
    sizes = [parameter.size_bytes for parameter in problem.graph.parameters]
    names = [parameter.name for parameter in problem.graph.parameters]
    check_contents(names, sizes, problem.element_bytes, plan.groups)


def check_contents(
    names: Sequence[str],
    sizes: Sequence[int],
    element_bytes: int,
    groups: Sequence[Transfer],
    verb: str = "sent",
) -> None:
    """Check that every byte is in exactly one group, and that no element is cut.

    `names`, `sizes`: of each parameter; `verb`: what happens to them. Raises `InvalidPlanError`.
    """
    carried: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for number, group in enumerate(groups):
        path = f"groups[{number}]"
        if not group.parts:
            raise InvalidPlanError(path, "carries nothing")
        if group.not_before_ns < 0:
            raise InvalidPlanError(f"{path}.not_before_ns", "expected a time >= 0")
        for index, start, stop in group.parts:
            if not 0 <= index < len(sizes):
                raise InvalidPlanError(path, f"there is no parameter {index}")
            name, size = names[index], sizes[index]
            if not 0 <= start < stop <= size:
                raise InvalidPlanError(path, f"{name} has no bytes [{start}, {stop}) of {size}")
            if start % element_bytes or (stop % element_bytes and stop != size):
                raise InvalidPlanError(path, f"{name} is cut inside an element")
            carried[index].append((start, stop))
    for name, size, spans in zip(names, sizes, carried, strict=True):
        reached = 0
        for start, stop in (*sorted(spans), (size, size)):
            if start != reached:
                what = f"{verb} twice" if start < reached else f"not {verb}"
                first, last = sorted((start, reached))
                raise InvalidPlanError("groups", f"bytes [{first}, {last}) of {name} are {what}")
            reached = stop


def _check_order(graph: Graph, order: Sequence[int], phase: Phase, path: str) -> None:
    checked = graph.memo.setdefault("orders", set())
    if (phase, tuple(order)) in checked:
        return
    ops = graph.ops
    for index in order:
        if not 0 <= index < len(ops) or ops[index].phase != phase:
            raise InvalidPlanError(path, f"op {index} is no {phase} op")
    broken = first_break(graph, order)
    if broken is not None:
        raise InvalidPlanError(path, broken[1])
    if len(order) != sum(op.phase == phase for op in ops):
        raise InvalidPlanError(path, f"some {phase} ops do not run")
    checked.add((phase, tuple(order)))


def check_times(problem: Problem, plan: Plan, iteration: Iteration) -> None:
    """Check a schedule of the plan without the code that computed it, as `check_schedule` does."""
    still = problem.interference.is_none
    check_schedule(problem.graph, plan, iteration, prices_of(problem, plan), still=still)


def check_schedule(
    graph: Graph, plan: Plan, iteration: Iteration, prices: Sequence[Price], *, still: bool
) -> None:
    """Check a schedule of transfers of any kind without the code that computed it.

    No transfer starts before its last gradient is ready or overlaps another on the channel, no pull
    starts before the backward pass has ended, each transfer takes the time it costs, and no op runs
    before the ops and pulls it needs, or together with another op. `still`: without contention.
    Raises `InvalidPlanError` for the first violation.
    """
    heads = plan_heads(graph, plan)
    before = _check_lanes(graph, plan, iteration, prices)
    if plan.late and still:
        _check_held(graph, plan, iteration, prices, heads)
    starts = dict(zip(plan.forward_order, (start for start, _ in iteration.forward), strict=True))
    ended, begin = iteration.backward[-1][1], iteration.forward[0][0]
    timed = zip(plan.groups, iteration.transfers, before, strict=True)
    for number, (group, (start, end), done) in enumerate(timed):
        path = f"transfers[{number}]"
        if start < group.not_before_ns:
            raise InvalidPlanError(path, "leaves before it may")
        if group.kind == "pull" and start < ended:
            raise InvalidPlanError(path, "pulls before the backward pass has ended")
        if plan.barrier and begin < end:
            raise InvalidPlanError(path, "ends after the forward pass has begun")
        for j, _, _ in group.parts:
            name = graph.parameters[j].name
            if group.kind != "pull" and done < heads[j]:
                raise InvalidPlanError(path, f"leaves before the gradient of {name} is ready")
            if group.kind != "push" and any(starts[index] < end for index in graph.readers[j]):
                raise InvalidPlanError(path, f"{name} is read before it has arrived")


def _check_lanes(
    graph: Graph, plan: Plan, iteration: Iteration, prices: Sequence[Price]
) -> tuple[int | Fraction, ...]:
    """Check the ops and the channel of a schedule, whatever is sent.

    No two transfers and no two ops overlap, everything takes its time under contention, the
    backward pass waits only for delayed transfers, and the iteration ends with the forward pass.
    Return an upper bound on the computation done when each transfer starts (ns).
    """
    ops = [graph.ops[index] for index in (*plan.backward_orders[0], *plan.forward_order)]
    spans = (*iteration.backward, *iteration.forward)
    for name, lane in (("transfers", iteration.transfers), ("ops", spans)):
        for number, (former, latter) in enumerate(pairwise(lane)):
            if latter[0] < former[1]:
                raise InvalidPlanError(f"{name}[{number + 1}]", "starts before the one before ends")
    alone_ns, processor_ns, overlapped_ns = zip(*prices, strict=True) if prices else ((), (), ())
    done = progress(spans, iteration.transfers, alone_ns, processor_ns, overlapped_ns)
    # Under contention, the duration of a transfer that overlaps computation is rounded to whole
    # nanoseconds, and so are both parts of a transfer during which computation begins to wait.
    slack = 3 if list(overlapped_ns) != list(alone_ns) or any(processor_ns) else 0
    for number, (work, lasts) in enumerate(zip(done.transfers, alone_ns, strict=True)):
        if not -slack <= work - lasts <= slack and not (plan.late and slack):
            raise InvalidPlanError(f"transfers[{number}]", "does not take what it costs")
    for op, work, borders in zip(ops, done.ops, done.borders, strict=True):
        most = slack * borders
        if not -most <= work - op.duration_ns <= most and (work < op.duration_ns or not plan.late):
            raise InvalidPlanError(op.name, "does not take its duration")
    if any(former[1] != latter[0] for former, latter in pairwise(((0, 0), *iteration.backward))):
        raise InvalidPlanError("ops", "the backward pass waits")
    if iteration.end_ns != iteration.forward[-1][1]:
        raise InvalidPlanError("end_ns", "is not when the last op ends")
    return tuple(work + slack * (number + 1) for number, work in enumerate(done.before))


def _check_held(
    graph: Graph,
    plan: Plan,
    iteration: Iteration,
    prices: Sequence[Price],
    heads: Sequence[int],
) -> None:
    """Check the starts of delayed transfers: one in flight, and computation waits for it.

    Without contention. `heads`: when each gradient is ready if computation never waits (ns).
    """
    order = [heads[part.parameter] for group in plan.groups for part in group.parts]
    backward_ns = sum(graph.ops[index].duration_ns for index in plan.backward_orders[0])
    counts = accumulate(len(group.parts) for group in plan.groups)
    now = done = free = end = 0
    timed = zip(counts, prices, iteration.transfers, strict=True)
    for number, (count, price, span) in enumerate(timed):
        needed = max(*order[: count + 1], backward_ns if count == len(order) else 0, done)
        end = now + needed - done if needed > done else end
        now = max(now + needed - done, free)
        done, free = needed, now + price.alone_ns
        if span != (now, free):
            raise InvalidPlanError(f"transfers[{number}]", "leaves at another time than it has to")
    if iteration.backward[-1][1] != end:
        raise InvalidPlanError("ops", "the backward pass ends at another time than it has to")
