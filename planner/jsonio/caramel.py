"""The JSON face of gradient transfers."""

import re
from itertools import pairwise
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from planner import caramel
from planner.caramel.enforcement import control_edges, edges_of_order
from planner.caramel.evaluation import Evaluation, evaluate, plan_heads
from planner.caramel.paper import threshold_of
from planner.caramel.problem import Group, Plan, Problem, Stages
from planner.caramel.solver import RULES
from planner.costs import AffineCost, DepthCost, TableCost
from planner.errors import InvalidInputError
from planner.graphs import Graph, Phase
from planner.jsonio.graphs import OpDocument, ParameterDocument, graph_of
from planner.jsonio.types import Moment, PositiveSize, Rate, Rows, Seconds, Size, Time
from planner.results import Result
from planner.timeline import Interval, Kind, Mark, Timeline, Window
from planner.units import format_ns
from planner.validation import MAX_VALUE, shown, total

__all__ = [
    "REQUEST_RULES",
    "CaramelAnswer",
    "CaramelRequest",
    "GroupAnswer",
    "OpTimes",
    "answer",
    "headline",
    "run",
    "timeline",
]

T = TypeVar("T")

MAX_DEPTH = 64
MAX_SHOWN_PARAMETERS = 3
"""More parameters of a group are left out of its label."""

MethodName = Annotated[str, Meta(extra_json_schema={"enum": list(caramel.METHODS)})]
Machines = Annotated[int, Meta(ge=1, le=2**16)]
Names = Annotated[tuple[str, ...], Meta(min_length=1)]

_AFFINE = {"required": ["startup_ns", "ns_per_byte"], "properties": {"table": False}}
_TABLE = {
    "required": ["table"],
    "properties": {"startup_ns": False, "ns_per_byte": False},
}
_DEPTHS = {
    "required": ["depths"],
    "properties": {
        "depths": {"required": ["1"]},
        "startup_ns": False,
        "ns_per_byte": False,
        "table": False,
    },
}
_DEPTH_KEY = {"pattern": r"^([1-9]|[1-5][0-9]|6[0-4])$"}


class CostDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a transfer costs: a start-up and a time per byte, or a measured table."""

    startup_ns: Time | UnsetType = UNSET
    ns_per_byte: Rate | UnsetType = UNSET
    table: Rows | UnsetType = UNSET


Cost = Annotated[CostDocument, Meta(extra_json_schema={"oneOf": [_AFFINE, _TABLE]})]


class NetworkDocument(CostDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an all-reduce costs, at depth 1 and, if given, at others.

    The cost at depth 1 stands beside `depths` or in them.
    """

    depths: (
        Annotated[
            dict[str, Cost], Meta(min_length=1, extra_json_schema={"propertyNames": _DEPTH_KEY})
        ]
        | UnsetType
    ) = UNSET


Network = Annotated[NetworkDocument, Meta(extra_json_schema={"anyOf": [_AFFINE, _TABLE, _DEPTHS]})]


class StagesDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stages of Caramel's own method; each can be switched off."""

    serialization: bool = True
    batching: bool = True
    scheduling: bool = True


class CaramelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which order and in which groups to send gradients, and in which order to compute them."""

    problem: Literal["caramel"]
    ops: Annotated[tuple[OpDocument, ...], Meta(min_length=1)]
    parameters: Annotated[tuple[ParameterDocument, ...], Meta(min_length=1)]
    network: Network
    op_order: tuple[str, ...] | UnsetType = UNSET
    method: MethodName = "auto"
    time_limit_s: Seconds | UnsetType = UNSET
    stages: StagesDocument = StagesDocument()
    threshold_bytes: Size | UnsetType = UNSET
    element_bytes: PositiveSize = 1
    workers: Machines = 8
    servers: Machines | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=MAX_VALUE)] = 0

    def to_problem(self) -> Problem:
        """Return the typed problem."""
        return Problem(
            graph=graph_of(self.ops, self.parameters),
            cost=_network(self.network),
            op_order=_given(self.op_order),
            workers=self.workers,
            servers=_given(self.servers),
            seed=self.seed,
            threshold_bytes=_given(self.threshold_bytes),
            stages=Stages(**msgspec.structs.asdict(self.stages)),
            element_bytes=self.element_bytes,
        )


REQUEST_RULES: dict[str, Any] = {}
"""What the schema says of a request beside the fields' own types: nothing."""


def _given(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value


def _network(given: NetworkDocument) -> AffineCost | TableCost | DepthCost:
    if given.depths is UNSET:
        return _cost(given, "network")
    has_base = not (
        given.startup_ns is UNSET and given.ns_per_byte is UNSET and given.table is UNSET
    )
    by_depth: dict[int, AffineCost | TableCost] = {}
    if has_base:
        by_depth[1] = _cost(given, "network")
    for key, one in given.depths.items():
        path = f"network.depths.{key}"
        if not re.fullmatch(_DEPTH_KEY["pattern"], key):
            raise InvalidInputError(path, f"expected a depth from 1 to {MAX_DEPTH}")
        cost = _cost(one, path)
        if has_base and key == "1" and cost != by_depth[1]:
            raise InvalidInputError(path, "not the cost given beside depths: give it once")
        by_depth[int(key)] = cost
    if 1 not in by_depth:
        raise InvalidInputError(
            "network.depths.1", "missing: give the cost at depth 1 here or beside depths"
        )
    return DepthCost(tuple(sorted(by_depth.items(), key=lambda pair: pair[0])))


def _cost(given: CostDocument, path: str) -> AffineCost | TableCost:
    """Return one cost; what is wrong with it gets a path into the request."""
    if given.table is not UNSET:
        for name in ("startup_ns", "ns_per_byte"):
            if getattr(given, name) is not UNSET:
                raise InvalidInputError(f"{path}.{name}", "not together with table")
        try:
            return TableCost(given.table)
        except InvalidInputError as error:
            inner = error.path.replace("cost_table", "table", 1)
            raise InvalidInputError(f"{path}.{inner}", error.message) from None
    startup, rate = given.startup_ns, given.ns_per_byte
    if startup is UNSET:
        other = "; or give a table" if rate is UNSET else ""
        raise InvalidInputError(f"{path}.startup_ns", f"missing{other}")
    if rate is UNSET:
        raise InvalidInputError(f"{path}.ns_per_byte", "missing: it comes with startup_ns")
    try:
        return AffineCost(startup, rate)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}.{error.path}", error.message) from None


class GroupAnswer(Struct, frozen=True, kw_only=True):
    """One transfer; times count from the start of the backward pass.

    It is ready with its last gradient, and due when the forward pass would need it if that never
    waited.
    """

    parameters: Names
    bytes: PositiveSize
    depth: Annotated[int, Meta(ge=1)]
    ready_ns: Moment
    start_ns: Moment
    startup_end_ns: Moment
    end_ns: Moment
    due_ns: Moment
    part: (
        Annotated[
            dict[str, tuple[Size, Size]],
            Meta(description="[first byte, byte after the last] of parameters sent in parts"),
        ]
        | UnsetType
    ) = UNSET


class OpTimes(Struct, frozen=True, kw_only=True):
    """When one op runs."""

    op: str
    phase: Phase = field(name="pass")
    start_ns: Moment
    end_ns: Moment


class CaramelAnswer(Struct, frozen=True, kw_only=True):
    """The transfers, the op order, what an iteration lasts and the proof."""

    problem: Literal["caramel"] = "caramel"
    method: str
    status: Literal["optimal", "feasible", "time_limit"]
    objective_ns: Moment
    lower_bound_ns: Moment | None
    runtime_s: float
    op_order: Names
    order: Names
    control_edges: tuple[tuple[str, str], ...]
    threshold_bytes: Size | None
    groups: Annotated[tuple[GroupAnswer, ...], Meta(min_length=1)]
    iteration_ns: Moment
    backward_ns: Moment
    computation_ns: Moment
    communication_ns: Moment
    stall_ns: Moment
    rho: float | None
    overlap: float
    utilisation: float
    schedule: Annotated[tuple[OpTimes, ...], Meta(min_length=1)]
    workers: Machines | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=MAX_VALUE)] | UnsetType = UNSET


def run(request: CaramelRequest) -> CaramelAnswer:
    """Answer one request."""
    problem = request.to_problem()
    limit = _given(request.time_limit_s)
    return answer(problem, caramel.solve(problem, method=request.method, time_limit=limit))


def answer(problem: Problem, result: Result[Plan]) -> CaramelAnswer:
    """Return the JSON form of a result.

    Raises
    ------
    InvalidInputError
        If the plan takes more than 63 bits of nanoseconds.
    """
    plan = result.plan
    assert plan is not None
    assert result.objective_ns is not None
    graph = problem.graph
    evaluation = evaluate(problem, plan)
    total(
        max(evaluation.iteration_ns, evaluation.communication_ns),
        "network",
        f"all times of the plan of {result.method}",
    )
    enforced = _enforced(problem, plan, result.method)
    order = _parameter_order(problem, plan)
    threshold = threshold_of(problem)
    schedule = _schedule(problem, plan, evaluation)
    return CaramelAnswer(
        method=result.method,
        status=result.status.value,  # type: ignore[arg-type]
        objective_ns=result.objective_ns,
        lower_bound_ns=result.lower_bound_ns,
        runtime_s=result.runtime_s,
        op_order=tuple(row.op for row in schedule),
        order=tuple(graph.parameters[j].name for j in order),
        control_edges=_edges(problem, plan) if enforced else (),
        threshold_bytes=None if threshold is None or threshold > MAX_VALUE else threshold,
        groups=_groups(problem, plan, evaluation),
        iteration_ns=evaluation.iteration_ns,
        backward_ns=evaluation.iteration.backward[-1][1],
        computation_ns=evaluation.computation_ns,
        communication_ns=evaluation.communication_ns,
        stall_ns=evaluation.stall_ns,
        rho=evaluation.rho,
        overlap=evaluation.overlap,
        utilisation=evaluation.utilisation,
        schedule=schedule,
        workers=UNSET if enforced else problem.workers,
        seed=UNSET if enforced else problem.seed,
    )


def _enforced(problem: Problem, plan: Plan, method: str) -> bool:
    """Return whether all workers keep to one op order because they have to."""
    if problem.fixed_order:
        return True
    draws = method in RULES and not (method == "caramel" and problem.stages.serialization)
    return not draws and len(plan.backward_orders) == 1


def _parameter_order(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return the parameters as they become ready: in activation order if the plan enforces it."""
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
    """Whether the backward ops run by activation order, on all workers."""
    return not problem.fixed_order and plan.backward_orders == (problem.order.backward,)


def _edges(problem: Problem, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the control edges of the one op order a plan has."""
    graph = problem.graph
    if _by_activation(problem, plan):
        edges = control_edges(graph, problem.activation)
    else:
        edges = edges_of_order(graph, plan.backward_orders[0])
    return tuple((graph.ops[u].name, graph.ops[v].name) for u, v in edges)


def _schedule(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[OpTimes, ...]:
    """Return when each op runs, in the op order as given, or in time."""
    graph, iteration = problem.graph, evaluation.iteration
    indices = (*plan.backward_orders[0], *plan.forward_order)
    spans = dict(zip(indices, (*iteration.backward, *iteration.forward), strict=True))
    if problem.op_order is not None:
        indices = tuple(graph.position[name] for name in problem.op_order)
    return tuple(
        OpTimes(
            op=graph.ops[index].name,
            phase=graph.ops[index].phase,
            start_ns=spans[index][0],
            end_ns=spans[index][1],
        )
        for index in indices
    )


def _groups(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[GroupAnswer, ...]:
    parameters = problem.graph.parameters
    cost = problem.cost
    found = []
    for group, times in zip(plan.groups, evaluation.times, strict=True):
        own = cost.at_depth(group.depth) if isinstance(cost, DepthCost) else cost
        found.append(
            GroupAnswer(
                parameters=tuple(
                    dict.fromkeys(parameters[part.parameter].name for part in group.parts)
                ),
                bytes=group.size_bytes,
                depth=group.depth,
                ready_ns=times.ready_ns,
                start_ns=times.start_ns,
                startup_end_ns=min(times.start_ns + own.startup_ns, times.end_ns),
                end_ns=times.end_ns,
                due_ns=times.due_ns,
                part=_part(problem.graph, group),
            )
        )
    return tuple(found)


def _part(graph: Graph, group: Group) -> dict[str, tuple[int, int]] | UnsetType:
    cut: dict[str, tuple[int, int]] = {}
    for index, start, stop in group.parts:
        one = graph.parameters[index]
        if stop - start < one.size_bytes:
            first, last = cut.get(one.name, (start, stop))
            cut[one.name] = (min(first, start), max(last, stop))
    return cut or UNSET


def headline(answer: CaramelAnswer) -> str:
    """Return one line that says what a plan is and what it costs."""
    count = len(answer.groups)
    return (
        f"caramel · {answer.method} · {count} transfer{'s' if count > 1 else ''} · "
        f"iteration {format_ns(answer.iteration_ns)} · "
        f"stalls {format_ns(answer.stall_ns)} · {answer.status}"
    )


def timeline(answer: CaramelAnswer) -> Timeline:
    """Return the schedule in an answer.

    Raises
    ------
    InvalidInputError
        If its times or parts contradict each other, with the path of the first that does.
    """
    _check_ops(answer)
    _check_groups(answer)
    _check_numbers(answer)
    computation, network = "computation", "network"
    intervals = [
        Interval(computation, row.start_ns, row.end_ns, row.phase, -1, row.op)
        for row in answer.schedule
    ]
    windows = []
    for number, one in enumerate(answer.groups):
        label = f"transfer {number + 1}: {_content(one)}"
        spans: tuple[tuple[Kind, int, int], ...] = (
            ("startup", one.start_ns, one.startup_end_ns),
            ("transfer", one.startup_end_ns, one.end_ns),
        )
        intervals += [
            Interval(network, start, end, kind, number, label) for kind, start, end in spans
        ]
        windows.append(Window(number, one.ready_ns, one.start_ns, one.end_ns, one.due_ns, label))
    return Timeline(
        (computation, network),
        tuple(intervals),
        tuple(windows),
        (Mark(answer.backward_ns, "end of the backward pass"),),
    )


def _check_numbers(answer: CaramelAnswer) -> None:
    bound = answer.lower_bound_ns
    if answer.objective_ns != answer.iteration_ns:
        raise InvalidInputError("objective_ns", f"expected iteration_ns ({answer.iteration_ns})")
    if bound is not None and bound > answer.iteration_ns:
        raise InvalidInputError("lower_bound_ns", "more than iteration_ns")
    if (answer.status == "optimal") != (bound == answer.iteration_ns):
        raise InvalidInputError("status", f"{answer.status}, but lower_bound_ns is {shown(bound)}")
    for name in ("rho", "overlap", "utilisation"):
        value = getattr(answer, name)
        if value is not None and not isfinite(value):
            raise InvalidInputError(name, f"expected a number, got {shown(value)}")
    known, ops = set(answer.order), set(answer.op_order)
    for place, edge in enumerate(answer.control_edges):
        if not ops.issuperset(edge):
            raise InvalidInputError(f"control_edges[{place}]", "expected names in op_order")
    sent: set[str] = set()
    for number, one in enumerate(answer.groups):
        part = {} if one.part is UNSET else one.part
        for place, name in enumerate(one.parameters):
            path = f"groups[{number}].parameters[{place}]"
            if name not in known:
                raise InvalidInputError(path, f"expected a name in order, got {shown(name)}")
            if name in sent and name not in part:
                raise InvalidInputError(path, f"{shown(name)} is sent twice")
            sent.add(name)


def _content(group: GroupAnswer) -> str:
    """Return what a group carries, in a few words."""
    part = {} if group.part is UNSET else group.part
    names = [
        f"{name} [{part[name][0]}, {part[name][1]})" if name in part else name
        for name in group.parameters
    ]
    if len(names) > MAX_SHOWN_PARAMETERS:
        return f"{len(names)} parameters, {names[0]} … {names[-1]}"
    return ", ".join(names)


def _check_ops(answer: CaramelAnswer) -> None:
    if len(answer.schedule) != len(answer.op_order):
        raise InvalidInputError(
            "schedule",
            f"expected as many elements as op_order ({len(answer.op_order)}), "
            f"got {len(answer.schedule)}",
        )
    seen: set[str] = set()
    for place, (row, name) in enumerate(zip(answer.schedule, answer.op_order, strict=True)):
        path = f"schedule[{place}]"
        if row.op != name:
            raise InvalidInputError(f"{path}.op", f"expected {shown(name)}, as in op_order")
        if name in seen:
            raise InvalidInputError(f"op_order[{place}]", f"{shown(name)} given twice")
        seen.add(name)
        if row.end_ns < row.start_ns:
            raise InvalidInputError(f"{path}.end_ns", f"expected an integer >= {row.start_ns}")
        if row.phase == "backward" and row.end_ns > answer.backward_ns:
            raise InvalidInputError(f"{path}.end_ns", "after the end of the backward pass")
        if row.phase == "forward" and row.start_ns < answer.backward_ns:
            raise InvalidInputError(f"{path}.start_ns", "before the end of the backward pass")
    rows = sorted(enumerate(answer.schedule), key=lambda pair: (pair[1].start_ns, pair[1].end_ns))
    for (_, one), (place, other) in pairwise(rows):
        if other.start_ns < one.end_ns:
            raise InvalidInputError(
                f"schedule[{place}].start_ns", f"{shown(other.op)} overlaps {shown(one.op)}"
            )
    end = rows[-1][1].end_ns
    for name, value in (
        ("iteration_ns", answer.iteration_ns),
        ("objective_ns", answer.objective_ns),
    ):
        if value != end:
            raise InvalidInputError(
                name, f"expected {end}, the end of the last op, got {shown(value)}"
            )


def _check_groups(answer: CaramelAnswer) -> None:
    free = 0
    for number, one in enumerate(answer.groups):
        path = f"groups[{number}]"
        for name, value, least in (
            ("start_ns", one.start_ns, max(one.ready_ns, free)),
            ("startup_end_ns", one.startup_end_ns, one.start_ns),
            ("end_ns", one.end_ns, one.startup_end_ns),
        ):
            if value < least:
                raise InvalidInputError(
                    f"{path}.{name}", f"expected an integer >= {least}, got {value}"
                )
        if one.end_ns > answer.iteration_ns:
            raise InvalidInputError(f"{path}.end_ns", "after the end of the iteration")
        free = one.end_ns
        if len(set(one.parameters)) < len(one.parameters):
            raise InvalidInputError(f"{path}.parameters", "a parameter is given twice")
        for name, (first, stop) in ({} if one.part is UNSET else one.part).items():
            if name not in one.parameters:
                raise InvalidInputError(f"{path}.part.{name}", "no parameter of this group")
            if first >= stop:
                raise InvalidInputError(f"{path}.part.{name}", "expected a part, got none")
