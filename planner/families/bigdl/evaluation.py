"""Cost and checks of a plan: sequential phases, each as long as its busiest NIC and machine.

Plans of synchronisation are priced and checked here only, whatever made them. Phase times are
exact fractions. The end of each phase is rounded up once. Updating weights takes no time. The
formulas are derived in docs/bigdl.md, "Why phases cost what they do".

Complexity: O(1) for an exchange, O(levels) for a driver.
Source: Venkataraman, Ding and Ermolin, section "Communications in BigDL"; Apache Spark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from planner.families.bigdl.problem import Driver, Exchange, Plan, Problem, largest_slice
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.validation import MAX_TOTAL, shown


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a plan.

    Attributes
    ----------
    name : str
        ``local_sum``, ``aggregate`` and ``gather`` of an exchange; of a driver ``combine`` (one for
        each level of the tree), ``collect``, then ``broadcast``, or ``scatter`` and ``gather``.
    sent_bytes : int
        Bytes that the busiest NIC sends or receives, summed over turns.
    added_bytes : int
        Bytes that the busiest machine adds.
    """

    name: str
    sent_bytes: int
    added_bytes: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost of a plan.

    Attributes
    ----------
    phases : tuple of Phase
        In the order in which they run.
    ends_ns : tuple of int
        The end of each phase.
    times_full_transfer : Fraction
        The unrounded total time, divided by the time of one gradient over one link.
    driver_bytes, driver_added_bytes : int
        Bytes that the driver receives and sends together, and bytes that it adds; 0 without a
        driver.
    """

    phases: tuple[Phase, ...]
    ends_ns: tuple[int, ...]
    times_full_transfer: Fraction
    driver_bytes: int
    driver_added_bytes: int

    @property
    def objective_ns(self) -> int:
        """End of the last phase."""
        return self.ends_ns[-1]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan.

    Raises
    ------
    NotApplicableError
        If the time, or the bytes of a phase or of the driver, do not fit in 63 bits.
    """
    network, size = problem.network, problem.gradient_bytes
    passing, added = 0, 0
    if isinstance(plan, Exchange):
        phases = _exchange(problem, plan)
    else:
        phases = _driver(problem, plan)
        copies = 1 if plan.torrent else problem.nodes
        passing, added = (plan.levels[-1] + copies) * size, (plan.levels[-1] - 1) * size
    _fits(passing, "the bytes that pass the driver")
    moved = max(max(phase.sent_bytes, phase.added_bytes) for phase in phases)
    _fits(moved, "the bytes of a phase")
    ends = list(
        accumulate(
            network.time(phase.sent_bytes, phase.added_bytes, phase.sent_bytes > 0)
            for phase in phases
        )
    )
    _fits(-int(-ends[-1] // 1), "the time of a synchronisation")
    return Evaluation(
        phases,
        tuple(-int(-end // 1) for end in ends),
        ends[-1] / network.time(size),
        passing,
        added,
    )


def _fits(amount: int, what: str) -> None:
    if amount > MAX_TOTAL:
        raise NotApplicableError("elements", f"{what} must fit in 63 bits, got {shown(amount)}")


def _exchange(problem: Problem, plan: Exchange) -> tuple[Phase, ...]:
    size, others = problem.gradient_bytes, problem.nodes - 1
    pulled = others * largest_slice(problem.elements, problem.nodes) * problem.element_bytes
    sent = pulled if plan.order == "rotated" else others * size
    return (
        Phase("local_sum", 0, (problem.partitions_per_node - 1) * size),
        Phase("aggregate", sent, pulled),
        Phase("gather", sent, 0),
    )


def _driver(problem: Problem, plan: Driver) -> tuple[Phase, ...]:
    size, nodes = problem.gradient_bytes, problem.nodes
    phases = []
    for before, after in pairwise(plan.levels):
        each, more = divmod(before, after)
        received = (each - 1) * -(-after // nodes) + -(-more // nodes)
        phases.append(Phase("combine", received * size, received * size))
    collected = plan.levels[-1]
    phases.append(Phase("collect", collected * size, (collected - 1) * size))
    if plan.torrent:
        passed = (nodes - 1) * largest_slice(problem.elements, nodes) * problem.element_bytes
        phases += [Phase("scatter", size, 0), Phase("gather", passed, 0)]
    else:
        phases.append(Phase("broadcast", nodes * size, 0))
    return tuple(phases)


# ---
# Lower bound on the time of any synchronisation algorithm over the nodes' NICs.
#
# Problem: N > 1 nodes have P gradients of E elements each, and every node needs the sum. A step
# costs a start-up, the bytes of the busiest NIC and the additions of the busiest machine.
#
# Guarantee: no plan is faster. The rotated exchange meets the bound where N divides E and a
# start-up costs at most the extra cost of sending everything in one step; so always if start-ups
# are free. Proof: docs/bigdl.md, "Why the bound holds". Complexity: O(1). Source: own; the counting
# argument for all-reduce.


def lower_bound_ns(problem: Problem) -> int:
    """Return the lower bound (ns) on the time of any synchronisation."""
    nodes, each, size = problem.nodes, problem.partitions_per_node, problem.gradient_bytes
    network = problem.network
    if nodes == 1:
        best = network.time(0, (each - 1) * size)
    else:
        sent = -(-2 * (nodes - 1) * problem.elements // nodes) * problem.element_bytes
        added = -(-(nodes * each - 1) * problem.elements // nodes) * problem.element_bytes
        at_once = network.time((nodes - 1) * size, (each + nodes - 2) * size, 1)
        best = min(at_once, network.time(sent, added, 2))
    return -int(-best // 1)


# ---
# Number of pulls that reach each node in each turn; more than one is a hot spot that shares a NIC.
#
# Complexity: O(turns·N) for a window of turns and nodes. Source: own; "rotated" is the usual way to
# spread a total exchange over turns.


def pulls_at_once(
    plan: Exchange, turns: int | None = None, nodes: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return one row per turn with the number of pulls from other nodes at each node.

    A node with an empty slice pulls nothing.

    Parameters
    ----------
    plan : Exchange
        The exchange.
    turns, nodes : int, optional
        How many turns and nodes to count, from the first on; all by default.
    """
    pulling = range(min(plan.nodes, plan.elements))  # the others' slices are empty
    shown = plan.nodes if nodes is None else min(nodes, plan.nodes)
    rows = []
    for turn in range(plan.nodes if turns is None else min(turns, plan.nodes)):
        counts = [0] * shown
        for node in pulling:
            server = plan.asked(node, turn)
            if server != node and server < shown:
                counts[server] += 1
        rows.append(tuple(counts))
    return tuple(rows)


# ---
# Checks that a plan synchronises: each gradient counted once, each slice everywhere, no hot spot.
#
# Node i adds up slice i of each pull. If the slices cover every element once and each node pulls
# from every node once, then each gradient is counted once and each node gets every slice. In a
# rotation no two nodes may pull from the same node in one turn.
#
# All slices are checked. All pulls are checked up to `COMPLETE_NODES` nodes; beyond, all turns of a
# few nodes and all nodes in a few turns. Lists are checked completely (`check_pulls`). Complexity:
# O(N) for a plan, O(N²) for lists. Source: own.

COMPLETE_NODES = 128
"""Largest number of nodes for which every pull of a plan is checked."""


def check(problem: Problem, plan: Plan) -> None:
    """Raise an error unless `plan` is a valid plan of `problem`.

    Raises
    ------
    InvalidPlanError
        With a path to the first part that breaks a rule.
    """
    if isinstance(plan, Driver):
        check_levels(plan.levels, problem.tasks)
        return
    if not isinstance(plan, Exchange):
        raise InvalidPlanError("", f"expected an Exchange or a Driver, got {shown(plan)}")
    for name in ("elements", "nodes"):
        actual, expected = getattr(plan, name), getattr(problem, name)
        if type(actual) is not int or actual != expected:
            raise InvalidPlanError(name, f"expected {expected}, got {shown(actual)}")
    if plan.order not in ("rotated", "same"):
        raise InvalidPlanError("order", f"expected rotated or same, got {shown(plan.order)}")
    nodes = plan.nodes
    check_slices(map(plan.slice, range(nodes)), plan.elements)
    few = range(nodes) if nodes <= COMPLETE_NODES else (0, 1, nodes // 2, nodes - 1)
    for index in few:
        _check_row((plan.asked(index, turn) for turn in range(nodes)), nodes, index)
        if plan.order == "rotated":
            _check_turn((plan.asked(node, index) for node in range(nodes)), index)


def check_pulls(
    elements: int,
    slices: Sequence[tuple[int, int]],
    pull_order: Sequence[Sequence[int]],
    *,
    spread: bool = True,
) -> None:
    """Raise an error unless lists of slices and pulls form a valid exchange.

    Parameters
    ----------
    elements : int
        Elements of the gradient.
    slices : sequence of (int, int), shape (N,)
        The elements ``start … stop - 1`` that each node adds up.
    pull_order : sequence of sequences of int, shape (N, N)
        For each node the nodes it pulls from, in order.
    spread : bool
        Whether two nodes must never pull from the same node in one turn.

    Raises
    ------
    InvalidPlanError
        With a path to the first part that breaks a rule.
    """
    nodes = len(_array(slices, "slices"))
    if not nodes:
        raise InvalidPlanError("slices", "expected at least one slice")
    if len(_array(pull_order, "pull_order")) != nodes:
        raise InvalidPlanError(
            "pull_order", f"expected as many elements as slices ({nodes}), got {len(pull_order)}"
        )
    for index, bounds in enumerate(slices):
        path = f"slices[{index}]"
        if [type(bound) for bound in _array(bounds, path)] != [int, int]:
            raise InvalidPlanError(path, f"expected two integers, got {shown(bounds)}")
    check_slices(slices, elements)
    for node, row in enumerate(pull_order):
        _check_row(_array(row, f"pull_order[{node}]"), nodes, node)
    if spread:
        for turn, asked in enumerate(zip(*pull_order, strict=True)):
            _check_turn(asked, turn)


def _array(value: Any, path: str) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidPlanError(path, f"expected an array, got {shown(value)}")
    return value


def check_slices(slices: Iterable[tuple[int, int]], elements: int) -> None:
    """Raise InvalidPlanError unless slices cover every element once, in order."""
    end = 0
    for index, (start, stop) in enumerate(slices):
        if start != end or stop < start:
            raise InvalidPlanError(
                f"slices[{index}]", f"expected elements from {end} on, got [{start}, {stop}]"
            )
        end = stop
    if end != elements:
        raise InvalidPlanError("slices", f"expected {elements} elements in all, got {end}")


def _check_row(row: Iterable[int], nodes: int, node: int) -> None:
    pulled = list(row)
    if not {*map(type, pulled)} <= {int} or sorted(pulled) != list(range(nodes)):
        raise InvalidPlanError(f"pull_order[{node}]", f"expected each of {nodes} nodes once")


def _check_turn(asked: Iterable[int], turn: int) -> None:
    servers = list(asked)
    if len(set(servers)) == len(servers):
        return
    first: dict[int, int] = {}
    for node, server in enumerate(servers):
        if server in first:
            raise InvalidPlanError(
                f"pull_order[{node}][{turn}]",
                f"asks node {server} together with node {first[server]}",
            )
        first[server] = node


def check_levels(levels: Sequence[int], tasks: int) -> None:
    """Raise InvalidPlanError unless levels begin with `tasks` partial sums and shrink."""
    if not _array(levels, "levels") or type(levels[0]) is not int or levels[0] != tasks:
        raise InvalidPlanError("levels", f"expected {tasks} gradients first, got {shown(levels)}")
    for place, (before, after) in enumerate(pairwise(levels), start=1):
        if type(after) is not int or not 1 <= after < before:
            raise InvalidPlanError(
                f"levels[{place}]",
                f"expected an integer from 1 to {before - 1}, got {shown(after)}",
            )
