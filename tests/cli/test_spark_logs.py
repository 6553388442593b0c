"""What is read off Spark's event logs, as a person meets it: import and compare."""

import json
from pathlib import Path

import pytest

import planner
from planner.cli import main
from tests.formats.spark_logs import END, START, head, iteration, loop, written


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(written(tmp_path / "app", loop(6)))


def test_an_import_holds_what_requests_need(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "spark-events", log]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    drizzle = document["drizzle"]
    assert (drizzle["compute_ns"], drizzle["tasks"]) == (50_000_000, 4 + 2)
    answer = planner.solve(
        {
            "problem": "drizzle",
            "compute_ns": drizzle["compute_ns"],
            "tasks": drizzle["tasks"],
            **drizzle["constants"],
            "max_overhead": 0.05,
        }
    )
    assert answer["status"] == "optimal"
    assert f"groups of {answer['group_size']} iterations bring it below 5 %" in err
    assert "your driver spends 58 % of each iteration scheduling" in err


def test_a_table_and_the_answer_in_plain_words(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--problem", "drizzle", "--events", log]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "your driver spends 58 % of each iteration scheduling" in out
    assert "5 iterations, 6 tasks each: 120 ms an iteration, 50 ms of it to compute" in out
    rows = [line.split() for line in out.splitlines()]
    (size,) = (row[1] for row in rows if row[:1] == ["exact"])
    assert f"groups of {size} iterations bring it below 5 %" in out


def test_limits_are_options(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--events", log, "--max-overhead", "0.5", "--max-group", "100ms", "--json"]
    assert main(["compare", *options]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["status"] == "infeasible"
    assert main(["compare", "--events", log, "--max-overhead", "0.6"]) == 0
    assert "single iterations keep it below 60 %" in capsys.readouterr().out


def test_constants_of_several_logs(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = (iteration(number, START + 150 * number, tasks=8) for number in range(5))
    events = [*head(), *(event for body in bodies for event in body), END]
    wide = str(written(tmp_path / "wide", events))
    narrow = str(written(tmp_path / "narrow", loop(4, every=110)))
    assert main(["import", "spark-events", narrow, wide]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["drizzle"]["measurements"]) == 2
    assert document["drizzle"]["constants"]["task_ns"] == 10_000_000
    assert main(["import", "spark-events", log]) == 0
    assert "cannot be told apart" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["compare"], "FILE: missing"),
        (["compare", "{log}", "--events", "{log}"], "FILE: not together with --events"),
        (["compare", "--problem", "bml", "--events", "{log}"], "only to drizzle"),
        (["compare", "--events", "{log}", "--cluster", "drizzle-64"], "--cluster: does not apply"),
        (["compare", "--events", "{log}", "--max-overhead", "1"], "--max-overhead: expected"),
        (["compare", "--events", "/nowhere/log"], "/nowhere/log: No such file"),
        (["import", "spark-events", "-"], "not standard input"),
        (["import", "spark-events", "{log}", "--name", "a"], "only of models"),
        (["import", "spark-events", "{log}", "--ranks", "2"], "only of timed collectives"),
        (["import", "spark-events", "{log}", "-o", "{log}"], "would replace"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], problem: str, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([part.format(log=log) for part in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert problem in err


def test_too_few_iterations_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(written(tmp_path / "app", loop(2)))
    assert main(["compare", "--events", log]) == 2
    assert "app: no jobs that repeat at least 3 times" in capsys.readouterr().err
