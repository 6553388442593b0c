"""Check and price plans of gradient transfers, and list when everything happens.

All plans of this family are checked and priced here, whatever method made them.

Complexity: O(ops + dependencies + parts), times the number of op orders.
Source: Caramel §3.1 (ρ, overlap coefficient, utilisation), §3.3.1 (transfer boundaries).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from planner.families.caramel.delayed_release import check_held, late_heads
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.windows import are_orders, first_break, last_ready, ready_times
from planner.model.contention import progress
from planner.model.costs import DepthCost
from planner.model.errors import InvalidPlanError
from planner.model.graphs import Graph, Op, Phase
from planner.solving.simulator import Iteration, TimedTransfer, simulate
from planner.solving.transfers import Transfer


class TransferTimes(NamedTuple):
    """When a group is ready, starts and ends, in ns from the start of the backward pass.

    `due_ns` is when the forward pass would need the group if it never waited.
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
        """Share of the iteration that computes, ``1 / (1 + ρ - α·min(ρ, 1))``."""
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


class _Lasts(NamedTuple):
    """A transfer's duration without contention, processor time, and duration under contention."""

    alone_ns: int
    processor_ns: int
    beside_ns: int


def _lasting(problem: Problem, plan: Plan) -> list[_Lasts]:
    """Return the durations of each transfer; equal transfers, often very many, share one entry."""
    known: dict[tuple[int, int], _Lasts] = {}
    beside, traffic = problem.interference, plan.traffic
    lasting = []
    for group in plan.groups:
        key = group.size_bytes, group.depth
        if key not in known:
            alone = duration_ns(problem, group, traffic)
            sent = -(-group.size_bytes * traffic.numerator // traffic.denominator)
            processor = beside.processor_ns(sent, alone)
            known[key] = _Lasts(alone, processor, beside.beside_ns(alone))
        lasting.append(known[key])
    return lasting


def plan_heads(graph: Graph, plan: Plan) -> tuple[int, ...]:
    """Return when each gradient is ready on the last worker (ns)."""
    heads: tuple[int, ...]
    last, heads = graph.memo.get("heads", (None, ()))
    if last is plan.backward_orders:  # comparing thousands of orders is the slow part
        return heads
    key = ("heads", tuple(map(tuple, plan.backward_orders)))
    if key not in graph.memo:
        orders = key[1]
        same_order = len(orders) == 1
        graph.memo[key] = ready_times(graph, *orders) if same_order else last_ready(graph, orders)
    heads = graph.memo[key]
    graph.memo["heads"] = plan.backward_orders, heads
    return heads


def _first_read(graph: Graph, plan: Plan) -> list[int]:
    """Return the position in the forward order of the first op that reads each parameter."""
    place = {index: position for position, index in enumerate(plan.forward_order)}
    return [min(place[index] for index in readers) for readers in graph.readers]


def lasting_ns(problem: Problem, plan: Plan) -> int:
    """Return the iteration time (ns), as `evaluate` does.

    Faster for searches: without contention no other times are computed.
    """
    if plan.late or not problem.interference.is_none:
        return evaluate(problem, plan).iteration_ns
    graph, heads = problem.graph, plan_heads(problem.graph, plan)
    first_read = _first_read(graph, plan)
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    left = list(accumulate(reversed(forward_ns), initial=0))[::-1]  # from each op on
    free, end = 0, left[0] + sum(graph.ops[index].duration_ns for index in plan.backward_orders[0])
    for group, lasts in zip(plan.groups, _lasting(problem, plan), strict=True):
        ready = max(heads[part.parameter] for part in group.parts)
        needed = 0 if plan.barrier else min(first_read[part.parameter] for part in group.parts)
        free = max(free, ready, group.not_before_ns) + lasts.alone_ns
        end = max(end, free + left[needed])
    return end


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan."""
    graph = problem.graph
    heads, first_read = plan_heads(graph, plan), _first_read(graph, plan)
    backward_ns = [graph.ops[index].duration_ns for index in plan.backward_orders[0]]
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    ready = [max(heads[part.parameter] for part in group.parts) for group in plan.groups]
    if plan.late:
        firsts = [heads[group.parts[0].parameter] for group in plan.groups]
        ready = late_heads(ready, firsts, backward_ns)
    transfers = [
        TimedTransfer(
            work,
            lasts.alone_ns,
            min(first_read[part.parameter] for part in group.parts),
            group.not_before_ns,
            lasts.processor_ns,
            lasts.beside_ns - lasts.alone_ns,
        )
        for group, work, lasts in zip(plan.groups, ready, _lasting(problem, plan), strict=True)
    ]
    iteration = simulate(backward_ns, forward_ns, transfers, barrier=plan.barrier, held=plan.late)
    undisturbed = iteration.undisturbed
    times = tuple(
        TransferTimes(ready, start, end, undisturbed[0 if plan.barrier else transfer.needed_by])
        for transfer, ready, (start, end) in zip(
            transfers, iteration.ready, iteration.transfers, strict=True
        )
    )
    return Evaluation(
        iteration=iteration,
        times=times,
        iteration_ns=iteration.end_ns,
        communication_ns=sum(end - start for start, end in iteration.transfers),
        computation_ns=undisturbed[-1],
    )


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
    if len(plan.backward_orders) == 1 or not are_orders(graph, plan.backward_orders, "backward"):
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
    parameters = problem.graph.parameters
    sent: list[list[tuple[int, int]]] = [[] for _ in parameters]
    depths = (
        [depth for depth, _ in problem.cost.by_depth]
        if isinstance(problem.cost, DepthCost)
        else None
    )
    for number, group in enumerate(plan.groups):
        path = f"groups[{number}]"
        if not group.parts:
            raise InvalidPlanError(path, "carries nothing")
        if group.kind != "all_reduce" or group.algorithm is not None:
            raise InvalidPlanError(path, "expected an all-reduce by the algorithm that was priced")
        if group.depth < 1 or (depths is not None and group.depth not in depths):
            raise InvalidPlanError(f"{path}.depth", f"no cost is known for depth {group.depth}")
        if group.not_before_ns < 0:
            raise InvalidPlanError(f"{path}.not_before_ns", "expected a time >= 0")
        for index, start, stop in group.parts:
            if not 0 <= index < len(parameters):
                raise InvalidPlanError(path, f"there is no parameter {index}")
            parameter = parameters[index]
            if not 0 <= start < stop <= parameter.size_bytes:
                raise InvalidPlanError(
                    path,
                    f"{parameter.name} has no bytes [{start}, {stop}) of {parameter.size_bytes}",
                )
            if start % problem.element_bytes or (
                stop % problem.element_bytes and stop != parameter.size_bytes
            ):
                raise InvalidPlanError(path, f"{parameter.name} is cut inside an element")
            sent[index].append((start, stop))
    for parameter, spans in zip(parameters, sent, strict=True):
        reached = 0
        for start, stop in sorted(spans):
            if start != reached:
                what = "sent twice" if start < reached else "not sent"
                first, last = sorted((start, reached))
                raise InvalidPlanError(
                    "groups", f"bytes [{first}, {last}) of {parameter.name} are {what}"
                )
            reached = stop
        if reached != parameter.size_bytes:
            raise InvalidPlanError(
                "groups",
                f"bytes [{reached}, {parameter.size_bytes}) of {parameter.name} are not sent",
            )


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
    """Check a schedule of the plan without the code that computed it.

    No transfer starts before its last gradient is ready or overlaps another on the channel, each
    takes the time it costs, and no op runs before what it needs or together with another op. Raises
    `InvalidPlanError` for the first violation.
    """
    graph = problem.graph
    heads = plan_heads(graph, plan)
    computed = (*plan.backward_orders[0], *plan.forward_order)
    lasting = _lasting(problem, plan)
    before = check_lanes(
        [graph.ops[index] for index in computed],
        iteration,
        [lasts.alone_ns for lasts in lasting],
        [lasts.processor_ns for lasts in lasting],
        [lasts.beside_ns for lasts in lasting],
        held=plan.late,
    )
    if plan.late and problem.interference.is_none:
        check_held(problem, plan, iteration, heads, [lasts.alone_ns for lasts in lasting])
    starts = dict(zip(plan.forward_order, (start for start, _ in iteration.forward), strict=True))
    begin = iteration.forward[0][0]
    pairs = zip(plan.groups, iteration.transfers, before, strict=True)
    for number, (group, (start, end), done) in enumerate(pairs):
        path = f"transfers[{number}]"
        if start < group.not_before_ns:
            raise InvalidPlanError(path, "leaves before it may")
        for part in group.parts:
            if done < heads[part.parameter]:
                name = graph.parameters[part.parameter].name
                raise InvalidPlanError(path, f"leaves before the gradient of {name} is ready")
            if any(starts[index] < end for index in graph.readers[part.parameter]):
                name = graph.parameters[part.parameter].name
                raise InvalidPlanError(path, f"{name} is read before it has arrived")
        if plan.barrier and begin < end:
            raise InvalidPlanError(path, "ends after the forward pass has begun")


def check_lanes(
    ops: Sequence[Op],
    iteration: Iteration,
    alone_ns: Sequence[int],
    processor_ns: Sequence[int],
    beside_ns: Sequence[int],
    *,
    held: bool = False,
) -> tuple[int | Fraction, ...]:
    """Check the ops and the channel of a schedule, whatever is sent.

    No two transfers and no two ops overlap, everything takes its time under contention, the
    backward pass does not wait, and the iteration ends with the forward pass. `alone_ns`,
    `processor_ns` and `beside_ns` are as in `planner.model.contention.progress`; `held` allows ops
    to wait for transfers. Return an upper bound on the computation done when each transfer starts
    (ns); raise `InvalidPlanError` for the first violation.
    """
    spans = (*iteration.backward, *iteration.forward)
    for name, lane in (("transfers", iteration.transfers), ("ops", spans)):
        for number, (former, latter) in enumerate(pairwise(lane)):
            if latter[0] < former[1]:
                raise InvalidPlanError(f"{name}[{number + 1}]", "starts before the one before ends")
    done = progress(spans, iteration.transfers, alone_ns, processor_ns, beside_ns)
    # Contention rounds to whole nanoseconds: the duration of a transfer that overlaps computation,
    # and both its parts where computation begins to wait.
    slack = 3 if list(beside_ns) != list(alone_ns) or any(processor_ns) else 0
    for number, (work, lasts) in enumerate(zip(done.transfers, alone_ns, strict=True)):
        if not -slack <= work - lasts <= slack and not (held and slack):
            raise InvalidPlanError(f"transfers[{number}]", "does not take what it costs")
    for op, work, borders in zip(ops, done.ops, done.borders, strict=True):
        most = slack * borders
        if not -most <= work - op.duration_ns <= most and (work < op.duration_ns or not held):
            raise InvalidPlanError(op.name, "does not take its duration")
    if any(former[1] != latter[0] for former, latter in pairwise(((0, 0), *iteration.backward))):
        raise InvalidPlanError("ops", "the backward pass waits")
    if iteration.end_ns != iteration.forward[-1][1]:
        raise InvalidPlanError("end_ns", "is not when the last op ends")
    return tuple(work + slack * (number + 1) for number, work in enumerate(done.before))
