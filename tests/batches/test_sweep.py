"""Sweeps: every case once, as by itself; what is known is not planned again."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.batches import many
from planner.batches.cases import cases_of, row_of
from planner.batches.tables import encoded, known_rows
from planner.cli import main
from planner.jsonio.decoding import typed
from planner.jsonio.sweep import SweepDocument

DATA = Path(__file__).parents[2] / "data"
VARIED: dict[str, Any] = {
    "profiles": [str(DATA / "profiles" / "lenet5.json")],
    "clusters": ["caramel-8", "office-4"],
    "options": {"method": ["ddp", "layer_by_layer"], "modes": [["replicated"]]},
}


def file_of(folder: Path, **changes: Any) -> str:
    path = folder / "sweep.json"
    path.write_text(json.dumps({**VARIED, **changes}))
    return str(path)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_case_is_there_and_as_by_itself(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    assert main(["sweep", file_of(tmp_path), "-o", str(output), "--processes", "2"]) == 0
    rows = rows_of(output)
    assert [(row["cluster"], row["method"]) for row in rows] == [
        (cluster, method)
        for cluster in VARIED["clusters"]
        for method in VARIED["options"]["method"]
    ]
    assert len({row["case"] for row in rows}) == 4
    request = {
        "problem": "iteration",
        "profile": json.loads(Path(VARIED["profiles"][0]).read_text()),
        "cluster": json.loads((DATA / "clusters" / "office-4.json").read_text()),
        "method": "ddp",
        "modes": ["replicated"],
    }
    alone = planner.solve(request)
    row = rows[2]
    assert (row["objective_ns"], row["status"], row["algorithm"], row["modes"]) == (
        alone["objective_ns"],
        alone["status"],
        alone["synchronisation"]["algorithm"],
        '["replicated"]',
    )
    assert not (tmp_path / "rows.jsonl.part.jsonl").exists()


def test_what_is_known_is_not_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "rows.csv"
    cases = list(cases_of(typed(VARIED, SweepDocument), tmp_path))
    known = [{"case": case.key, "status": "known", **case.varied} for case in cases[:3]]
    part = tmp_path / "rows.csv.part.jsonl"
    lines = encoded(known, ".jsonl")
    part.write_bytes(lines + b'{"case": "cut o')
    asked = []
    answers = many.answers

    def counted(requests: Any, *others: Any) -> Any:
        asked.extend(requests)
        return answers(requests, *others)

    monkeypatch.setattr("planner.batches.engines.answers", counted)
    assert main(["sweep", file_of(tmp_path), "-o", str(output)]) == 0
    assert asked == [cases[3].request]
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["known"] * 3 + ["optimal"]
    assert rows[3]["objective_ns"].isdecimal()


def test_a_table_of_lines_grows_with_its_sweep(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    main(["sweep", file_of(tmp_path, clusters=["caramel-8"]), "-o", str(output)])
    (first, second) = rows_of(output)
    main(["sweep", file_of(tmp_path), "-o", str(output)])
    assert rows_of(output)[:2] == [first, second]
    assert len(rows_of(output)) == 4


@pytest.mark.parametrize(
    ("changes", "words", "sentence"),
    [
        ({"clusters": ["caramel-9"]}, [], "clusters[0]: neither a file nor the name"),
        ({"profiles": ["no*.json"]}, [], "profiles[0]: no file matches"),
        ({"options": {"cluster": [1]}}, [], "options.cluster: is not one of the options"),
        ({"options": {"methods": ["ddp"]}}, [], "methods: unknown field"),
        ({"options": {"method": []}}, [], "options.method: expected"),
        ({}, ["--engine", "spark"], "--engine: expected one of local, ray, dask"),
        ({}, ["--address", "here:1"], "address: there is none of engine local"),
        ({}, ["--processes", "0"], "--processes: expected at least 1"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_planned(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    words: list[str],
    sentence: str,
) -> None:
    output = str(tmp_path / "rows.jsonl")
    assert main(["sweep", file_of(tmp_path, **changes), "-o", output, *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_table_s_name_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", file_of(tmp_path), "-o", str(tmp_path / "rows.xlsx")]) == 2
    assert "expected a name that ends in .jsonl, .csv, .parquet" in capsys.readouterr().err


def test_a_case_that_is_refused_is_a_row(tmp_path: Path) -> None:
    changes = {"options": {"method": ["auto", "bml"]}, "clusters": ["caramel-8"]}
    output = tmp_path / "rows.jsonl"
    assert main(["sweep", file_of(tmp_path, **changes), "-o", str(output)]) == 0
    good, bad = rows_of(output)
    assert good["status"] != "error"
    assert bad["status"] == "error"
    assert bad["reason"].startswith("method: ")


def test_a_key_is_of_all_that_an_answer_depends_on(tmp_path: Path) -> None:
    def keys(**changes: Any) -> set[str]:
        return {
            case.key for case in cases_of(typed({**VARIED, **changes}, SweepDocument), tmp_path)
        }

    assert len(keys()) == 4
    assert not keys() & keys(time_limit_s=3.0)
    assert keys() < keys(clusters=["caramel-16", *VARIED["clusters"]])


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    (case, *_) = cases_of(typed(VARIED, SweepDocument), tmp_path)
    row = row_of(case, b'{"status": "optimal", "objective_ns": 7, "transfers": []}')
    path = tmp_path / "rows.parquet"
    path.write_bytes(encoded([row, {"case": "other"}], ".parquet"))
    first, second = parquet.read_table(path).to_pylist()
    assert {name: value for name, value in first.items() if value is not None} == row
    assert second["objective_ns"] is None


def test_lines_that_are_no_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"case": "a", "x": 1}\n[]\n{"case": 3}\n{"ca')
    assert known_rows((path, tmp_path / "missing")) == {"a": {"case": "a", "x": 1}}
