"""Checks that a plan synchronises: each gradient counted once, each slice everywhere, no hot spot.

Node i adds up slice i of each pull. If the slices cover every element once and each node pulls from
every node once, then each gradient is counted once and each node gets every slice. In a rotation no
two nodes may pull from the same node in one turn.

All slices are checked. All pulls are checked up to `COMPLETE_NODES` nodes; beyond, all turns of a
few nodes and all nodes in a few turns. Lists are checked completely (`check_pulls`).

Complexity: O(N) for a plan, O(N²) for lists. Source: own.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from planner.families.bigdl.problem import Driver, Exchange, Plan, Problem
from planner.model.errors import InvalidPlanError
from planner.model.validation import shown

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


def check_starts(starts: Sequence[int], nodes: int, *, spread: bool = True) -> None:
    """Raise InvalidPlanError unless rotations, each given by its first node, form an exchange.

    Rotations with different first nodes never pull from the same node in one turn.
    """
    if len(starts) != nodes:
        raise InvalidPlanError(
            "pull_start", f"expected as many elements as nodes ({nodes}), got {len(starts)}"
        )
    taken: dict[int, int] = {}
    for node, start in enumerate(starts):
        if not 0 <= start < nodes:
            raise InvalidPlanError(
                f"pull_start[{node}]", f"expected a node from 0 to {nodes - 1}, got {start}"
            )
        if spread and taken.setdefault(start, node) != node:
            raise InvalidPlanError(
                f"pull_start[{node}]", f"asks node {start} together with node {taken[start]}"
            )


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
    """Raise InvalidPlanError unless the numbers of partial sums fall, starting at `tasks`."""
    if not _array(levels, "levels") or type(levels[0]) is not int or levels[0] != tasks:
        raise InvalidPlanError("levels", f"expected {tasks} gradients first, got {shown(levels)}")
    for place, (before, after) in enumerate(pairwise(levels), start=1):
        if type(after) is not int or not 1 <= after < before:
            raise InvalidPlanError(
                f"levels[{place}]",
                f"expected an integer from 1 to {before - 1}, got {shown(after)}",
            )
