"""Requests and answers about scaling: the contract, every option, what cannot be."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan.family import METHODS
from planner.families.yan.model import estimate
from planner.jsonio import decode_answer, decode_plan, decode_request
from planner.jsonio.yan import problem_of
from planner.jsonio.yan_answer import _whole
from tests import schemas
from tests.jsonio.test_service import ask, without

CONV: dict[str, Any] = {
    "name": "conv1",
    "kind": "conv",
    "shape": [10, 24, 24],
    "kernel": 5,
    "stride": 1,
    "neurons": 5760,
    "connections": 144000,
    "weights": 260,
}
FULL: dict[str, Any] = {
    "name": "fc1",
    "kind": "full",
    "neurons": 400,
    "connections": 2304000,
    "weights": 2304400,
}
CONSTANTS: dict[str, Any] = {
    "muladd_ns": 0.5,
    "activation_ns": 2.0,
    "error_ns": 2.0,
    "latency_ns": [100000, 110000],
    "nic_bits_per_s": 1e10,
    "bits_per_activation": 32,
    "bits_per_weight": 32,
    "interference": [1.0, 1.05],
}
CONTRACT: dict[str, Any] = {
    "problem": "yan",
    "machines": 20,
    "cores": 2,
    "samples": 60000,
    "read_every": 100,
    "read_model": "mean",
    "top": 8,
    "layers": [CONV, FULL],
    "constants": CONSTANTS,
}
SMALL: dict[str, Any] = {
    **CONTRACT,
    "machines": 3,
    "layers": [
        {"name": "a", "kind": "full", "neurons": 4, "connections": 12, "weights": 12},
        {"name": "b", "kind": "full", "neurons": 2, "connections": 8, "weights": 10},
    ],
}


def small(**change: Any) -> dict[str, Any]:
    return {key: value for key, value in {**SMALL, **change}.items() if value is not without}


def constants(**change: Any) -> dict[str, Any]:
    merged = {**CONSTANTS, **change}
    return small(constants={key: value for key, value in merged.items() if value is not without})


def fixed(**change: Any) -> dict[str, Any]:
    """Ask for two prices; the second configuration has its layers given."""
    choices = [{"partitions": 1, "threads": 1, "copies": 2, **change.pop("first", {})}]
    choices.append({"partitions": 2, "threads": 2, "copies": 1, **change.pop("second", {})})
    triple = {"parameter_servers": 1, "replicas": 1, "workers_per_replica": 2}
    return small(fixed=[triple, {**triple, "layers": choices, **change}])


def check_adds_up(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Price the plan again, and add up what the answer says of it."""
    schemas.validate(request, "yan", "request")
    schemas.validate(answer, "yan", "answer")
    again = ask({**request, "with_plan": True})
    plan = decode_plan(json.dumps(again["plan"]))
    problem = problem_of(decode_request(json.dumps(request)))
    epoch = answer["epoch_ns"]
    assert answer["objective_ns"] == epoch == estimate(problem, plan.configuration).epoch_ns
    rows, configuration = answer["breakdown"]["layers"], answer["configuration"]
    assert sum(value for row in rows for key, value in row.items() if key != "name") == epoch
    names = [layer["name"] for layer in request["layers"]]
    assert [row["name"] for row in configuration["layers"]] == names
    made = plan.configuration
    assert configuration["workers_per_replica"] == made.workers_per_replica
    assert [row["mapping"] for row in configuration["layers"]] == [
        list(map(list, choice.mapping)) for choice in made.layers
    ]
    assert configuration["machines_used"] <= request["machines"]
    _, scaling = decode_answer(json.dumps(answer))
    assert scaling.best.epoch_ns == epoch
    assert [ranked.epoch_ns for ranked in scaling.ranking] == [
        row["epoch_ns"] for row in answer["top"]
    ]


def test_the_contracts_example() -> None:
    answer = ask(CONTRACT)
    assert (answer["problem"], answer["method"], answer["status"]) == ("yan", "exact", "optimal")
    assert len(answer["top"]) == 8
    assert set(answer["explored"]) == {"triples", "triples_cut"}
    assert "pareto" not in answer
    check_adds_up(CONTRACT, answer)


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_option_at_once(method: str) -> None:
    request = small(
        method=method,
        memory_bytes=10**6,
        partitions="powers_of_two",
        machine_speeds=[1, 2.5, 1] if method in ("ordered", "auto") else [2, 2, 2],
        time_limit_s=60,
        read_model="max",
    )
    answer = ask(request)
    assert answer["method"] == (method if method != "auto" else "ordered")
    check_adds_up(request, answer)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["data_parallel", "auto", "exact"])
def test_fronts_are_of_the_whole_space(method: str) -> None:
    usual = ask(small())
    request = small(method=method, pareto=True)
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
    request = fixed(second={"mapping": [[1], [0]]})
    answer = ask(request)
    check_adds_up(request, answer)
    assert len(answer["top"]) == 2
    alone = ask({**request, "fixed": request["fixed"][1:]})
    assert alone["configuration"]["layers"][1]["mapping"] == [[1], [0]]
    differ = small(machine_speeds=[1, 4, 2])
    answer = ask(differ)
    check_adds_up(differ, answer)
    used = answer["configuration"]["machines"]
    assert len(set(used)) == len(used) == answer["configuration"]["machines_used"]


def test_numbers_are_kept_as_they_are_written() -> None:
    text = json.dumps(constants(muladd_ns=7)).replace('"muladd_ns": 7', '"muladd_ns": 0.1')
    found = problem_of(decode_request(text)).constants
    assert found.muladd_ns == Fraction(1, 10)
    assert found.nic_bits_per_s == 10**10
    assert found.interference == (1, Fraction(21, 20))
    default = constants(bits_per_activation=without, bits_per_weight=without)
    assert ask(default)["objective_ns"] == ask(SMALL)["objective_ns"]  # they are 32
    assert ask(constants(bits_per_weight=64))["objective_ns"] > ask(SMALL)["objective_ns"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.fractions(min_value=0, max_value=5, max_denominator=7), max_size=9))
def test_parts_are_rounded_so_that_every_partial_sum_is(times: list[Fraction]) -> None:
    parts = list(_whole(times))
    assert all(part >= 0 for part in parts)
    for place in range(len(times) + 1):
        exact = sum(times[:place], Fraction(0))
        assert exact <= sum(parts[:place]) < exact + 1
