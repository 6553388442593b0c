"""The JSON interface of BigDL's shuffle all-reduce and of aggregation through a driver."""

from contextlib import suppress
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families import bigdl
from planner.families.bigdl.problem import MAX_PARTITIONS
from planner.jsonio.answer_base import WITH_PLAN, AnswerBase, base_fields, check_base
from planner.jsonio.control import Controlled, method_names
from planner.jsonio.interfaces import Interface, of_result
from planner.jsonio.links import links_of, nics_of
from planner.jsonio.network import Described, NetworkDocument
from planner.jsonio.transfers import check_order, check_serial, placed
from planner.jsonio.types import (
    Count,
    Moment,
    PositiveRate,
    PositiveSize,
    Rate,
    Time,
    as_dataclass,
    as_document,
)
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.units import counted, format_ns
from planner.model.validation import MAX_TOTAL, MAX_VALUE, check_count, check_same, total
from planner.solving.deadline import NEVER
from planner.solving.methods import REPLAN, without_auto
from planner.solving.result import Result
from planner.solving.views import Ranking

MAX_NODES = 4096
"""Largest number of nodes in a request. The typed interface accepts more."""

MAX_LISTED = 1024
"""Largest number of nodes N of an exchange: an answer lists all N² pulls, a million numbers."""

MethodName = Annotated[str, Meta(extra_json_schema={"enum": method_names(bigdl.METHODS)})]
Nodes = Annotated[int, Meta(ge=1, le=MAX_NODES)]
Node = Annotated[int, Meta(ge=0, lt=MAX_NODES)]
Elements = Annotated[int, Meta(ge=1, le=MAX_VALUE)]
Partitions = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
Total = Annotated[int, Meta(ge=0, le=MAX_TOTAL, description="bytes")]
Element = Annotated[int, Meta(ge=0, le=MAX_VALUE)]
Ratio = Annotated[float, Meta(ge=0)]
PhaseName = Literal[
    "local_sum", "aggregate", "gather", "combine", "collect", "broadcast", "scatter"
]


class BigdlRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gradient to synchronise, the number of nodes, and their network."""

    problem: Literal["bigdl"]
    elements: Elements
    element_bytes: PositiveSize
    nodes: Nodes
    partitions_per_node: Partitions
    link_bytes_per_s: PositiveRate | UnsetType = UNSET
    latency_ns: Time | UnsetType = UNSET
    network: NetworkDocument | UnsetType = UNSET
    reduce_ns_per_byte: Rate | UnsetType = UNSET
    method: MethodName = "auto"

    def to_problem(self) -> bigdl.Problem:
        """Return the typed problem."""
        return as_dataclass(bigdl.Problem, self, network=links_of(self, 1))

    def resolved_network(self) -> Described | None:
        """Return the network, its tables resolved to links; None without."""
        return nics_of(self.network, self.nodes)


class PhaseAnswer(Struct, frozen=True, kw_only=True):
    """One phase: its times, the bytes its busiest NIC moves, the bytes its busiest machine adds."""

    name: PhaseName
    start_ns: Moment
    end_ns: Moment
    sent_bytes: Total
    added_bytes: Total


class MethodCost(Struct, frozen=True, kw_only=True):
    """The cost of one method."""

    time_ns: Moment
    times_full_transfer: Ratio
    driver_bytes: Total
    driver_added_bytes: Total


class BigdlAnswer(AnswerBase, frozen=True, kw_only=True):
    """The slices and the order of each node's pulls, or the levels of a tree; and the costs.

    There is no plan if the start plan that `replan` was given does not fit.
    """

    problem: Literal["bigdl"] = "bigdl"
    elements: Elements
    element_bytes: PositiveSize
    nodes: Nodes
    partitions_per_node: Partitions
    gradient_bytes: Total
    full_transfer_ns: Moment
    times_full_transfer: Ratio = WITH_PLAN
    phases: Annotated[tuple[PhaseAnswer, ...], Meta(min_length=1)] = WITH_PLAN
    comparison: dict[str, MethodCost]
    slices: tuple[tuple[Element, Element], ...] | UnsetType = UNSET
    pull_order: tuple[tuple[Node, ...], ...] | UnsetType = UNSET
    levels: tuple[Count, ...] | UnsetType = UNSET

    def sentence(self) -> str:
        """Return one line about the plan."""
        assert self.objective_ns is not None
        return (
            f"A synchronisation of {counted(self.nodes, 'node')} takes "
            f"{format_ns(self.objective_ns)}, "
            f"{self.times_full_transfer:.4g} times as long as sending the gradient once"
        )


def answer(problem: bigdl.Problem, result: Result[bigdl.Plan, bigdl.Evaluation]) -> BigdlAnswer:
    """Return the JSON form of a result.

    Raises InvalidInputError if there are too many nodes to list, or T_F exceeds 63 bits.
    """
    plan, cost = result.plan, result.evaluation
    if isinstance(plan, bigdl.Exchange) and plan.nodes > MAX_LISTED:
        what = f"expected at most {MAX_LISTED}, as every pull is listed, got {plan.nodes}"
        raise InvalidInputError("nodes", what)
    full_transfer = problem.network.full_transfer_ns(problem.gradient_bytes)
    known = {
        **base_fields(BigdlAnswer, result),
        "full_transfer_ns": total(full_transfer, "elements", "the time of a full transfer"),
        "comparison": _comparison(problem),
    }
    if cost is not None:
        starts = (0, *cost.ends_ns)
        known["phases"] = tuple(
            as_document(PhaseAnswer, phase, start_ns=start, end_ns=end)
            for phase, start, end in zip(cost.phases, starts, cost.ends_ns, strict=False)
        )
    if isinstance(plan, bigdl.Driver):
        known["levels"] = plan.levels
    elif plan is not None:
        nodes = range(plan.nodes)
        known["slices"] = tuple(map(plan.slice, nodes))
        known["pull_order"] = tuple(map(plan.pull_order, nodes))
    return as_document(BigdlAnswer, problem, cost, **known)


def _comparison(problem: bigdl.Problem) -> dict[str, MethodCost]:
    """Return the cost of every method whose cost fits in 63 bits, the chosen method included."""
    rows = {}
    for name in without_auto(bigdl.METHODS):
        plan = bigdl.METHODS[name](problem, NEVER).plan
        assert plan is not None
        with suppress(NotApplicableError):
            cost = bigdl.evaluate(problem, plan)
            rows[name] = as_document(MethodCost, cost, time_ns=cost.objective_ns)
    return rows


def ranking(answer: BigdlAnswer) -> Ranking:
    """Check an answer and return the data of its picture.

    Raises InvalidInputError, with a path, if there is no plan or the parts contradict each other.
    """
    check_base(answer, "phases")
    check_same(answer.gradient_bytes, answer.elements * answer.element_bytes, "gradient_bytes")
    phases = placed("phases", answer.phases)
    check_order(phases, "start_ns", "end_ns")
    check_serial(phases)
    check_same(answer.objective_ns, answer.phases[-1].end_ns, "objective_ns")
    times = {name: row.time_ns for name, row in answer.comparison.items()}
    if answer.method != REPLAN:
        check_same(times.get(answer.method), answer.objective_ns, f"comparison.{answer.method}")
    rows = answer.pull_order
    if rows is UNSET:
        if answer.levels is UNSET:
            raise InvalidInputError("pull_order", "missing (or levels of a driver)")
        bigdl.check_levels(answer.levels, answer.nodes * answer.partitions_per_node)
    else:
        if answer.slices is UNSET:
            raise InvalidInputError("slices", "missing: they come with the order of pulls")
        check_count(answer.slices, answer.nodes, "slices", "nodes")
        rotated = answer.method != "same_order"
        bigdl.check_pulls(answer.elements, answer.slices, rows, spread=rotated)
    return Ranking(answer.method, tuple(times.items()))


INTERFACE = Interface(
    family=bigdl.BIGDL,
    request=BigdlRequest,
    answer=BigdlAnswer,
    to_answer=of_result(answer),
    view=ranking,
)
