"""``planner calibrate``, as a person meets it."""

import copy
import io
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.families.yan.calibration import compute
from planner.families.yan.configuration import canonical_mapping
from planner.families.yan.model import estimate
from planner.jsonio.measurements import decode_measurements

CONSTANTS = {
    "muladd_ns": 0.2,
    "activation_ns": 35.0,
    "error_ns": 12.0,
    "latency_ns": [300000, 360000],
    "nic_bits_per_s": 4e9,
    "interference": [1.0, 1.05],
}
TRUE = {
    "muladd_ns": 0.5,
    "activation_ns": 20.0,
    "error_ns": 30.0,
    "latency_ns": [100000, 120000],
    "nic_bits_per_s": 1e10,
    "interference": [1.0, 1.05],
}
REQUEST: dict[str, Any] = {
    "problem": "yan",
    "machines": 12,
    "cores": 2,
    "samples": 60000,
    "read_every": 100,
    "layers": [
        {"name": "a", "kind": "full", "neurons": 300, "connections": 235200, "weights": 235200},
        {"name": "b", "kind": "full", "neurons": 70, "connections": 21000, "weights": 21070},
    ],
    "constants": CONSTANTS,
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


def choice(partitions: int, threads: int, copies: int) -> dict[str, Any]:
    return {"partitions": partitions, "threads": threads, "copies": copies}


def epochs(constants: dict[str, Any] = TRUE) -> dict[str, Any]:
    """Return measurements as they come out if these are the constants."""
    rows = [
        {
            "parameter_servers": servers,
            "replicas": replicas,
            "workers_per_replica": workers,
            "layers": [choice(*layer) for layer in layers],
            "epoch_ns": 1,
        }
        for (servers, replicas, workers), *layers in RUNS
    ]
    document = {**REQUEST, "constants": constants, "measurements": rows}
    problem, measurements = decode_measurements(json.dumps(document).encode())
    for row, one in zip(rows, measurements, strict=True):
        row["epoch_ns"] = estimate(problem, one.configuration).epoch_ns
    return {**copy.deepcopy(REQUEST), "measurements": rows}


@pytest.fixture
def measurements(tmp_path: Path) -> Path:
    path = tmp_path / "epochs.json"
    path.write_text(json.dumps(epochs()))
    return path


def test_fit_shows_what_was_found(measurements: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "fit", str(measurements)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    constants, provenance = found["constants"], found["provenance"]
    assert constants["muladd_ns"] == pytest.approx(0.5)
    assert constants["nic_bits_per_s"] == pytest.approx(1e10)
    assert constants["latency_ns"][1] == pytest.approx(120_000)
    assert {"activation_ns", "error_ns"} & {*provenance["held"]}
    assert not provenance["at_floor"]
    assert provenance["measurements"] == 8
    assert provenance["held_out"]["folds"] == 5
    assert provenance["held_out"]["kendall_tau_b"] == pytest.approx(1)
    assert provenance["held_out"]["regret"] == 0


def test_fit_says_what_fits_best_at_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Epochs as if a start-up took a little less than no time."""
    document = epochs({**TRUE, "latency_ns": [1000, 1000]})
    more = epochs({**TRUE, "latency_ns": [3000, 3000]})
    for row, other in zip(document["measurements"], more["measurements"], strict=True):
        row["epoch_ns"] -= other["epoch_ns"] - row["epoch_ns"]
    path = tmp_path / "epochs.json"
    path.write_text(json.dumps(document))
    assert main(["calibrate", "fit", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["at_floor"] == ["latency_ns"]


def test_fit_writes_constants_a_request_takes(
    measurements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "constants.json"
    assert main(["calibrate", "fit", str(measurements), "-o", str(output)]) == 0
    assert not capsys.readouterr().out
    written = json.loads(output.read_text())
    provenance = written["provenance"]
    assert provenance["kind"] == "fitted"
    assert provenance["source"] == "epochs.json"
    assert provenance["mean_error"] < 1e-6
    assert provenance["held_out"]["folds"] == 5
    assert len(provenance["held_out"]["predictions_ns"]) == len(RUNS)
    again = {**epochs(), "constants": written["constants"]}
    problem, known = decode_measurements(json.dumps(again).encode())
    for one in known:
        assert float(estimate(problem, one.configuration).epoch) == pytest.approx(
            one.epoch_ns, rel=1e-6
        )
    assert main(["calibrate", "fit", str(measurements)]) == 0
    assert json.loads(capsys.readouterr().out)["constants"] == written["constants"]


def test_fit_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.dumps(epochs()).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["calibrate", "fit", "-", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["source"] == "standard input"


def test_a_mapping_left_out_is_the_canonical_one() -> None:
    document = epochs()
    _, plain = decode_measurements(json.dumps(document).encode())
    for row in document["measurements"]:
        shape = [(layer["partitions"], layer["copies"]) for layer in row["layers"]]
        mappings = canonical_mapping(shape, row["workers_per_replica"])
        for layer, mapping in zip(row["layers"], mappings, strict=True):
            layer["mapping"] = mapping
    _, mapped = decode_measurements(json.dumps(document).encode())
    assert mapped == plain
    document["measurements"][2]["layers"][0]["mapping"] = [[2], [0], [1]]
    _, other = decode_measurements(json.dumps(document).encode())
    assert other[2].configuration.layers[0].mapping == ((2,), (0,), (1,))


def test_machines_that_differ_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = epochs()
    document["machine_speeds"] = [1.0] * 6 + [0.5] * 6
    path = tmp_path / "epochs.json"
    path.write_text(json.dumps(document))
    assert main(["calibrate", "fit", str(path)]) == 2
    assert "measurements[0].machines: missing" in capsys.readouterr().err
    for row in document["measurements"]:
        used = row["parameter_servers"] + row["replicas"] * row["workers_per_replica"]
        row["machines"] = list(range(used))
    problem, known = decode_measurements(json.dumps(document).encode())
    for row, one in zip(document["measurements"], known, strict=True):
        row["epoch_ns"] = estimate(problem, one.configuration).epoch_ns
    path.write_text(json.dumps(document))
    assert main(["calibrate", "fit", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"]["mean_error"] < 1e-6
    assert found["constants"]["muladd_ns"] == pytest.approx(CONSTANTS["muladd_ns"], rel=1e-6)


def changed(*steps: Any, to: Any) -> dict[str, Any]:
    """Return the measurements with another value at a path, or none there."""
    document: Any = epochs()
    place = document
    for step in steps[:-1]:
        place = place[step]
    if to is None:
        del place[steps[-1]]
    else:
        place[steps[-1]] = to
    result: dict[str, Any] = document
    return result


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed("measurements", to=None), "measurements: missing"),
        (changed("measurements", to=[]), "measurements: expected at least 2"),
        (changed("constants", "muladd_ns", to=0), "constants.muladd_ns: expected a number > 0"),
        (changed("measurements", 3, "layers", to=None), "measurements[3].layers: missing"),
        (
            changed("measurements", 3, "layers", to=[choice(1, 1, 1)]),
            "measurements[3].layers: expected as many as the network has (2), got 1",
        ),
        (changed("measurements", 0, "epoch_ns", to=0), "measurements[0].epoch_ns: expected"),
        (changed("measurements", 0, "epoch", to=5), "measurements[0].epoch: unknown field"),
        (
            changed("measurements", 1, "layers", 1, "threads", to=3),
            "measurements[1].layers[1].threads: expected at most 2",
        ),
        (changed("measurements", 1, "parameter_servers", to=9), "measurements[1]: expected at"),
        (
            changed("measurements", 2, "layers", 1, "mapping", to=[[0, 1, 2]]),
            "measurements[2].layers[1].mapping: expected a mapping for every layer, or for none",
        ),
        (
            changed("measurements", 2, "layers", 0, "mapping", to=[[0], [1], [1]]),
            "measurements[2].layers[0].mapping[2][0]: worker 1 given twice",
        ),
    ],
)
def test_fit_says_what_is_wrong_and_where(
    document: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "epochs.json"
    path.write_text(json.dumps(document))
    assert main(["calibrate", "fit", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{path}: {message}" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nowhere.json"], "nowhere.json"),
        (["fit", "-", "-o", "nowhere/x.json"], "--output: no such folder"),
        (["compute", "-o", "nowhere/x.json"], "--output: no such folder"),
        (["compute", "--cores", "0"], "--cores: expected an integer >= 1"),
        (["compute", "--cores", "1000000"], "--cores: expected at most the"),
        (["compute", "--repetitions", "-1"], "--repetitions: expected an integer >= 1"),
    ],
)
def test_bad_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_compute_writes_constants_and_where_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "constants.json"
    command = ["calibrate", "compute", "--cores", "1", "--repetitions", "2"]
    assert main([*command, "-o", str(output)]) == 0
    assert capsys.readouterr() == ("", "")
    written = json.loads(output.read_text())
    assert set(written["constants"]) == {"muladd_ns", "activation_ns", "error_ns", "interference"}
    assert written["constants"]["interference"] == [1]
    assert written["provenance"]["kind"] == "measured"
    assert written["provenance"]["source"] == "planner " + " ".join(command)
    assert any("not measured" in note for note in written["provenance"]["notes"])
    document = {**epochs(), "cores": 1, "measurements": []}
    document["constants"] = {**CONSTANTS, **written["constants"]}
    problem, _ = decode_measurements(json.dumps(document).encode())
    assert problem.constants.muladd_ns == Fraction(repr(written["constants"]["muladd_ns"]))


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(one) for one in listed.split()]


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(),
    reason="needs the children of a process",
)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_process_behind(ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "planner", "calibrate", "compute", "--repetitions", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        wanted = len(compute.available_processors())
        while len(started := children(running.pid)) < wanted:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(ending)
        out, err = running.communicate(timeout=60)
    assert out == b""
    assert b"Traceback" not in err
    if ending == signal.SIGINT:
        assert running.returncode == 130
    until = time.monotonic() + 60
    while any(Path(f"/proc/{one}/cwd").exists() for one in started):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("compute", ["latency_ns and\nnic_bits_per_s", "not measured here", "example:"]),
        ("fit", ['"measurements"', "epoch_ns", "starting\nguess", "example:"]),
    ],
)
def test_help_says_what_it_does(
    kind: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["calibrate", kind, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)
    assert max(map(len, out.splitlines())) <= 90
