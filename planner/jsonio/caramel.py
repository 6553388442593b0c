"""The JSON interface of gradient transfers (Caramel)."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families import caramel
from planner.families.caramel.checker import check_contents
from planner.families.caramel.evaluation import Evaluation, plan_heads
from planner.families.caramel.for_target import BUCKETS, exported
from planner.families.caramel.methods import BASELINES
from planner.families.caramel.paper import control_edges, edges_of_order, threshold_of
from planner.families.caramel.problem import Plan, Problem
from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base
from planner.jsonio.control import TargetRequest, method_names, target_answer, targets_answer
from planner.jsonio.graphs import OpDocument, ParameterDocument, graph_of
from planner.jsonio.interfaces import Interface
from planner.jsonio.links import resolved
from planner.jsonio.network import Described, NetworkDocument, described, measured_as
from planner.jsonio.transfers import (
    Names,
    OpTimes,
    ParameterBytes,
    TransferDocument,
    check_iteration,
    op_times,
    sent,
    timeline_of,
    typed_transfers,
)
from planner.jsonio.types import (
    Moment,
    PositiveSize,
    Size,
    as_dataclass,
    as_document,
    unset_to_none,
)
from planner.jsonio.what_if import (
    AdviceField,
    OutlookField,
    TargetedAnswer,
    WhatIfRequest,
    advice_answer,
)
from planner.model.costs import DepthCost
from planner.model.errors import InvalidInputError
from planner.model.network import ring_cost
from planner.model.units import counted, format_ns
from planner.model.validation import MAX_VALUE, total
from planner.solving.advice import advise
from planner.solving.compare import Case
from planner.solving.deadline import Deadline
from planner.solving.result import Result
from planner.solving.targets import PLANNER, TARGETS, target_of
from planner.solving.timeline import Kind, Timeline

MethodName = Annotated[
    str,
    Meta(extra_json_schema={"enum": method_names([*caramel.METHODS, BUCKETS, *TARGETS])}),
]
Machines = Annotated[int, Meta(ge=1, le=2**16)]


class StagesDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stages of Caramel's own method; each can be switched off."""

    serialization: bool = True
    batching: bool = True
    scheduling: bool = True


class CaramelRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks in which groups and order to send gradients, and in which order to compute them."""

    chooses = "search"

    problem: Literal["caramel"]
    ops: Annotated[tuple[OpDocument, ...], Meta(min_length=1)]
    parameters: Annotated[tuple[ParameterDocument, ...], Meta(min_length=1)]
    network: NetworkDocument
    op_order: tuple[str, ...] | UnsetType = UNSET
    method: MethodName = "auto"
    stages: StagesDocument = StagesDocument()
    threshold_bytes: Size | UnsetType = UNSET
    element_bytes: PositiveSize = 1
    workers: Machines | UnsetType = UNSET
    servers: Machines | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=MAX_VALUE)] = 0
    outlook: OutlookField = UNSET
    target: TargetRequest = PLANNER

    def resolved_network(self) -> Described:
        """Return the network; tables are resolved to the cost of an all-reduce."""
        return resolved(described(self.network), "all_reduce", unset_to_none(self.workers))

    def to_problem(self) -> Problem:
        """Return the typed problem."""
        network = self.resolved_network()
        cost = measured_as(network, "all_reduce", contention=True)
        workers = self.workers if self.workers is not UNSET else network.ranks or 8
        if workers != (network.ranks or workers):
            raise InvalidInputError(
                "workers", f"expected {network.ranks}, among whom network was measured"
            )
        return as_dataclass(
            Problem,
            self,
            graph=graph_of(self.ops, self.parameters),
            cost=ring_cost(cost, workers),
            workers=workers,
            interference=network.interference,
            target=target_of(self.target),
        )

    def lacks_spreads(self, problem: Problem, /) -> str:
        """Return what the request lacks to have measured spreads; empty if it has them."""
        known = any(op.spread_ns for op in problem.graph.ops)
        return "" if known else "ops with a spread_ns, or scenarios"


class GroupAnswer(TransferDocument, frozen=True, kw_only=True):
    """One transfer; times count from the start of the backward pass.

    A transfer is ready with its last gradient. It is due when a forward pass that never waits would
    need it.
    """

    depth: Annotated[int, Meta(ge=1)]


class CaramelAnswer(TargetedAnswer, frozen=True, kw_only=True):
    """The transfers, the op order, the iteration's time and a lower bound on it.

    There is no plan if the start plan that `replan` was given does not fit.
    """

    problem: Literal["caramel"] = "caramel"
    op_order: Names = WITH_PLAN
    order: Names = WITH_PLAN
    control_edges: tuple[tuple[str, str], ...] = WITH_PLAN
    threshold_bytes: Size | None = WITH_PLAN
    groups: Annotated[tuple[GroupAnswer, ...], Meta(min_length=1)] = WITH_PLAN
    iteration_ns: Moment = WITH_PLAN
    backward_ns: Moment = WITH_PLAN
    computation_ns: Moment = WITH_PLAN
    communication_ns: Moment = WITH_PLAN
    stall_ns: Moment = WITH_PLAN
    rho: float | None = WITH_PLAN
    overlap: float = WITH_PLAN
    utilisation: float = WITH_PLAN
    schedule: Annotated[tuple[OpTimes, ...], Meta(min_length=1)] = WITH_PLAN
    barrier: bool = False
    traffic: Annotated[float, Meta(ge=1)] = 1.0
    workers: Machines | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=MAX_VALUE)] | UnsetType = UNSET
    ranks: Machines | UnsetType = UNSET
    parameter_bytes: ParameterBytes = WITH_PLAN
    slowed_ns: Moment | UnsetType = UNSET
    advice: AdviceField = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        return (
            f"An iteration takes {format_ns(self.iteration_ns)} with "
            f"{counted(len(self.groups), 'all-reduce')}; computation waits "
            f"{format_ns(self.stall_ns)} of it"
        )


def to_answer(
    case: Case[Problem], result: Result[Plan, Evaluation], deadline: Deadline | None
) -> CaramelAnswer:
    """Return the answer to a case, with advice on DDP and prices of targets unless time is up."""
    problem, plan = case.problem, result.plan
    if plan is None:  # the start plan of replan does not fit
        return CaramelAnswer(**base_fields(CaramelAnswer, result))
    more: dict[str, Any] = {} if case.place is None else {"ranks": problem.workers}
    if deadline is not None:
        if result.method == "search":
            advice = advise(caramel.CARAMEL, problem, result, deadline)
            more["advice"] = advice_answer(advice)
        more["targets"] = targets_answer(exported(problem, plan, deadline))
    return msgspec.structs.replace(answer(problem, result), **more)


def answer(problem: Problem, result: Result[Plan, Evaluation]) -> CaramelAnswer:
    """Return the JSON form of a result.

    Raises InvalidInputError if the iteration takes more than 63 bits of nanoseconds.
    """
    plan = result.plan
    assert plan is not None
    graph = problem.graph
    evaluation = result.evaluation
    assert evaluation is not None
    total(
        max(evaluation.iteration_ns, evaluation.communication_ns),
        "network",
        f"all times of the plan of {result.method}",
    )
    enforced = _enforced(problem, plan, result.method)
    order = _parameter_order(problem, plan)
    threshold = threshold_of(problem)
    schedule = _schedule(problem, plan, evaluation)
    return as_document(
        CaramelAnswer,
        evaluation,
        **base_fields(CaramelAnswer, result),
        op_order=tuple(row.op for row in schedule),
        order=tuple(graph.parameters[j].name for j in order),
        control_edges=_edges(problem, plan) if enforced else (),
        threshold_bytes=None if threshold is None or threshold > MAX_VALUE else threshold,
        groups=_groups(problem, plan, evaluation),
        backward_ns=evaluation.iteration.backward[-1][1],
        schedule=schedule,
        barrier=plan.barrier,
        traffic=float(plan.traffic),
        workers=UNSET if enforced else problem.workers,
        seed=UNSET if enforced else problem.seed,
        parameter_bytes={parameter.name: parameter.size_bytes for parameter in graph.parameters},
        slowed_ns=(
            UNSET
            if problem.interference.is_none
            else evaluation.computation_ns - problem.windows.compute_ns
        ),
        target=target_answer(problem.target),
    )


def _enforced(problem: Problem, plan: Plan, method: str) -> bool:
    """Return whether the plan requires one op order on all workers."""
    if problem.fixed_order:
        return True
    draws = method in BASELINES and not (method == "caramel" and problem.stages.serialization)
    return not draws and len(plan.backward_orders) == 1


def _parameter_order(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return the parameters in the order in which they become ready."""
    if _by_activation(problem, plan):
        return problem.activation
    rank = {j: place for place, j in enumerate(problem.activation)}
    if len(plan.backward_orders) > 1:
        heads = plan_heads(problem.graph, plan)
        return tuple(sorted(range(len(heads)), key=lambda j: (heads[j], rank[j])))
    place = {op: number for number, op in enumerate(plan.backward_orders[0])}
    last = [max(map(place.__getitem__, updaters)) for updaters in problem.graph.updaters]
    return tuple(sorted(range(len(last)), key=lambda j: (last[j], rank[j])))


def _by_activation(problem: Problem, plan: Plan) -> bool:
    """Return whether all workers run the backward ops in activation order."""
    return not problem.fixed_order and plan.backward_orders == (problem.order.backward,)


def _edges(problem: Problem, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the control edges that enforce the plan's op order."""
    graph = problem.graph
    if _by_activation(problem, plan):
        edges = control_edges(graph, problem.activation)
    else:
        edges = edges_of_order(graph, plan.backward_orders[0])
    return tuple((graph.ops[u].name, graph.ops[v].name) for u, v in edges)


def _schedule(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[OpTimes, ...]:
    """Return the start and end of each op, in the request's op order if given, else by time."""
    graph, iteration = problem.graph, evaluation.iteration
    indices = (*plan.backward_orders[0], *plan.forward_order)
    spans = dict(zip(indices, (*iteration.backward, *iteration.forward), strict=True))
    if problem.op_order is not None:
        indices = tuple(graph.position[name] for name in problem.op_order)
    return op_times(graph, indices, [spans[index] for index in indices])


def _groups(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[GroupAnswer, ...]:
    names = [parameter.name for parameter in problem.graph.parameters]
    sizes = [parameter.size_bytes for parameter in problem.graph.parameters]
    cost = problem.cost
    answers = []
    for group, times in zip(plan.groups, evaluation.times, strict=True):
        own = cost.at_depth(group.depth) if isinstance(cost, DepthCost) else cost
        answers.append(
            as_document(
                GroupAnswer,
                times,
                **sent(group.parts, names, sizes),
                bytes=group.size_bytes,
                depth=group.depth,
                startup_end_ns=min(times.start_ns + own.startup_ns, times.end_ns),
            )
        )
    return tuple(answers)


def timeline(answer: CaramelAnswer) -> Timeline:
    """Check an answer and return its schedule; errors carry a path."""
    check_base(answer, "groups", costs="iteration_ns")
    check_iteration("groups", answer.groups, answer.schedule, answer.op_order, answer.iteration_ns)
    for place, edge in enumerate(answer.control_edges):
        if not set(answer.op_order).issuperset(edge):
            raise InvalidInputError(f"control_edges[{place}]", "expected names in op_order")
    sizes = answer.parameter_bytes
    names, groups = list(sizes), typed_transfers("groups", answer.groups, sizes)
    check_contents(names, list(sizes.values()), 1, groups)
    if sorted(answer.order) != sorted(names):
        raise InvalidInputError("order", "expected each parameter of the groups once")
    kinds: list[Kind] = ["all_reduce"] * len(answer.groups)
    return timeline_of(answer.schedule, answer.groups, kinds, answer.backward_ns)


INTERFACE = Interface(
    family=caramel.CARAMEL,
    request=CaramelRequest,
    answer=CaramelAnswer,
    to_answer=to_answer,
    view=timeline,
)
