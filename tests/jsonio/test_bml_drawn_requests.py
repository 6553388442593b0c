"""Requests of gradient synchronisation drawn at random, and answered again in other processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bml import ideal_ns, solve
from planner.families.collectives import compare
from tests.jsonio.bml_execution import execute
from tests.jsonio.bml_requests import CUT, changed
from tests.jsonio.test_bml import drawn_names, typed, validate
from tests.jsonio.test_service import ask


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    n, k = draw(st.sampled_from([(2, 1), (3, 1), (2, 2), (3, 2), (2, 3)]))
    server = st.lists(st.integers(0, n - 1), min_size=k, max_size=k)
    level = st.integers(0, k - 1)
    digits = st.lists(st.integers(0, n - 1), min_size=k - 1, max_size=k - 1)
    element = draw(st.integers(1, 3))
    sizes = st.integers(0, 30).map(lambda size: size * element)
    request: dict[str, Any] = {"problem": "bml", "n": n, "k": k, "element_bytes": element}
    if draw(st.booleans()):
        request["layer_bytes"] = draw(st.lists(sizes, min_size=1, max_size=3))
    else:
        request["gradient_bytes"] = draw(sizes)
    request["link_bytes_per_s"] = draw(st.sampled_from([1, 1e9, 0.3, 1.25e9]))
    few = {"max_size": 2}
    optional = {
        "latency_ns": st.integers(0, 100),
        "reduce_ns_per_byte": st.sampled_from([0, 0.1, 3]),
        "schedule": st.one_of(
            st.sampled_from(["none", "all", "all"]), st.fixed_dictionaries({"server": server})
        ),
        "failed": st.fixed_dictionaries(
            {},
            optional={
                "servers": st.lists(server, **few),  # type: ignore[arg-type]
                "nics": st.lists(st.tuples(server, level).map(list), **few),  # type: ignore[arg-type]
                "links": st.lists(st.tuples(server, level).map(list), **few),  # type: ignore[arg-type]
                "switches": st.lists(st.tuples(level, digits).map(list), max_size=1),
            },
        ),
        "method": st.sampled_from(["auto", "bml", "detour", "detour", "detour"]),
        "note": st.text(max_size=3),
    }
    return {**request, **draw(st.fixed_dictionaries({}, optional=optional))}


@pytest.mark.slow
@settings(max_examples=40)
@given(requests())
def test_drawn_requests_are_answered_as_the_typed_interface_does(request_: dict[str, Any]) -> None:
    validate(request_, "request")
    found = ask(request_)
    if "error" in found:
        validate(found, "error")
        assert found["error"]["path"] in {"schedule.server", "method"}
        assert request_.get("method") in {"bml", "detour"} or "server" in request_["schedule"]
        assert "failed" in request_
        return
    validate(found, "answer")
    problem = typed(request_)
    result = solve(problem, method=request_.get("method", "auto"))
    assert (found["method"], found["status"]) == (result.method, result.status)
    assert found["objective_ns"] == result.objective_ns
    assert found["lower_bound_ns"] == result.lower_bound_ns
    assert found["ideal_ns"] == ideal_ns(problem)
    assert found["full_transfer_ns"] == problem.network.full_transfer_ns(problem.size_bytes)
    assert (found["servers"], found["switches"]) == (
        problem.bcube.servers,
        problem.bcube.switches,
    )
    if result.plan is None:
        return
    tensors = problem.layer_bytes if problem.size_bytes else None
    rows = {one.name: one for one in compare(problem.bcube, tensors=tensors or None)}
    assert set(found["comparison"]) == set(rows)
    for name, row in found["comparison"].items():
        one = rows[name]
        assert row == {
            "times_full_transfer": float(one.volume),
            "time_ns": one.time_ns(problem.network, problem.size_bytes),
            "steps": one.steps,
            "nics": one.nics,
            "switches": one.switches,
        }
    if request_.get("schedule", "none") == "all":
        execute(request_, found["transfers"])
    groups = drawn_names(found)
    assert "this plan" in groups
    assert len(groups) == 1 + (1 if "failed" in found else len(rows))


def run_apart(requests: list[dict[str, Any]], seed: str) -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "planner", "solve", "--jsonl"],
        input="\n".join(map(json.dumps, requests)).encode(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    for line in done.stdout.splitlines():
        yield {**json.loads(line), "runtime_s": 0}


@pytest.mark.slow
def test_the_same_request_has_the_same_answer_in_any_process() -> None:
    failed = {
        "servers": [[2, 2], [0, 0]],
        "nics": [[[0, 1], 0], [[1, 0], 1]],
        "switches": [[1, [1]]],
    }
    asked = [
        changed(schedule="all", gradient_bytes=360),
        *(
            changed(failed=failed, method=method, schedule="all", gradient_bytes=360)
            for method in ("auto", "detour", "trees")
        ),
        changed(failed={**CUT, "servers": [[2, 2], [1, 1]]}),
    ]
    here = [{**ask(one), "runtime_s": 0} for one in asked]
    for seed in ("1", "2"):
        assert list(run_apart(asked, seed)) == here
