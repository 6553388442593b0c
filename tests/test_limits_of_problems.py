"""Each limit that a family knows: below the least that is possible, at it, and above it."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

import planner
from planner.families.iteration import transfers
from planner.solving.methods import without_auto
from tests import schemas
from tests.contract.test_every_method import FAMILIES
from tests.jsonio.requests import ITERATION
from tests.jsonio.test_plan_files import DRIZZLE, FSDP, IBATCH, OVERLAP
from tests.jsonio.test_yan import SMALL as YAN

Request = dict[str, Any]

DATA = Path(__file__).parents[1] / "data"
GRAPH = json.loads((DATA / "overlap" / "two-layers.json").read_text(encoding="utf-8"))


def at(path: str) -> Callable[[Request, Any], Request]:
    """What puts a limit into a request."""

    def put(request: Request, value: Any) -> Request:
        asked = deepcopy(request)
        *outer, last = path.split(".")
        place = asked
        for name in outer:
            place = place[name]
        place[last] = value
        return asked

    return put


def per_mille(request: Request, value: int) -> Request:
    return {**request, "max_overhead": value / 1000}


MEMORY = at("cluster.memory_bytes")
LIMITS: dict[str, tuple[Request, Callable[[Request, Any], Request], str, int]] = {
    "ibatch cap": (IBATCH, at("max_batch_bytes"), "max_batch_bytes", 300),
    "ibatch cap, push": (
        {**IBATCH, "direction": "push"},
        at("max_batch_bytes"),
        "max_batch_bytes",
        300,
    ),
    "ibatch cap, table": (
        {
            "problem": "ibatch",
            "layer_bytes": [100, 200, 300, 1],
            "compute_ns": [500, 600, 700, 10],
            "cost_table": [[0, 100], [600, 1000]],
        },
        at("max_batch_bytes"),
        "max_batch_bytes",
        300,
    ),
    "yan memory": (YAN, at("memory_bytes"), "memory_bytes", 10**12),
    "drizzle overhead": ({**DRIZZLE, "constant_task_ns": 10}, per_mille, "max_overhead", 999),
    "drizzle group": (DRIZZLE, at("max_group_ns"), "max_group_ns", 10**9),
    "fsdp memory": (FSDP, at("memory_bytes"), "memory_bytes", 10**6),
    "iteration memory": (
        {**ITERATION, "optimiser_ratio": 2, "element_bytes": 4},
        MEMORY,
        "memory_bytes",
        10**9,
    ),
    "iteration transfers": (
        {**ITERATION, "element_bytes": 4},
        at("max_transfer_bytes"),
        "max_transfer_bytes",
        10**6,
    ),
    "overlap memory": (
        {**OVERLAP, "tensors": [{"size_bytes": 8, "readers": [5]}, *OVERLAP["tensors"]]},
        at("memory_limit_bytes"),
        "memory_limit_bytes",
        10**6,
    ),
    "overlap memory, shipped": (GRAPH, at("memory_limit_bytes"), "memory_limit_bytes", 3 * 10**8),
}
"""A request, where its limit stands, what binds, and a limit that binds nothing."""


def answer(request: Request, **more: Any) -> Request:
    found = planner.solve({**request, **more})
    assert "error" not in found, found
    schemas.validate(found, request["problem"], "answer")
    return found


SLOW = ("iteration transfers", "iteration memory", "overlap memory, shipped", "yan memory")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in LIMITS],
)
def test_below_the_least_it_is_infeasible_and_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "MAX_TRANSFERS", 40)  # thousands take seconds to plan
    request, put, binding, ample = LIMITS[name]
    low, least = 0, ample  # infeasible, feasible
    while least - low > 1:
        middle = (low + least) // 2
        if answer(put(request, middle))["status"] == "infeasible":
            low = middle
        else:
            least = middle
    draw = Random(name)
    for limit in {1, low, draw.randint(1, low), draw.randint(1, low)} - {0}:
        if limit < least:
            found = answer(put(request, limit))
            assert found["status"] == "infeasible"
            assert binding in found["binding"]
            assert found["reason"]
    costs = [answer(put(request, limit))["objective_ns"] for limit in (least, least + 1, ample)]
    assert None not in costs
    if name != "drizzle overhead":  # whose group is the smaller, the more overhead it may have
        assert costs == sorted(costs, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_no_method_takes_a_limit_for_another(name: str) -> None:
    request, put, binding, ample = LIMITS[name]
    family = request["problem"]
    draw = Random(name)
    for method in without_auto(FAMILIES[family].methods):
        for limit in (1, draw.randint(1, ample), draw.randint(1, min(5000, ample)), ample):
            found = planner.solve({**put(request, limit), "method": method, "time_limit_s": 2})
            if "error" in found:
                assert found["error"]["path"] in ("method", "modes", "algorithms"), found
                continue
            schemas.validate(found, family, "answer")
            if found["status"] == "infeasible":
                assert binding in found["binding"], (method, limit, found)
