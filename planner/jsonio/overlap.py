"""The JSON interface of the overlap problem: computation and collectives of a compiled graph."""

from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from msgspec.json import encode

from planner.families import overlap
from planner.families.overlap import search
from planner.families.overlap.robust import USUAL
from planner.jsonio.answer_base import WITH_PLAN, base_fields, check_base, check_priced
from planner.jsonio.control import method_names
from planner.jsonio.interfaces import Interface, of_result
from planner.jsonio.types import Index, Moment, Size, Time, as_dataclass, as_document
from planner.jsonio.what_if import OutlookField, WhatIfAnswer, WhatIfRequest
from planner.model.units import counted, format_bytes, format_ns, printable
from planner.model.validation import MAX_TOTAL, check_same
from planner.solving.result import Result
from planner.solving.scenarios import ScenarioSet
from planner.solving.timeline import Interval, Timeline

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(overlap.METHODS)})]
Total = Annotated[int, Meta(ge=0, le=MAX_TOTAL, description="bytes")]
Point = tuple[Size, Time]


class GraphNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One operation."""

    name: str
    after: tuple[Index, ...] = ()
    duration_ns: Time = 0


class GraphKind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The properties that collectives have in common if they can be merged."""

    name: str
    channel: str
    times: Annotated[tuple[Point, ...], Meta(min_length=1)]
    mergeable: bool = True


class GraphCollective(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One collective: a node that starts it, and one that waits for it."""

    start: Index
    wait: Index
    kind: Index
    size_bytes: Size
    pack_ns: Time = 0
    unpack_ns: Time = 0
    pack_bytes: Size = 0
    unpack_bytes: Size = 0
    input_tensor: Index | None = None


class GraphTensor(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Memory that nodes share."""

    size_bytes: Size
    producer: Index | None = None
    readers: tuple[Index, ...] = ()
    kept: bool = False


class OverlapRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank's graph, in an order that respects its dependences."""

    problem: Literal["overlap"]
    nodes: Annotated[tuple[GraphNode, ...], Meta(min_length=1)]
    kinds: tuple[GraphKind, ...] = ()
    collectives: tuple[GraphCollective, ...] = ()
    tensors: tuple[GraphTensor, ...] = ()
    memory_limit_bytes: Size | UnsetType = UNSET
    method: MethodName = "auto"
    outlook: OutlookField = UNSET

    def to_problem(self) -> overlap.Problem:
        """Return the typed problem."""
        return problem_of(self)

    def lacks_spreads(self, _problem: overlap.Problem, /) -> str:
        """Return nothing: every graph has scenarios."""
        return ""

    def usual_scenarios(self, percentile: Fraction | None, /) -> ScenarioSet:
        """Return the scenarios of a request that names none."""
        return replace(USUAL, percentile=percentile)

    def to_scenario_set(self, problem: overlap.Problem) -> ScenarioSet | None:
        """Return the scenarios to plan for.

        By default there are none if the search begins with a plan, and in large graphs without a
        time limit, for which one list schedule is made.
        """
        asked = (self.outlook, self.scenarios, self.percentile)
        hasty = self.time_limit_s is UNSET and len(self.nodes) > search.LARGE
        if all(each is UNSET for each in asked) and (hasty or self.start_plan is not UNSET):
            return None
        return super().to_scenario_set(problem)


class GraphTransfer(Struct, frozen=True, kw_only=True):
    """The times of a transfer on its channel, and the collectives it carries."""

    members: tuple[Index, ...]
    channel: str
    start_ns: Moment
    end_ns: Moment


class OverlapAnswer(WhatIfAnswer, frozen=True, kw_only=True):
    """The order in which the rank issues the nodes, the merged collectives, and the cost."""

    problem: Literal["overlap"] = "overlap"
    nodes: tuple[GraphNode, ...] = ()
    kinds: tuple[GraphKind, ...] = ()
    collectives: tuple[GraphCollective, ...] = ()
    tensors: tuple[GraphTensor, ...] = ()
    memory_limit_bytes: Size | UnsetType = UNSET
    order: tuple[Index, ...] = WITH_PLAN
    merged: tuple[tuple[Index, ...], ...] = WITH_PLAN
    computation_ns: Moment = WITH_PLAN
    exposed_ns: Moment = WITH_PLAN
    own_order_exposed_ns: Moment = WITH_PLAN
    peak_bytes: Total = WITH_PLAN
    transfers: tuple[GraphTransfer, ...] = WITH_PLAN

    def sentence(self) -> str:
        """Return one line about the plan."""
        assert self.objective_ns is not None
        return (
            f"The graph takes {format_ns(self.objective_ns)} with "
            f"{counted(len(self.transfers), 'transfer')}; "
            f"{format_ns(self.exposed_ns)} of it is not hidden, in the graph's own "
            f"order {format_ns(self.own_order_exposed_ns)}; it holds "
            f"{format_bytes(self.peak_bytes)}"
        )


def encode_request(problem: overlap.Problem) -> str:
    """Return the request for a problem as JSON text."""
    known = ("problem", *overlap.Problem.__dataclass_fields__)
    document = to_builtins(as_document(OverlapRequest, problem, problem="overlap"))
    return encode({name: document[name] for name in known if name in document}).decode()


def answer(
    problem: overlap.Problem, result: Result[overlap.Plan, overlap.Evaluation]
) -> OverlapAnswer:
    """Return the JSON form of a result."""
    known = base_fields(OverlapAnswer, result)
    if result.plan is None:
        return OverlapAnswer(**known)
    own = overlap.evaluate(problem, overlap.own_order(problem))
    return as_document(
        OverlapAnswer,
        problem,
        result.plan,
        result.evaluation,
        **known,
        own_order_exposed_ns=own.exposed_ns,
    )


def problem_of(rows: OverlapRequest | OverlapAnswer) -> overlap.Problem:
    """Return the typed problem of a request, or of an answer with a plan."""
    return as_dataclass(overlap.Problem, rows)


def timeline(answer: OverlapAnswer) -> Timeline:
    """Check an answer and return its schedule.

    Raises InvalidInputError if the plan does not fit its graph or has another cost than stated.
    """
    check_base(answer, "order")
    problem = problem_of(answer)
    plan = overlap.Plan(answer.order, answer.merged)
    cost = overlap.check(problem, plan)
    check_same(answer.objective_ns, cost.makespan_ns, "objective_ns")
    own = overlap.evaluate(problem, overlap.own_order(problem))
    priced = as_document(OverlapAnswer, problem, cost, answer, own_order_exposed_ns=own.exposed_ns)
    check_priced(answer, priced)
    return timeline_of(problem, plan, cost)


def timeline_of(problem: overlap.Problem, plan: overlap.Plan, cost: overlap.Evaluation) -> Timeline:
    """Return the timeline of a plan: stretches of computation, and the transfers."""
    spans: list[tuple[int, int, str]] = []
    for node in plan.order:
        begin, end = cost.begins_ns[node], cost.ends_ns[node]
        if begin == end:
            continue
        if spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end, spans[-1][2])
        else:
            spans.append((begin, end, problem.nodes[node].name))
    rows = [Interval("computation", *span[:2], "computation", -1, span[2]) for span in spans]
    for number, it in enumerate(cost.transfers):
        first = problem.collectives[it.members[0]]
        more = f" and {len(it.members) - 1} more" if len(it.members) > 1 else ""
        label = f"{problem.nodes[first.start].name}{more}"
        rows.append(
            Interval(_lane(it.channel), it.start_ns, it.end_ns, "collective", number, label)
        )
    return Timeline(("computation", *map(_lane, problem.channels)), tuple(rows))


def _lane(channel: str) -> str:
    return f"group {printable(channel)}"


INTERFACE = Interface(
    family=overlap.OVERLAP,
    request=OverlapRequest,
    answer=OverlapAnswer,
    to_answer=of_result(answer),
    view=timeline,
)
