"""``planner calibrate groups``, as a person meets it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main

SHAPES = [(256, 1), (256, 10), (64, 1), (64, 5), (128, 20), (512, 4)]


def rows(group: int = 200, task: int = 40, always: int = 3) -> list[dict[str, int]]:
    return [
        {
            "tasks": tasks,
            "group_size": size,
            "overhead_ns": 1000 * (group + task * tasks) // size + 1000 * always * tasks,
        }
        for tasks, size in SHAPES
    ]


@pytest.fixture
def overheads(tmp_path: Path) -> Path:
    path = tmp_path / "overheads.json"
    path.write_text(json.dumps({"measurements": rows()}))
    return path


def test_a_table_of_constants_and_errors(
    overheads: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "groups", str(overheads)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert found["group_ns"] == ["200000"]
    assert found["task_ns"] == ["40000"]
    assert found["constant_task_ns"] == ["3000"]
    assert found["512"] == ["4", "6706000", "+0.00%", "+0.00%"]
    assert "held out, one at a time: mean error 0.000%" in out
    assert "errors: predicted / measured - 1; above 0 the prediction is too long" in out


def test_what_is_written_is_what_a_request_takes(
    overheads: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "constants.json"
    assert main(["calibrate", "groups", str(overheads), "-o", str(output)]) == 0
    assert capsys.readouterr().out.startswith("constant")
    written = json.loads(output.read_text())
    assert written["provenance"]["source"] == "overheads.json"
    assert written["provenance"]["measurements"] == len(SHAPES)
    assert written["provenance"]["confounded"] == []
    assert written["provenance"]["largest_error"] == 0
    assert written["provenance"]["held_out"]["mean_error"] == 0
    request = {"problem": "drizzle", "tasks": 256, "compute_ns": 10**9, "max_overhead": 0.01}
    answer = planner.solve({**request, **written["constants"]})
    assert answer["status"] == "optimal"
    assert main(["calibrate", "groups", str(overheads), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == written


def test_constants_that_need_not_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "o.json"
    one = {"tasks": 300, "group_size": 1, "overhead_ns": 100_000_000}
    path.write_text(json.dumps({"measurements": [one]}))
    assert main(["calibrate", "groups", str(path), "--json"]) == 0
    constants = json.loads(capsys.readouterr().out)["constants"]
    assert constants["task_ns"] == pytest.approx(10**8 / 300)
    assert constants["group_ns"] == constants["constant_task_ns"] == 0


def test_it_says_what_cannot_be_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "o.json"
    alone = [row for row in rows() if row["group_size"] == 1]
    path.write_text(json.dumps({"measurements": alone}))
    assert main(["calibrate", "groups", str(path)]) == 0
    out = capsys.readouterr().out
    marked = [line.split()[0] for line in out.splitlines() if line.endswith(" ?")]
    assert marked == ["task_ns", "constant_task_ns"]
    assert "cannot tell task_ns and constant_task_ns apart" in out
    assert "too few measurements to leave one out" in out


def test_standard_input_and_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.dumps({"measurements": rows()}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["calibrate", "groups", "-", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["source"] == "standard input"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "measurements: missing"),
        ({"measurements": []}, "measurements: expected an array of length >= 1"),
        (
            {"measurements": [{"tasks": 1, "group_size": 0, "overhead_ns": 5}]},
            "measurements[0].group_size: expected an integer >= 1, got 0",
        ),
        (
            {"measurements": [{"tasks": 1, "group": 1, "overhead_ns": 5}]},
            "measurements[0].group: unknown field; did you mean 'group_size'?",
        ),
        (
            {"measurements": [{"tasks": 1, "group_size": 1, "overhead_ns": 0}]},
            "measurements[0].overhead_ns: expected an integer >= 1, got 0",
        ),
    ],
)
def test_what_are_no_measurements(
    document: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "o.json"
    path.write_text(json.dumps(document))
    assert main(["calibrate", "groups", str(path)]) == 2
    assert f"{path}: {message}" in capsys.readouterr().err


def test_a_folder_that_is_not_there(overheads: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "groups", str(overheads), "-o", "/no/such/folder/c.json"]) == 2
    assert "--output: no such folder" in capsys.readouterr().err


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["calibrate", "groups", "--help"])
    out = capsys.readouterr().out
    assert "example:\n  planner calibrate groups" in out
    assert '"overhead_ns"' in out
