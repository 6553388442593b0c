"""Check and price plans of gradient transfers, and list when everything happens.

All plans of this family are checked and priced here, whatever method made them. `scheduled` and
`check_schedule` also take pushes and pulls, which `planner.iteration` plans. Optimisers update
parameters when the backward pass has ended, so no pull starts before.

Complexity: O(ops + dependencies + parts), times the number of op orders.
Source: Caramel §3.1 (ρ, overlap coefficient, utilisation), §3.3.1 (transfer boundaries); pulls as
in iBatch §3: a layer computes once its parameters have arrived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.windows import are_orders, first_break, last_ready, ready_times
from planner.model.contention import progress
from planner.model.costs import DepthCost
from planner.model.errors import InvalidPlanError
from planner.model.graphs import Graph, Phase
from planner.solving.simulator import Iteration, TimedTransfer, simulate
from planner.solving.transfers import Transfer


class TransferTimes(NamedTuple):
    """When a transfer is ready, starts and ends, in ns from the start of the backward pass.

    `due_ns` is when the forward pass would need it if it never waited. A pull is ready when the
    backward pass and the pushes of its parameters have ended; a push is due with the earliest pull
    that follows it.
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


class Price(NamedTuple):
    """A transfer's duration without contention, processor time, and duration under contention."""

    alone_ns: int
    processor_ns: int
    beside_ns: int


def _prices(problem: Problem, plan: Plan) -> list[Price]:
    """Return the durations of each transfer; equal transfers, often very many, share one entry."""
    known: dict[tuple[int, int], Price] = {}
    beside, traffic = problem.interference, plan.traffic
    prices = []
    for group in plan.groups:
        key = group.size_bytes, group.depth
        if key not in known:
            alone = duration_ns(problem, group, traffic)
            sent = -(-group.size_bytes * traffic.numerator // traffic.denominator)
            processor = beside.processor_ns(sent, alone)
            known[key] = Price(alone, processor, beside.beside_ns(alone))
        prices.append(known[key])
    return prices


def plan_heads(graph: Graph, plan: Plan) -> tuple[int, ...]:
    """Return when each gradient is ready on the last worker (ns)."""
    heads: tuple[int, ...]
    last, heads = graph.memo.get("heads", (None, ()))
    if last is plan.backward_orders:  # comparing thousands of orders is the slow part
        return heads
    orders = tuple(map(tuple, plan.backward_orders))
    heads = graph.remembered(
        ("heads", orders),
        lambda: ready_times(graph, *orders) if len(orders) == 1 else last_ready(graph, orders),
    )
    graph.memo["heads"] = plan.backward_orders, heads
    return heads


def _first_read(graph: Graph, plan: Plan) -> list[int]:
    """Return the position in the forward order of the first op that reads each parameter."""
    positions: list[int]
    last, positions = graph.memo.get("first_read", (None, []))
    if last is not plan.forward_order:  # most plans share it
        place = {index: position for position, index in enumerate(plan.forward_order)}
        positions = [min(place[index] for index in readers) for readers in graph.readers]
        graph.memo["first_read"] = plan.forward_order, positions
    return positions


def heads_and_tails(graph: Graph, plan: Plan) -> list[tuple[int, int]]:
    """Return when each transfer is ready, and the computation that waits for it (ns)."""
    heads, first_read = plan_heads(graph, plan), _first_read(graph, plan)
    backward_ns = sum(graph.ops[index].duration_ns for index in plan.backward_orders[0])
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    left = list(accumulate(reversed(forward_ns), initial=0))[::-1]  # from each op on
    windows = []
    for group in plan.groups:
        ready = max(work_before(group, heads, backward_ns), group.not_before_ns)
        if plan.barrier:
            tail = left[0]
        elif group.kind == "push":
            tail = 0
        else:
            tail = left[min(first_read[part.parameter] for part in group.parts)]
        windows.append((ready, tail))
    return windows


def lasting_ns(problem: Problem, plan: Plan) -> int:
    """Return the iteration time (ns), as `evaluate` does.

    Faster for searches: without contention no other times are computed.
    """
    if plan.late or not problem.interference.is_none:
        return evaluate(problem, plan).iteration_ns
    free, end = 0, problem.windows.compute_ns
    windows = heads_and_tails(problem.graph, plan)
    for (ready, tail), price in zip(windows, _prices(problem, plan), strict=True):
        free = max(free, ready) + price.alone_ns
        end = max(end, free + tail)
    return end


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan."""
    return scheduled(problem.graph, plan, _prices(problem, plan))


def scheduled(graph: Graph, plan: Plan, prices: Sequence[Price]) -> Evaluation:
    """Return the earliest schedule of transfers of any kind, given the price of each."""
    heads, first_read = plan_heads(graph, plan), _first_read(graph, plan)
    backward_ns = [graph.ops[index].duration_ns for index in plan.backward_orders[0]]
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    never = len(forward_ns)  # no op waits for a push, only for the pulls behind it
    works = [work_before(group, heads, sum(backward_ns)) for group in plan.groups]
    if plan.late:
        firsts = [heads[group.parts[0].parameter] for group in plan.groups]
        works = _late_heads(works, firsts, sum(backward_ns))
    transfers = [
        TimedTransfer(
            work,
            price.alone_ns,
            never if group.kind == "push" else min(first_read[part[0]] for part in group.parts),
            group.not_before_ns,
            price.processor_ns,
            price.beside_ns - price.alone_ns,
        )
        for group, work, price in zip(plan.groups, works, prices, strict=True)
    ]
    iteration = simulate(backward_ns, forward_ns, transfers, barrier=plan.barrier, held=plan.late)
    return Evaluation(
        iteration=iteration,
        times=_times(plan, transfers, iteration),
        iteration_ns=iteration.end_ns,
        communication_ns=sum(end - start for start, end in iteration.transfers),
        computation_ns=iteration.undisturbed[-1],
    )


def work_before(transfer: Transfer, heads: Sequence[int], backward_ns: int) -> int:
    """Return how much of the backward pass must be done before a transfer may start (ns)."""
    if transfer.kind == "pull":
        return backward_ns
    return max(heads[part.parameter] for part in transfer.parts)


def _times(
    plan: Plan, transfers: Sequence[TimedTransfer], iteration: Iteration
) -> tuple[TransferTimes, ...]:
    undisturbed = iteration.undisturbed
    due: dict[int, int] = {}  # deadline of each parameter's pulls
    deadlines = []
    for group, transfer in reversed(list(zip(plan.groups, transfers, strict=True))):
        deadline = undisturbed[0 if plan.barrier else min(transfer.needed_by, len(undisturbed) - 1)]
        if group.kind == "push":
            later = (due[part.parameter] for part in group.parts if part.parameter in due)
            deadline = min(later, default=deadline)
        elif group.kind == "pull":
            pulled = (part.parameter for part in group.parts)
            due.update({j: min(deadline, due.get(j, deadline)) for j in pulled})
        deadlines.append(deadline)
    pushed: dict[int, int] = {}  # end of each parameter's last push so far
    times = []
    for group, ready, (start, end), deadline in zip(
        plan.groups, iteration.ready, iteration.transfers, reversed(deadlines), strict=True
    ):
        known = ready
        if group.kind == "pull":
            known = max(ready, *(pushed[part.parameter] for part in group.parts))
        elif group.kind == "push":
            pushed.update({part.parameter: end for part in group.parts})
        times.append(TransferTimes(known, start, end, deadline))
    return tuple(times)


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
    check_contents(problem.graph, sizes, problem.element_bytes, plan.groups)


def check_contents(
    graph: Graph,
    sizes: Sequence[int],
    element_bytes: int,
    groups: Sequence[Transfer],
    verb: str = "sent",
) -> None:
    """Check that every byte is in exactly one group, and that no element is cut.

    `sizes`: bytes of each parameter; `verb`: what happens to them. Raises `InvalidPlanError`.
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
            name, size = graph.parameters[index].name, sizes[index]
            if not 0 <= start < stop <= size:
                raise InvalidPlanError(path, f"{name} has no bytes [{start}, {stop}) of {size}")
            if start % element_bytes or (stop % element_bytes and stop != size):
                raise InvalidPlanError(path, f"{name} is cut inside an element")
            carried[index].append((start, stop))
    for parameter, size, spans in zip(graph.parameters, sizes, carried, strict=True):
        reached = 0
        for start, stop in (*sorted(spans), (size, size)):
            if start != reached:
                what = f"{verb} twice" if start < reached else f"not {verb}"
                first, last = sorted((start, reached))
                raise InvalidPlanError(
                    "groups", f"bytes [{first}, {last}) of {parameter.name} are {what}"
                )
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
    check_schedule(problem.graph, plan, iteration, _prices(problem, plan), still=still)


def check_schedule(
    graph: Graph, plan: Plan, iteration: Iteration, prices: Sequence[Price], *, still: bool
) -> None:
    """Check a schedule of transfers of any kind without the code that computed it.

    No transfer starts before its last gradient is ready or overlaps another on the channel, no pull
    starts before the backward pass has ended, each takes the time it costs, and no op runs before
    what it needs or together with another op. `still`: without contention. Raises
    `InvalidPlanError` for the first violation.
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
    backward pass does not wait unless it is held, and the iteration ends with the forward pass.
    Return an upper bound on the computation done when each transfer starts (ns).
    """
    ops = [graph.ops[index] for index in (*plan.backward_orders[0], *plan.forward_order)]
    spans = (*iteration.backward, *iteration.forward)
    for name, lane in (("transfers", iteration.transfers), ("ops", spans)):
        for number, (former, latter) in enumerate(pairwise(lane)):
            if latter[0] < former[1]:
                raise InvalidPlanError(f"{name}[{number + 1}]", "starts before the one before ends")
    alone_ns, processor_ns, beside_ns = zip(*prices, strict=True) if prices else ((), (), ())
    done = progress(spans, iteration.transfers, alone_ns, processor_ns, beside_ns)
    # Contention rounds to whole nanoseconds: the duration of a transfer that overlaps computation,
    # and both its parts where computation begins to wait.
    slack = 3 if list(beside_ns) != list(alone_ns) or any(processor_ns) else 0
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


# ---
# Delayed release (`held`, `late`): DeepSpeed ZeRO starts a bucket late and blocks computation.
#
# Problem: a bucket starts when the next gradient arrives and does not fit into it, the last bucket
# at the end of the backward pass; computation waits there for the previous bucket. When does each
# start? Method: `_late_heads` gives the simulator the computation done before each start;
# `_check_held` follows the schedule independently, from one bucket to the next. Guarantee: exact
# without contention. Source: ``reduce_independent_p_g_buckets_and_remove_grads`` and
# ``average_tensor`` of DeepSpeed.


def _late_heads(ready: Sequence[int], firsts: Sequence[int], backward_ns: int) -> list[int]:
    """Return the computation that must be done before each delayed transfer starts (ns).

    `ready` and `firsts`: when all gradients of a transfer, and the first of them, are ready (ns).
    """
    return list(accumulate(map(max, ready, (*firsts[1:], backward_ns)), max))


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
