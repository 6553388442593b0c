"""``planner calibrate``, as a person meets it."""

import copy
import json
from fractions import Fraction
from typing import Any

import pytest

from planner.families.yan.configuration import canonical_mapping
from planner.families.yan.model import estimate
from planner.jsonio.measurements import decode_measurements
from tests.cli.line import Line, read, write
from tests.cli.printed import check_printed
from tests.jsonio.requests import patched
from tests.jsonio.test_yan import SMALL

TRUE = {**SMALL["constants"], "latency_ns": [100_000, 120_000]}
GUESS = {**TRUE, "muladd_ns": 0.2, "nic_bits_per_s": 4e9, "latency_ns": [300_000, 360_000]}
REQUEST: dict[str, Any] = {
    **SMALL,
    "machines": 12,
    "layers": [
        {"name": "a", "kind": "full", "neurons": 300, "connections": 235200, "weights": 235200},
        {"name": "b", "kind": "full", "neurons": 70, "connections": 21000, "weights": 21070},
    ],
    "constants": GUESS,
}
# Servers, replicas, workers; partitions, threads and copies of both layers.
RUNS = [
    ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((1, 2, 2), (2, 1, 1), (2, 2, 1)),
    ((2, 2, 3), (3, 1, 1), (1, 2, 3)),
    ((1, 5, 1), (1, 2, 1), (1, 1, 1)),
    ((4, 2, 4), (4, 1, 1), (1, 1, 1)),
    ((2, 3, 3), (1, 2, 3), (2, 1, 1)),
    ((3, 1, 8), (7, 1, 1), (3, 2, 2)),
    ((1, 1, 4), (2, 2, 2), (4, 1, 1)),
]


def choice(*numbers: int) -> dict[str, Any]:
    return dict(zip(("partitions", "threads", "copies"), numbers, strict=True))


def decoded(document: dict[str, Any]) -> Any:
    return decode_measurements(json.dumps(document).encode())


def epochs(constants: dict[str, Any] = TRUE) -> dict[str, Any]:
    """Return measurements as they come out if these are the constants."""
    names = ("parameter_servers", "replicas", "workers_per_replica")
    rows = [
        {**dict(zip(names, triple, strict=True)), "layers": [choice(*one) for one in layers]}
        for triple, *layers in RUNS
    ]
    document = {**REQUEST, "measurements": [{**row, "epoch_ns": 1} for row in rows]}
    problem, measurements = decoded({**document, "constants": constants})
    for row, measured in zip(document["measurements"], measurements, strict=True):
        row["epoch_ns"] = estimate(problem, measured.configuration).epoch_ns
    return copy.deepcopy(document)


def test_fit_finds_constants_that_a_request_takes(line: Line) -> None:
    write("epochs.json", epochs())
    assert line("calibrate fit epochs.json -o constants.json") == ("", "")
    written = read("constants.json")
    check_printed("fit", written)
    found, provenance = written["constants"], written["provenance"]
    assert found["muladd_ns"] == pytest.approx(0.5)
    assert found["nic_bits_per_s"] == pytest.approx(1e10)
    assert found["latency_ns"][1] == pytest.approx(120_000)
    assert {"activation_ns", "error_ns"} & {*provenance["held"]}
    assert (provenance["measurements"], provenance["at_floor"]) == (8, [])
    assert (provenance["kind"], provenance["source"]) == ("fitted", "epochs.json")
    assert provenance["mean_error"] < 1e-6
    held_out = provenance["held_out"]
    assert (held_out["folds"], len(held_out["predictions_ns"])) == (5, len(RUNS))
    assert held_out["kendall_tau_b"] == pytest.approx(1)
    decoded({**epochs(), "constants": found})


def test_fit_says_what_fits_best_at_0(line: Line) -> None:
    """Epochs as if a start-up took a little less than no time."""
    document = epochs({**TRUE, "latency_ns": [1000, 1000]})
    more = epochs({**TRUE, "latency_ns": [3000, 3000]})
    for row, other in zip(document["measurements"], more["measurements"], strict=True):
        row["epoch_ns"] -= other["epoch_ns"] - row["epoch_ns"]
    out, err = line("calibrate fit -", given=document)
    assert err == ""
    provenance = json.loads(out)["provenance"]
    assert (provenance["at_floor"], provenance["source"]) == (["latency_ns"], "standard input")


def test_a_mapping_left_out_is_the_canonical_one() -> None:
    document = epochs()
    _, plain = decoded(document)
    for row in document["measurements"]:
        shape = [(layer["partitions"], layer["copies"]) for layer in row["layers"]]
        mappings = canonical_mapping(shape, row["workers_per_replica"])
        for layer, mapping in zip(row["layers"], mappings, strict=True):
            layer["mapping"] = mapping
    assert decoded(document)[1] == plain
    document["measurements"][2]["layers"][0]["mapping"] = [[2], [0], [1]]
    assert decoded(document)[1][2].configuration.layers[0].mapping == ((2,), (0,), (1,))


def test_machines_that_differ_are_named(line: Line) -> None:
    document = {**epochs(), "machine_speeds": [1.0] * 6 + [0.5] * 6}
    said = line("calibrate fit -", given=document, status=2).err
    assert "standard input: measurements[0].machines: missing" in said
    for row in document["measurements"]:
        used = row["parameter_servers"] + row["replicas"] * row["workers_per_replica"]
        row["machines"] = [*reversed(range(used))]
    assert decoded(document)[1][0].configuration.machines == (1, 0)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("measurements[3].layers", [choice(1, 1, 1)], ": expected as many as the network has (2),"),
        ("measurements[0].epoch", 5, ": unknown field"),
        ("measurements[1].layers[1].threads", 3, ": expected at most 2"),
        ("measurements[2].layers[1].mapping", [[0, 1, 2]], ": expected a mapping for every layer"),
        ("measurements[2].layers[0].mapping", [[0], [1], [1]], "[2][0]: worker 1 given twice"),
    ],
)
def test_fit_says_what_is_wrong_and_where(path: str, value: Any, said: str, line: Line) -> None:
    write("epochs.json", patched(epochs(), {path: value}))
    assert f"epochs.json: {path}{said}" in line.error("calibrate fit epochs.json")


def test_compute_writes_constants_and_where_they_come_from(line: Line) -> None:
    command = "calibrate compute --cores 1 --repetitions 2"
    assert line(command, "-o constants.json") == ("", "")
    written = read("constants.json")
    check_printed("compute", written)
    constants, provenance = written["constants"], written["provenance"]
    assert set(constants) == {"muladd_ns", "activation_ns", "error_ns", "interference"}
    assert constants["interference"] == [1]
    assert provenance["kind"] == "measured"
    assert provenance["source"] == f"planner {command}"
    assert any("not measured" in note for note in provenance["notes"])
    document = {**epochs(), "cores": 1, "measurements": []}
    problem, _ = decoded({**document, "constants": {**GUESS, **constants}})
    assert problem.constants.muladd_ns == Fraction(repr(constants["muladd_ns"]))
