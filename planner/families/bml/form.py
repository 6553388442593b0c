"""Checks that the servers, levels, pieces and shares that a plan names exist in the network.

The rest of the checker, and pricing, rely on it. Complexity: O(plan). Source: own.
"""

from itertools import pairwise
from typing import Any

from planner.families.bml.schedule import FULL_WEIGHT, Schedule
from planner.families.bml.trees import TreePlan
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from planner.model.validation import shown


def check_form(bcube: BCube, plan: Any) -> None:
    """Raise InvalidPlanError at the first field that does not fit the network."""
    if plan.bcube != bcube:
        raise InvalidPlanError("bcube", f"expected {bcube}, got {plan.bcube}")
    if isinstance(plan, TreePlan):
        _within(plan.rounds, 1, None, "rounds")
        _check_trees(plan)
    elif isinstance(plan, Schedule):
        _within(plan.rounds, 1, None, "rounds")
        _check_schedule(plan)


def _within(value: Any, least: int, end: int | None, path: str) -> None:
    """Raise an error unless `value` is an integer from `least` to `end` - 1 (None: no limit)."""
    if type(value) is not int or value < least or (end is not None and value >= end):
        span = f"an integer >= {least}" if end is None else f"{least} to {end - 1}"
        raise InvalidPlanError(path, f"expected {span}, got {shown(value)}")


def _check_trees(plan: TreePlan) -> None:
    servers, levels = plan.bcube.servers, plan.bcube.k
    if not plan.trees or len(plan.shares) != len(plan.trees):
        raise InvalidPlanError(
            "shares", f"expected one a tree, of {len(plan.trees)}, got {len(plan.shares)}"
        )
    if min(plan.shares) < 0 or sum(plan.shares) != 1:
        raise InvalidPlanError("shares", "expected numbers >= 0 that add up to 1")
    for piece, tree in enumerate(plan.trees):
        _within(tree.root, 0, servers, f"trees[{piece}].root")
        for place, branch in enumerate(tree.branches):
            path = f"trees[{piece}].branches[{place}]"
            _within(branch.step, 0, servers, f"{path}.step")
            _within(branch.sender, 0, servers, f"{path}.sender")
            _within(branch.receiver, 0, servers, f"{path}.receiver")
            _within(branch.level, 0, levels, f"{path}.level")


def _check_schedule(plan: Schedule) -> None:
    servers, levels = plan.bcube.servers, plan.bcube.k
    count = plan.threads * plan.pieces
    for server in plan.dead:
        _within(server, 0, servers, "dead")
    for place, piece in enumerate(plan.left_out):
        _within(piece, plan.left_out[place - 1] + 1 if place else 0, count, f"left_out[{place}]")
    _within(plan.light_weight, 0, FULL_WEIGHT + 1, "light_weight")
    for place, (start, stop) in enumerate(plan.light):
        _within(start, 0, count, f"light[{place}][0]")
        _within(stop, start + 1, count + 1, f"light[{place}][1]")
    for place, ((_, stop), (start, _)) in enumerate(pairwise(plan.light), 1):
        _within(start, stop, count, f"light[{place}][0]")
    if (plan.light or plan.left_out) and not plan.total_weight:
        raise InvalidPlanError("left_out", "no piece is left that carries anything")
    for place, detour in enumerate(plan.detours):
        path = f"detours[{place}]"
        _within(detour.thread, 0, levels, f"{path}.thread")
        _within(detour.step, 0, levels, f"{path}.step")
        _within(detour.sender, 0, servers, f"{path}.sender")
        _within(detour.receiver, 0, servers, f"{path}.receiver")
        for number, part in enumerate(detour.parts):
            inner = f"{path}.parts[{number}]"
            _within(part.level, 0, levels, f"{inner}.level")
            _within(part.via, 0, servers, f"{inner}.via")
            _within(part.offset, 0, servers, f"{inner}.offset")
            _within(part.length, 1, servers - part.offset + 1, f"{inner}.length")
