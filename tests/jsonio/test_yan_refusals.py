"""Requests and answers about scaling that mean nothing, or contradict themselves."""

import json
from typing import Any

import pytest

import planner
from planner.jsonio import decode_answer
from planner.model.validation import MAX_VALUE
from tests.jsonio.test_caramel_answers import broken
from tests.jsonio.test_service import error, without
from tests.jsonio.test_yan import SMALL, constants, first_layer, fixed, second_layer, small


@pytest.mark.parametrize(
    ("request_", "path", "expected"),
    [
        (small(machines=without), "machines", "missing"),
        (small(machines=0), "machines", "expected an integer >= 1, got 0"),
        (small(machines=2.0), "machines", "expected an integer >= 1, got 2.0"),
        (small(cores=without), "cores", "missing"),
        (small(samples=0), "samples", ">= 1"),
        (small(samples=MAX_VALUE + 1), "samples", f"<= {MAX_VALUE}"),
        (small(read_every=without), "read_every", "missing"),
        (small(read_model="median"), "read_model", "one of max, mean, min, got 'median'"),
        (small(partitions="some"), "partitions", "one of all, powers_of_two"),
        (small(method="exakt"), "method", "did you mean 'exact'"),
        (small(top=0), "top", ">= 1"),
        (small(pareto=1), "pareto", "true or false"),
        (small(time_limit_s=0), "time_limit_s", "> 0"),
        (small(memory=1), "memory", "did you mean 'memory_bytes'"),
        (small(layers=[]), "layers", "length >= 1"),
        (small(layers=[SMALL["layers"][0], 3]), "layers[1]", "an object, got 3"),
        (small(constants=without), "constants", "missing"),
        (constants(interference=without), "constants.interference", "missing"),
        (constants(interference=[]), "constants.interference", "length >= 1"),
        (constants(interference=[1] * 3 + [0]), "constants.interference[3]", "> 0, got 0"),
        (constants(muladd_ns=0), "constants.muladd_ns", "expected a number > 0, got 0"),
        (constants(muladd_ns=-1), "constants.muladd_ns", "expected a number > 0, got -1"),
        (constants(muladd_ns=-0.5), "constants.muladd_ns", "expected a number > 0, got -0.5"),
        (constants(muladd_ns=None), "constants.muladd_ns", "expected a number > 0, got null"),
        (constants(muladd_ns=2**63), "constants.muladd_ns", f"expected a number <= {MAX_VALUE}"),
        (constants(latency_ns=[1, -1]), "constants.latency_ns[1]", "a number > 0, got -1"),
        (constants(bits_per_weight=-1), "constants.bits_per_weight", "a number > 0, got -1"),
        (small(machine_speeds=[1, -1, 1]), "machine_speeds[1]", "expected a number > 0, got -1"),
        (constants(muladd_ns="1"), "constants.muladd_ns", "got '1'"),
        (constants(muladd_ns=True), "constants.muladd_ns", "got true"),
        (constants(nic_bits_per_s=0), "constants.nic_bits_per_s", "> 0"),
        (constants(bits_per_weight=0), "constants.bits_per_weight", "> 0"),
        (constants(latency_ns=100000), "constants.latency_ns", "expected an array"),
        (constants(latency_ns=[1]), "constants.latency_ns", "each of up to 2 threads, got 1"),
        (constants(latency=[1]), "constants.latency", "did you mean 'latency_ns'"),
        (small(machine_speeds=[1, 1]), "machine_speeds", "one a machine (3), got 2"),
        (small(machine_speeds=[1, 0, 1]), "machine_speeds[1]", "> 0"),
        (small(machine_speeds=[]), "machine_speeds", "length >= 1"),
        (second_layer(weights=5), "layers[1].weights", "bias a neuron"),
        (second_layer(connections=2304001), "layers[1].connections", "multiple of neurons"),
        (second_layer(connections=400, weights=400), "layers[1].connections", "5760"),
        (second_layer(pool=2), "layers[1].pool", "a fully connected layer has none"),
        (second_layer(kind="linear"), "layers[1].kind", "one of block, conv, full"),
        (first_layer(kernel=without), "layers[0].kernel", "missing"),
        (first_layer(shape=without), "layers[0].shape", "missing"),
        (first_layer(shape=[10, 24]), "layers[0].shape", "length 3"),
        (first_layer(shape=[10, 24, 0]), "layers[0].shape[2]", ">= 1"),
        (first_layer(neurons=5761), "layers[0].neurons", "channels x rows x columns"),
        (first_layer(weights=261), "layers[0].weights", "expected"),
        (first_layer(connections=7), "layers[0].connections", "for 1 input channels, got 7"),
        (first_layer(strides=1), "layers[0].strides", "did you mean 'stride'"),
        (small(memory_bytes=2**53 + 1), "memory_bytes", f"an integer <= {2**53}"),
        (small(fixed=[]), "fixed", "length >= 1"),
        (small(fixed=fixed()["fixed"] * 513), "fixed", "length <= 1024"),
        (fixed(workers_per_replica=without), "fixed[1].workers_per_replica", "an object"),
        (fixed(replicas=0), "fixed[1].replicas", ">= 1"),
        (fixed(replicas=2), "fixed[1]", "at most machines (3), got 5"),
        (fixed(layers=[]), "fixed[1].layers", "length >= 1"),
        (fixed(layers=[{}]), "fixed[1].layers[0].partitions", "missing"),
        (fixed(first={"partitions": 5}), "fixed[1].layers[0].partitions", "4 neurons"),
        (fixed(first={"threads": 3}), "fixed[1].layers[0].threads", "at most 2"),
        (fixed(second={"copies": 2}), "fixed[1].layers[1]", "partitions x copies <="),
        (fixed(second={"mapping": [[0]]}), "fixed[1].layers[1].mapping", "2 arrays of 1"),
        (fixed(second={"mapping": [[0], [0]]}), "fixed[1].layers[1].mapping[1][0]", "twice"),
        (fixed(second={"mapping": [[0], [2]]}), "fixed[1].layers[1].mapping[1][0]", "<= 1"),
    ],
)
def test_bad_fields(request_: dict[str, Any], path: str, expected: str) -> None:
    if path == "fixed[1].workers_per_replica":
        del request_["fixed"][1]["workers_per_replica"]
        expected = "missing"
    found_path, message = error(request_)
    assert found_path == path
    assert expected in message


def test_epochs_that_do_not_fit_are_refused() -> None:
    _, message = error(constants(muladd_ns=2**61))
    assert "63 bits" in message


@pytest.mark.parametrize(
    ("steps", "value", "path"),
    [
        (("objective_ns",), 5, "objective_ns"),
        (("lower_bound_ns",), 10**15, "lower_bound_ns"),
        (("lower_bound_ns",), 1, "status"),
        (("status",), "feasible", "status"),
        (("machines",), 1, "machines"),
        (("configuration", "machines_used"), 1, "configuration.machines_used"),
        (("configuration", "replicas"), 0, "configuration.replicas"),
        (("configuration", "layers"), [], "configuration.layers"),
        (("breakdown", "layers"), [], "breakdown.layers"),
        (
            ("breakdown", "layers", 0, "weight_update_ns"),
            -1,
            "breakdown.layers[0].weight_update_ns",
        ),
        (("breakdown", "layers", 0, "name"), 1, "breakdown.layers[0].name"),
        (("top", 0, "epoch_ns"), 1, "top"),
        (("top", 1, "epoch_ns"), 1, "top"),
        (("top", 1, "machines_used"), 1, "top[1].machines_used"),
        (("pareto", 1, "machines_used"), 9, "pareto[1].machines_used"),
    ],
)
def test_answers_that_contradict_themselves_are_refused(
    steps: tuple[Any, ...], value: Any, path: str
) -> None:
    rows = [
        {
            "machines_used": machines,
            "epoch_ns": epoch,
            "workers_per_replica": 1,
            "replicas": machines - 1,
            "parameter_servers": 1,
            "layers": [{"partitions": 1, "threads": 1, "copies": 1}],
        }
        for machines, epoch in ((2, 10**13), (3, 10**12))
    ]
    answer = planner.solve(SMALL)
    answer["pareto"] = rows
    decode_answer(json.dumps(answer).encode())
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(json.dumps(broken(answer, steps, value)).encode())
    assert caught.value.path == path


@pytest.mark.parametrize("name", ["epoch_ns", "breakdown"])
def test_parts_that_are_missing_are_refused(name: str) -> None:
    answer = planner.solve(SMALL)
    del answer[name]
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(json.dumps(answer).encode())
    assert caught.value.path == name
