"""What a plan of a whole iteration costs, when everything happens, and whether it is a plan.

The one place where plans of this family are checked and priced, whoever made them: families, peers
or the joint search. It knows no method.

Complexity: O(ops + dependencies + parts), times the number of op orders.
Source: the iteration as in Caramel §3.1; pulls as in iBatch §3: a layer computes once its
parameters are there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from planner.caramel.evaluation import check as check_gradients
from planner.caramel.evaluation import plan_heads
from planner.caramel.problem import Group
from planner.caramel.problem import Plan as GradientPlan
from planner.costs import AffineCost
from planner.errors import BrokenConstraintError, InvalidPlanError
from planner.iteration.problem import Kind, Part, Plan, Problem, Transfer
from planner.iteration.synchronisation import Synchronisation
from planner.simulator import Iteration, simulate
from planner.simulator import Transfer as Step

__all__ = [
    "Evaluation",
    "TransferTimes",
    "check",
    "check_room",
    "check_times",
    "cost_of",
    "evaluate",
    "heads_of",
]


class TransferTimes(NamedTuple):
    """When one transfer is ready, leaves and has arrived; 0 is the start of the backward pass.

    A pull is ready when the pushes of its parameters have ended. `due_ns` is when the forward pass
    would need the transfer if it never waited; a push is due with the earliest of the pulls that
    follow it.
    """

    ready_ns: int
    start_ns: int
    end_ns: int
    due_ns: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a plan costs.

    Attributes
    ----------
    iteration : Iteration
        When each op and each transfer happens.
    times : tuple of TransferTimes
        Of each transfer, in transfer order.
    iteration_ns : int
        Backward pass and next forward pass, stalls included: the objective.
    communication_ns, computation_ns : int
        Total time of the transfers, and of the ops.
    startup_ns : int
        Start-up cost of all transfers, a part of `communication_ns`.
    """

    iteration: Iteration
    times: tuple[TransferTimes, ...]
    iteration_ns: int
    communication_ns: int
    computation_ns: int
    startup_ns: int

    @property
    def stall_ns(self) -> int:
        """For how long computation waits for communication."""
        return self.iteration_ns - self.computation_ns


def cost_of(problem: Problem, algorithm: str, kind: Kind) -> AffineCost:
    """Return what transfers of one kind cost under an algorithm."""
    synchronisation = problem.synchronisation(algorithm)
    return synchronisation.all_reduce if kind == "all_reduce" else synchronisation.half


def evaluate(
    problem: Problem, plan: Plan, synchronisation: Synchronisation | None = None
) -> Evaluation:
    """Price a checked plan.

    Parameters
    ----------
    problem : Problem
        Its problem.
    plan : Plan
        The plan.
    synchronisation : Synchronisation, optional
        What transfers cost, if not what they do under the plan's algorithm on the cluster.
    """
    graph = problem.graph
    if synchronisation is None:
        synchronisation = problem.synchronisation(plan.algorithm)
    heads = heads_of(problem, plan)
    place = {index: position for position, index in enumerate(plan.forward_order)}
    first_read = [min(place[index] for index in readers) for readers in graph.readers]
    backward_ns = [graph.ops[index].duration_ns for index in plan.backward_orders[0]]
    forward_ns = [graph.ops[index].duration_ns for index in plan.forward_order]
    never = len(forward_ns)  # no op waits for a push: its pulls follow it on the same channel
    half, whole = synchronisation.half, synchronisation.all_reduce
    costs = {"all_reduce": whole, "push": half, "pull": half}
    steps = []
    for transfer in plan.transfers:
        ready = transfer.not_before_ns
        if transfer.kind != "pull":
            ready = max(ready, *(heads[part.parameter] for part in transfer.parts))
        needed = never
        if transfer.kind != "push":
            needed = min(first_read[part.parameter] for part in transfer.parts)
        steps.append(Step(ready, costs[transfer.kind].cost_ns(transfer.size_bytes), needed))
    iteration = simulate(backward_ns, forward_ns, steps, barrier=plan.barrier)
    undisturbed = [sum(backward_ns)]
    for duration in forward_ns:
        undisturbed.append(undisturbed[-1] + duration)
    return Evaluation(
        iteration=iteration,
        times=_times(plan, steps, iteration, undisturbed),
        iteration_ns=iteration.end_ns,
        communication_ns=sum(step.duration_ns for step in steps),
        computation_ns=undisturbed[-1],
        startup_ns=sum(costs[transfer.kind].startup_ns for transfer in plan.transfers),
    )


def _times(
    plan: Plan, steps: Sequence[Step], iteration: Iteration, undisturbed: Sequence[int]
) -> tuple[TransferTimes, ...]:
    due: dict[int, int] = {}  # of each parameter's pulls
    deadlines = []
    for transfer, step in reversed(list(zip(plan.transfers, steps, strict=True))):
        parameters = [part.parameter for part in transfer.parts]
        deadline = undisturbed[0 if plan.barrier else min(step.needed_by, len(undisturbed) - 1)]
        if transfer.kind == "push":
            deadline = min((due[j] for j in parameters if j in due), default=deadline)
        elif transfer.kind == "pull":
            due.update({j: min(deadline, due.get(j, deadline)) for j in parameters})
        deadlines.append(deadline)
    pushed: dict[int, int] = {}  # when each parameter's last push so far ends
    found = []
    for transfer, step, (start, end), deadline in zip(
        plan.transfers, steps, iteration.transfers, reversed(deadlines), strict=True
    ):
        ready = step.ready_ns
        if transfer.kind == "pull":
            ready = max(ready, *(pushed[part.parameter] for part in transfer.parts))
        elif transfer.kind == "push":
            pushed.update({part.parameter: end for part in transfer.parts})
        found.append(TransferTimes(ready, start, end, deadline))
    return tuple(found)


def heads_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return when each gradient is ready on the last worker under a plan's op orders."""
    orders = GradientPlan((), plan.backward_orders, plan.forward_order)
    return plan_heads(problem.graph, orders)


def check(problem: Problem, plan: Plan) -> None:
    """Check that `plan` is a plan of `problem`.

    Every byte of every gradient is summed up exactly once, by an all-reduce or a push. Every byte
    of a parameter whose gradient is pushed is pulled exactly once, after it was pushed; after all
    of it was, where gradients have other sizes. All parameters are pushed or all are all-reduced.
    They are cut only between whole elements; every order runs each op of its pass once, after what
    it depends on.

    Raises
    ------
    InvalidPlanError
        With the first transfer or op that breaks a rule.
    """
    problem.synchronisation(plan.algorithm)
    for number, transfer in enumerate(plan.transfers):
        if transfer.kind not in ("all_reduce", "push", "pull"):
            raise InvalidPlanError(f"transfers[{number}].kind", "is none")
    summed = [number for number, one in enumerate(plan.transfers) if one.kind != "pull"]
    gradients = _as_gradients(plan, [plan.transfers[number] for number in summed])
    try:
        check_gradients(problem.base, gradients)
    except InvalidPlanError as error:
        raise InvalidPlanError(_in_transfers(error.path, summed), error.message) from None
    _check_pulls(problem, plan)


def _in_transfers(path: str, summed: Sequence[int]) -> str:
    """Return a path into a plan of gradient transfers as one into the whole plan."""
    inner = re.fullmatch(r"groups\[(\d+)\](.*)", path)
    if inner:
        return f"transfers[{summed[int(inner[1])]}]{inner[2]}"
    return "transfers" if path == "groups" else path


def check_room(problem: Problem, plan: Plan) -> None:
    """Check that no transfer exceeds the cap or the memory that is left.

    Raises
    ------
    BrokenConstraintError
        With the first transfer that does, and what binds.
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


def _as_gradients(plan: Plan, transfers: Sequence[Transfer]) -> GradientPlan:
    """Return the transfers that sum up, as a plan of gradient transfers."""
    groups = tuple(Group(one.parts, not_before_ns=one.not_before_ns) for one in transfers)
    return GradientPlan(groups, plan.backward_orders, plan.forward_order, plan.barrier)


def _check_pulls(problem: Problem, plan: Plan) -> None:
    pushed = {part.parameter for one in plan.transfers if one.kind == "push" for part in one.parts}
    reduced = any(one.kind == "all_reduce" for one in plan.transfers)
    if pushed and reduced:
        raise InvalidPlanError("transfers", "some gradients are pushed, some all-reduced")
    pushes: dict[int, list[tuple[int, Part]]] = {index: [] for index in pushed}
    pulled: dict[int, list[Part]] = {index: [] for index in pushed}
    for number, one in enumerate(plan.transfers):
        for part in one.parts if one.kind == "push" else ():
            pushes[part.parameter].append((number, part))
    for number, one in enumerate(plan.transfers):
        if one.kind != "pull":
            continue
        if not one.parts:
            raise InvalidPlanError(f"transfers[{number}]", "carries nothing")
        if one.not_before_ns < 0:
            raise InvalidPlanError(f"transfers[{number}].not_before_ns", "expected a time >= 0")
        for part in one.parts:
            if part.parameter not in pushed:
                raise InvalidPlanError(f"transfers[{number}]", "pulls what nobody pushed")
            if any(number < push for push in _needed(problem, part, pushes[part.parameter])):
                name = problem.graph.parameters[part.parameter].name
                raise InvalidPlanError(
                    f"transfers[{number}]", f"pulls {name} before all of it was pushed"
                )
            pulled[part.parameter].append(part)
    for index, parts in pulled.items():
        _check_whole(problem, index, parts)


def _needed(problem: Problem, pull: Part, pushes: Sequence[tuple[int, Part]]) -> list[int]:
    """Return the pushes that a pull needs: of the same bytes, or all if sizes differ."""
    index = pull.parameter
    alike = problem.pulled[index] == problem.pushed[index]
    return [
        number
        for number, push in pushes
        if not alike or (push.start < pull.stop and pull.start < push.stop)
    ]


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
    """Check when things happen, apart from how they were computed.

    No transfer leaves before its last gradient is ready or overlaps another on the channel, each
    takes what it costs, no parameter is read before it has arrived, no two ops run together.

    Raises
    ------
    InvalidPlanError
        With the first transfer or op that breaks a rule.
    """
    graph, heads = problem.graph, heads_of(problem, plan)
    lanes = (
        ("transfers", iteration.transfers),
        ("ops", (*iteration.backward, *iteration.forward)),
    )
    for name, spans in lanes:
        for number, (one, other) in enumerate(pairwise(spans)):
            if other[0] < one[1]:
                raise InvalidPlanError(f"{name}[{number + 1}]", "starts before the one before ends")
    for order, spans in (
        (plan.backward_orders[0], iteration.backward),
        (plan.forward_order, iteration.forward),
    ):
        for index, (start, end) in zip(order, spans, strict=True):
            if end - start != graph.ops[index].duration_ns:
                raise InvalidPlanError(graph.ops[index].name, "does not take its duration")
    if iteration.backward[-1][1] != sum(end - start for start, end in iteration.backward):
        raise InvalidPlanError("ops", "the backward pass waits")
    if iteration.end_ns != iteration.forward[-1][1]:
        raise InvalidPlanError("end_ns", "is not when the last op ends")
    starts = dict(zip(plan.forward_order, (start for start, _ in iteration.forward), strict=True))
    begin = iteration.forward[0][0]
    for number, (transfer, (start, end)) in enumerate(
        zip(plan.transfers, iteration.transfers, strict=True)
    ):
        path = f"transfers[{number}]"
        cost = cost_of(problem, plan.algorithm, transfer.kind)
        if end - start != cost.cost_ns(transfer.size_bytes):
            raise InvalidPlanError(path, "does not take what it costs")
        if start < transfer.not_before_ns:
            raise InvalidPlanError(path, "leaves before it may")
        if plan.barrier and begin < end:
            raise InvalidPlanError(path, "ends after the forward pass has begun")
        for part in transfer.parts:
            name = graph.parameters[part.parameter].name
            if transfer.kind != "pull" and start < heads[part.parameter]:
                raise InvalidPlanError(path, f"leaves before the gradient of {name} is ready")
            if transfer.kind != "push" and any(
                starts[index] < end for index in graph.readers[part.parameter]
            ):
                raise InvalidPlanError(path, f"{name} is read before it has arrived")
