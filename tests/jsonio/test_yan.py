"""Requests and answers about scaling: what they say adds up, and every option."""

import json
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import exact
from planner.families.yan.family import METHODS
from planner.families.yan.model import estimate
from planner.jsonio import decode_answer, decode_plan, decode_request
from planner.jsonio.yan import problem_of
from planner.jsonio.yan_answer import _whole
from planner.solving.deadline import NEVER, TimeUpError
from tests.jsonio.requests import BASES, Request, answered, ask, patched

SMALL = BASES["small"]
CONTRACT = BASES["yan"]


def adding_up(request: Request) -> dict[str, Any]:
    """Return the answer to a request; price its plan again, and add up what it says of it."""
    answer = answered(request, with_plan=True)
    plan = decode_plan(json.dumps(answer["plan"])).configuration
    problem = problem_of(decode_request(json.dumps(request)))
    epoch = answer["epoch_ns"]
    assert answer["objective_ns"] == epoch == estimate(problem, plan).epoch_ns
    rows, configuration = answer["breakdown"]["layers"], answer["configuration"]
    assert sum(value for row in rows for key, value in row.items() if key != "name") == epoch
    names = [layer["name"] for layer in request["layers"]]
    assert [row["name"] for row in configuration["layers"]] == names
    assert configuration["workers_per_replica"] == plan.workers_per_replica
    mappings = [[list(threads) for threads in choice.mapping] for choice in plan.layers]
    assert [row["mapping"] for row in configuration["layers"]] == mappings
    assert configuration["machines_used"] <= request["machines"]
    _, scaling = decode_answer(json.dumps(answer))
    assert scaling.best.epoch_ns == epoch
    ranked = [one.epoch_ns for one in scaling.ranking]
    assert ranked == [row["epoch_ns"] for row in answer["top"]]
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_option_at_once(method: str) -> None:
    differ = method in ("ordered", "auto")
    options = {"method": method, "memory_bytes": 10**6, "partitions": "powers_of_two"}
    options |= {"machine_speeds": [1, 2.5, 1] if differ else [2, 2, 2], "read_model": "max"}
    answer = adding_up({**SMALL, **options, "time_limit_s": 60})
    assert answer["method"] == (method if method != "auto" else "ordered")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["data_parallel", "auto", "exact"])
def test_fronts_are_of_the_whole_space(method: str) -> None:
    usual = ask(SMALL)
    request = {**SMALL, "method": method, "pareto": True}
    if method == "auto":
        request["fixed"] = [{"parameter_servers": 1, "replicas": 1, "workers_per_replica": 1}]
    answer = ask(request)
    front = answer["pareto"]
    assert front[-1]["epoch_ns"] == usual["epoch_ns"] <= answer["epoch_ns"]
    machines = [row["machines_used"] for row in front]
    assert machines == sorted(set(machines))
    _, scaling = decode_answer(json.dumps(answer))
    assert len(scaling.front) == len(front)


def test_what_is_fixed_is_priced_as_it_is() -> None:
    adding_up(CONTRACT)
    request = patched(BASES["fixed"], {"fixed[1].layers[1].mapping": [[1], [0]]})
    assert len(adding_up(request)["top"]) == 2
    alone = ask({**request, "fixed": request["fixed"][1:]})
    assert alone["configuration"]["layers"][1]["mapping"] == [[1], [0]]
    configuration = adding_up({**SMALL, "machine_speeds": [1, 4, 2]})["configuration"]
    used = configuration["machines"]
    assert len(set(used)) == len(used) == configuration["machines_used"]


def test_a_bound_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(decode_request(json.dumps(SMALL)))
    assert exact.any_mapping_bound(problem, NEVER)
    timed_out = Mock(**{"return_value.search.return_value.timed_out": True})
    for engine in (timed_out, Mock(side_effect=TimeUpError)):
        monkeypatch.setattr(exact, "Engine", engine)
        assert exact.any_mapping_bound(problem, NEVER) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.fractions(min_value=0, max_value=5, max_denominator=7), max_size=9))
def test_parts_are_rounded_so_that_every_partial_sum_is(times: list[Fraction]) -> None:
    parts = list(_whole(times))
    assert all(part >= 0 for part in parts)
    for place in range(len(times) + 1):
        whole = sum(times[:place], Fraction(0))
        assert whole <= sum(parts[:place]) < whole + 1
