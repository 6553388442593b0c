"""Requests and answers about scaling: the contract, every option, what cannot be."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.families.yan.configuration import Configuration, LayerChoice
from planner.families.yan.family import METHODS
from planner.families.yan.model import estimate
from planner.jsonio import decode_answer, schema
from planner.jsonio.decoding import typed
from planner.jsonio.yan import YanRequest, problem_of
from planner.jsonio.yan_answer import _whole
from planner.solving.methods import REPLAN
from planner.solving.views import Scaling
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


def second_layer(**change: Any) -> dict[str, Any]:
    merged = {**FULL, **change}
    return {
        **CONTRACT,
        "layers": [CONV, {key: value for key, value in merged.items() if value is not without}],
    }


def first_layer(**change: Any) -> dict[str, Any]:
    merged = {**CONV, **change}
    return {
        **CONTRACT,
        "layers": [{key: value for key, value in merged.items() if value is not without}, FULL],
    }


def fixed(**change: Any) -> dict[str, Any]:
    """Ask for two prices; the second configuration has its layers given."""
    choices = [{"partitions": 1, "threads": 1, "copies": 2, **change.pop("first", {})}]
    choices.append({"partitions": 2, "threads": 2, "copies": 1, **change.pop("second", {})})
    triple = {"parameter_servers": 1, "replicas": 1, "workers_per_replica": 2}
    return small(fixed=[triple, {**triple, "layers": choices, **change}])


def validate(document: dict[str, Any], part: str) -> None:
    schemas.validate(document, "yan", part)


def priced_again(request: dict[str, Any], answer: dict[str, Any]) -> int:
    """Return what the model says of the configuration in an answer."""
    found = answer["configuration"]
    configuration = Configuration(
        found["parameter_servers"],
        found["replicas"],
        found["workers_per_replica"],
        tuple(
            LayerChoice(
                layer["partitions"],
                layer["threads"],
                layer["copies"],
                tuple(map(tuple, layer["mapping"])),
            )
            for layer in found["layers"]
        ),
        tuple(found["machines"]) if "machines" in found else None,
    )
    problem = problem_of(typed(json.loads(json.dumps(request)), YanRequest))
    return estimate(problem, configuration).epoch_ns


def check_adds_up(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Recompute what the answer says."""
    epoch = answer["epoch_ns"]
    assert answer["objective_ns"] == epoch == priced_again(request, answer)
    breakdown = answer["breakdown"]
    names = [layer["name"] for layer in request["layers"]]
    assert [row["name"] for row in breakdown["layers"]] == names
    assert [row["name"] for row in answer["configuration"]["layers"]] == names
    parts = [value for row in breakdown["layers"] for key, value in row.items() if key != "name"]
    assert min(parts) >= 0
    assert sum(parts) == epoch
    configuration = answer["configuration"]
    used = (
        configuration["parameter_servers"]
        + configuration["replicas"] * configuration["workers_per_replica"]
    )
    assert configuration["machines_used"] == used <= request["machines"]
    top = answer["top"]
    assert top[0]["epoch_ns"] == epoch
    assert [row["epoch_ns"] for row in top] == sorted(row["epoch_ns"] for row in top)
    for name in ("parameter_servers", "replicas", "workers_per_replica"):
        assert top[0][name] == configuration[name]
    assert (answer["status"] == "optimal") == (answer["lower_bound_ns"] == epoch)


def test_the_contracts_example() -> None:
    validate(CONTRACT, "request")
    answer = ask(CONTRACT)
    validate(answer, "answer")
    assert (answer["problem"], answer["method"], answer["status"]) == ("yan", "exact", "optimal")
    assert len(answer["top"]) == 8
    assert set(answer["explored"]) == {"triples", "triples_cut"}
    assert "pareto" not in answer
    check_adds_up(CONTRACT, answer)


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_requests_and_answers_fit_their_schemas(method: str) -> None:
    full = {
        **SMALL,
        "method": method,
        "memory_bytes": 10**6,
        "partitions": "powers_of_two",
        "machine_speeds": [1, 2.5, 1] if method in ("ordered", "auto") else [2, 2, 2],
        "time_limit_s": 60,
        "read_model": "max",
    }
    for request in (small(method=method), full):
        validate(request, "request")
        answer = ask(request)
        validate(answer, "answer")
        chosen = "ordered" if "machine_speeds" in request else "exact"
        assert answer["method"] == (method if method != "auto" else chosen)
        check_adds_up(request, answer)
        _, scaling = decode_answer(json.dumps(answer).encode())
        assert isinstance(scaling, Scaling)
        assert scaling.best.epoch_ns == answer["epoch_ns"]
        assert [ranked.epoch_ns for ranked in scaling.ranking] == [
            row["epoch_ns"] for row in answer["top"]
        ]


def test_the_schema_lists_every_method_and_wants_numbers_above_0() -> None:
    everything = schema("yan")
    for one in everything.values():
        schemas.check_schema(one)
    listed = everything["request"]["$defs"]["YanRequest"]["properties"]["method"]["enum"]
    assert listed == [*METHODS, REPLAN]
    for request in (constants(muladd_ns=0), constants(interference=[1, 0]), small(top=0)):
        with pytest.raises(schemas.ValidationError):
            validate(request, "request")
        validate(ask(request), "error")


@pytest.mark.slow
def test_the_front_comes_only_if_asked_for_and_ends_with_the_configuration() -> None:
    assert "pareto" not in ask(small())
    request = small(pareto=True)
    validate(request, "request")
    answer = ask(request)
    validate(answer, "answer")
    front = answer["pareto"]
    assert front[-1]["epoch_ns"] == answer["epoch_ns"]
    machines = [row["machines_used"] for row in front]
    assert machines == sorted(set(machines))
    _, scaling = decode_answer(json.dumps(answer).encode())
    assert len(scaling.front) == len(front)


def test_fixed_configurations_are_all_priced() -> None:
    request = fixed()
    validate(request, "request")
    answer = ask(request)
    validate(answer, "answer")
    check_adds_up(request, answer)
    assert len(answer["top"]) == 2
    given_layers = request["fixed"][1]["layers"]
    assert given_layers in [row["layers"] for row in answer["top"]]


def test_a_given_mapping_is_priced_as_it_is() -> None:
    request = fixed(second={"mapping": [[1], [0]]})
    request["fixed"] = request["fixed"][1:]
    answer = ask(request)
    assert answer["configuration"]["layers"][1]["mapping"] == [[1], [0]]
    check_adds_up(request, answer)


def test_machines_that_differ_are_named() -> None:
    request = small(machine_speeds=[1, 4, 2])
    answer = ask(request)
    validate(answer, "answer")
    check_adds_up(request, answer)
    used = answer["configuration"]["machines"]
    assert len(set(used)) == len(used) == answer["configuration"]["machines_used"]


def test_infeasible_is_an_answer_that_names_what_binds() -> None:
    for change, binding in (({"memory_bytes": 1}, "memory_bytes"), ({"machines": 1}, "machines")):
        answer = ask(small(**change, pareto=True))
        validate(answer, "answer")
        assert (answer["status"], answer["objective_ns"]) == ("infeasible", None)
        assert answer["binding"] == [binding]
        assert "configuration" not in answer
        with pytest.raises(planner.InvalidInputError, match="holds no plan") as caught:
            decode_answer(json.dumps(answer).encode())
        assert caught.value.path == "configuration"


@pytest.mark.parametrize("method", ["data_parallel", "auto"])
def test_fronts_are_of_the_whole_space(method: str) -> None:
    best = ask(small())["epoch_ns"]
    request = small(method=method, pareto=True)
    if method == "auto":
        request["fixed"] = [{"parameter_servers": 1, "replicas": 1, "workers_per_replica": 1}]
    answer = ask(request)
    assert answer["pareto"][-1]["epoch_ns"] == best <= answer["epoch_ns"]


def test_numbers_are_kept_as_they_are_written() -> None:
    text = json.dumps(constants(muladd_ns=7)).replace('"muladd_ns": 7', '"muladd_ns": 0.1')
    found = problem_of(typed(json.loads(text), YanRequest)).constants
    assert found.muladd_ns == Fraction(1, 10)
    assert found.nic_bits_per_s == 10**10
    assert found.interference == (1, Fraction(21, 20))


def test_bits_are_32_unless_said_otherwise() -> None:
    default = constants(bits_per_activation=without, bits_per_weight=without)
    assert ask(default)["objective_ns"] == ask(SMALL)["objective_ns"]
    assert ask(constants(bits_per_weight=64))["objective_ns"] > ask(SMALL)["objective_ns"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.fractions(min_value=0, max_value=5, max_denominator=7), max_size=9))
def test_parts_are_rounded_so_that_every_partial_sum_is(times: list[Fraction]) -> None:
    parts = list(_whole(times))
    assert all(part >= 0 for part in parts)
    for place in range(len(times) + 1):
        exact = sum(times[:place], Fraction(0))
        assert exact <= sum(parts[:place]) < exact + 1


def test_requests_can_be_extended() -> None:
    class Extended(YanRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
        measurements: tuple[int, ...]

    request = typed({**SMALL, "measurements": [1, 2]}, Extended)
    assert request.measurements == (1, 2)
    assert problem_of(request) == problem_of(typed(SMALL, YanRequest))
    with pytest.raises(planner.InvalidInputError):
        typed({**SMALL, "measurements": [1], "zzz": 2}, Extended)
