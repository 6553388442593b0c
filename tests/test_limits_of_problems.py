"""Each limit that a family knows: below the least that is possible, at it, and above it."""

import json
from random import Random
from typing import Any

import pytest

import planner
from planner.families.iteration import transfers
from planner.solving.methods import without_auto
from tests import schemas
from tests.contract.test_every_method import FAMILIES
from tests.jsonio.requests import BASES, ITERATION, ROOT, Request, patched
from tests.jsonio.test_plan_files import DRIZZLE, FSDP, IBATCH, OVERLAP

GRAPH = json.loads((ROOT / "data" / "overlap" / "two-layers.json").read_text(encoding="utf-8"))
TABLE = {
    "problem": "ibatch",
    "layer_bytes": [100, 200, 300, 1],
    "compute_ns": [500, 600, 700, 10],
    "cost_table": [[0, 100], [600, 1000]],
}
HELD = [{"size_bytes": 8, "readers": [5]}, *OVERLAP["tensors"]]

UNITS = {"drizzle overhead": 1 / 1000, "overlap memory, shipped": 2**20}
"""What is counted of a limit, if not ones."""

LIMITS: dict[str, tuple[Request, str, int]] = {
    "ibatch cap": (IBATCH, "max_batch_bytes", 300),
    "ibatch cap, push": ({**IBATCH, "direction": "push"}, "max_batch_bytes", 300),
    "ibatch cap, table": (TABLE, "max_batch_bytes", 300),
    "yan memory": (BASES["small"], "memory_bytes", 1000),
    "drizzle overhead": ({**DRIZZLE, "constant_task_ns": 10}, "max_overhead", 999),
    "drizzle group": (DRIZZLE, "max_group_ns", 10**9),
    "fsdp memory": (FSDP, "memory_bytes", 10**4),
    "iteration memory": (
        {**ITERATION, "optimiser_ratio": 2, "element_bytes": 4},
        "cluster.memory_bytes",
        10**5,
    ),
    "iteration transfers": ({**ITERATION, "element_bytes": 4}, "max_transfer_bytes", 10**4),
    "overlap memory": ({**OVERLAP, "tensors": HELD}, "memory_limit_bytes", 100),
    "overlap memory, shipped": (GRAPH, "memory_limit_bytes", 300),
}
"""A request, where its limit stands, which is what binds, and a limit that binds nothing."""

SLOW = ("iteration", "overlap", "yan")
"""Families whose plans take long, again and again."""


def limited(name: str, limit: int) -> tuple[Request, str]:
    request, place, _ = LIMITS[name]
    value = limit * UNITS.get(name, 1)
    return patched(request, {place: value}), place.rpartition(".")[2]


def answer(name: str, limit: int, **more: Any) -> Request:
    """Return the answer: without a plan it names the limit, unless a method does not apply."""
    asked, binding = limited(name, limit)
    found = planner.solve({**asked, **more})
    if more and "error" in found:
        assert found["error"]["path"] in ("method", "modes", "algorithms"), found
        return found
    schemas.validate(found, asked["problem"], "answer")
    if found["status"] == "infeasible":
        assert binding in found["binding"], (more, limit, found)
        assert found["reason"]
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else [])
        for name in LIMITS
    ],
)
def test_below_the_least_it_is_infeasible_and_every_method_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "MAX_TRANSFERS", 40)  # thousands take seconds to plan
    request, _, ample = LIMITS[name]
    low, least = 0, ample  # infeasible, feasible
    while least - low > 1:
        middle = (low + least) // 2
        if answer(name, middle)["status"] == "infeasible":
            low = middle
        else:
            least = middle
    draw = Random(name)
    for limit in {1, low, draw.randint(1, low), draw.randint(1, low)} - {0}:
        if limit < least:
            assert answer(name, limit)["status"] == "infeasible"
    costs = [answer(name, limit)["objective_ns"] for limit in (least, least + 1, ample)]
    assert None not in costs
    if name != "drizzle overhead":  # whose group is the smaller, the more overhead it may have
        assert costs == sorted(costs, reverse=True)
    for method in without_auto(FAMILIES[request["problem"]].methods):
        for limit in {1, low or 1, least, draw.randint(1, ample)}:
            answer(name, limit, method=method, time_limit_s=2)
