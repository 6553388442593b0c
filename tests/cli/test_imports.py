"""What is read off other tools' files, as a person meets it: import and compare."""

from pathlib import Path

import pytest

from planner.jsonio import decode_profile
from tests.cli.line import Line, write
from tests.formats.spark_logs import END, START, head, iteration, loop, written
from tests.formats.test_pipedream import GOOD


@pytest.fixture(autouse=True)
def _log(line: Line) -> None:
    written(Path("app"), loop(6))


def test_import_warns_on_standard_error(line: Line) -> None:
    write("graph.txt", GOOD)
    out, err = line("import pipedream graph.txt --batch-size 4")
    assert decode_profile(out.encode()).name == "graph"
    assert "data loading" in err
    Path("graph.txt").write_bytes(b"\xff")
    assert "not UTF-8" in line.error("import pipedream graph.txt")


def test_an_import_holds_what_requests_need(line: Line) -> None:
    imported = line("import spark-events app")
    drizzle = imported.json["drizzle"]
    assert (drizzle["compute_ns"], drizzle["tasks"]) == (50_000_000, 4 + 2)
    asked = {name: drizzle[name] for name in ("compute_ns", "tasks")} | drizzle["constants"]
    answer = line("solve", given={"problem": "drizzle", **asked, "max_overhead": 0.05}).json
    assert answer["status"] == "optimal"
    assert f"groups of {answer['group_size']} iterations bring it below 5 %" in imported.err
    assert "your driver spends 58 % of each iteration scheduling" in imported.err


def test_a_table_and_the_answer_in_plain_words(line: Line) -> None:
    out, err = line("compare --problem drizzle --events app")
    assert err == ""
    assert "your driver spends 58 % of each iteration scheduling" in out
    assert "5 iterations, 6 tasks each: 120 ms an iteration, 50 ms of it to compute" in out
    (size,) = (row.split()[1] for row in out.splitlines() if row.startswith("exact "))
    assert f"groups of {size} iterations bring it below 5 %" in out


def test_limits_are_options(line: Line) -> None:
    options = "--max-overhead 0.5 --max-group 100ms --json"
    (answer,) = line("compare --events app", options).json
    assert answer["status"] == "infeasible"
    limited = line("compare --events app --max-overhead 0.6").out
    assert "single iterations keep it below 60 %" in limited


def test_constants_of_several_logs(line: Line) -> None:
    bodies = (iteration(number, START + 150 * number, tasks=8) for number in range(5))
    written(Path("wide"), [*head(), *(event for body in bodies for event in body), END])
    written(Path("narrow"), loop(4, every=110))
    drizzle = line("import spark-events narrow wide").json["drizzle"]
    assert len(drizzle["measurements"]) == 2
    assert drizzle["constants"]["task_ns"] == 10_000_000
    assert "cannot be told apart" in line("import spark-events app").err
