"""Every command that prints JSON: the schema of that name describes what it prints."""

import json
from pathlib import Path

import pytest

from planner.jsonio import PROBLEMS, schema
from planner.jsonio.schemas import FILES
from tests import schemas
from tests.cli.commands import commands
from tests.cli.line import Line, write
from tests.cli.printed import check_printed
from tests.cli.test_calibrate import epochs
from tests.formats.spark_logs import loop, written
from tests.formats.test_pipedream import GOOD

PRINTED = {
    "compute": "calibrate compute --cores 1 --repetitions 2",
    "fit": "calibrate fit epochs.json",
    "profile": "import pipedream graph.txt",
    "spark": "import spark-events spark.log",
}
"""Commands that print a document by themselves, by its name in the schema."""

ANSWERED = {"compare", "plan", "solve"}
"""Their answers are held against those of the library, and against the schema."""

ELSEWHERE = {"run", "calibrate network", "profile", "why", "tune"}
"""They need torch, several ranks or traces: test_run.py, test_calibrate_network.py, test_why.py
and test_tune.py ask the schema."""

NOT_OURS = {"draw", "export", "report"}
"""They write pictures, pages and files of other tools."""


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_is_in_the_schema(name: str, line: Line) -> None:
    write("epochs.json", epochs())
    write("graph.txt", GOOD)
    written(Path("spark.log"), loop(6))
    check_printed(name, line(PRINTED[name]).json)


def test_the_schema_is_one_of_schemas(line: Line) -> None:
    everything = line("schema").json
    assert everything.keys() == {*PROBLEMS, *FILES}
    assert line("schema ibatch").json.keys() == {"request", "answer", "error"}
    for name, found in everything.items():
        assert found == json.loads(json.dumps(schema(name)))
        for part in found.values() if name in PROBLEMS else [found]:
            schemas.check_schema(part)


def test_no_command_and_no_file_of_the_schema_is_forgotten() -> None:
    others = {"cluster", "network", "run", "why", "tune"}  # by hand; see ELSEWHERE
    assert {*PRINTED} | others == set(FILES)
    writing = {" ".join(one.path) for one in commands() if {"--json", "--output"} & {*one.options}}
    here = {"calibrate compute", "calibrate fit", "import"}
    assert all(any(words.startswith(f"{name} ") for name in here) for words in PRINTED.values())
    assert writing == here | ANSWERED | ELSEWHERE | NOT_OURS
