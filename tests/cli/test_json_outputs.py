"""Every command that prints JSON: the schema of that name describes what it prints."""

import json

from planner.jsonio import PROBLEMS, schema
from planner.jsonio.schemas import FILES
from tests import schemas
from tests.cli.commands import commands
from tests.cli.line import Line

PRINTED = {
    "compute": "calibrate compute",
    "fit": "calibrate fit",
    "profile": "import",
    "spark": "import",
}
"""Commands whose documents test_calibrate.py and test_imports.py hold against the schema."""

ANSWERED = {"compare", "plan", "solve"}
"""Their answers are held against those of the library, and against the schema."""

ELSEWHERE = {"run", "calibrate network", "profile", "why", "tune"}
"""They need torch, several ranks or traces: test_run.py, test_calibrate_network.py, test_why.py
and test_tune.py ask the schema."""

NOT_OURS = {"draw", "export", "report"}
"""They write pictures, pages and files of other tools."""


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
    assert writing == {*PRINTED.values()} | ANSWERED | ELSEWHERE | NOT_OURS
