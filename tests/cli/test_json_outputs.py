"""Every command that prints JSON: the schema of that name describes what it prints."""

import argparse
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.cli.main import parser as whole
from planner.jsonio import PROBLEMS, schema
from planner.jsonio.schemas import FILES
from tests import schemas
from tests.cli.networks import NETWORK
from tests.cli.printed import check_answer, check_printed
from tests.cli.test_bml import CUT
from tests.cli.test_calibrate import epochs
from tests.formats.spark_logs import loop, written
from tests.formats.test_pipedream import GOOD
from tests.jsonio.test_plan_files import METHODS

DATA = Path(__file__).parents[2] / "data"
LENET = str(DATA / "profiles" / "lenet5.json")
CLUSTER = str(DATA / "clusters" / "office-4.json")
LINK = ("--startup", "10us", "--bandwidth", "1Gb/s")

PRINTED: dict[str, tuple[str, ...]] = {
    "calibrate compute": ("calibrate", "compute", "--cores", "1", "--repetitions", "2"),
    "calibrate fit": ("calibrate", "fit", "epochs.json"),
    "import": ("import", "pipedream", "graph.txt"),
    "import, events": ("import", "spark-events", "spark.log"),
}
"""Commands that print a document by themselves, with its name in the schema where it differs."""

NAMES = {
    "calibrate compute": "compute",
    "calibrate fit": "fit",
    "import": "profile",
    "import, events": "spark",
}

COMPARED: dict[str, tuple[str, ...]] = {
    **{name: (f"{name}.json",) for name in METHODS},
    "bml, cut off": ("cut.json",),
    "ibatch of a profile": (LENET, *LINK),
    "ibatch as measured": (LENET, "--network", "pull.json", "--methods", "greedy"),
    "caramel of a profile": (LENET, *LINK, "--problem", "caramel", "--methods", "caramel,ddp"),
    "bml of a profile": (LENET, *LINK, "--problem", "bml", "--bcube", "2,2"),
    "iteration, once": ("iteration.json", "--methods", "joint"),
}

ELSEWHERE = {
    "run": "tests/cli/test_run.py",
    "calibrate network": "tests/cli/test_calibrate_network.py",
    "profile": "tests/cli/test_run.py",
    "why": "tests/cli/test_why.py",
}
"""They need torch, several ranks or traces: the schema is asked there."""

NOT_OURS = {"draw", "export", "report"}
"""They write pictures, pages and files of other tools."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("json")
    documents = {
        **{name: request for name, (request, _) in METHODS.items()},
        "cut": CUT,
        "epochs": epochs(),
        "pull": {**NETWORK, "collective": "all_gather"},
    }
    for name, document in documents.items():
        (made / f"{name}.json").write_text(json.dumps(document))
    (made / "graph.txt").write_text(GOOD)
    written(made / "spark.log", loop(6))
    return made


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def printed(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("what", PRINTED)
def test_what_is_printed_is_in_the_schema(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_printed(NAMES[what], printed(PRINTED[what], capsys))


@pytest.mark.parametrize("what", COMPARED)
def test_every_row_of_a_comparison_is_an_answer(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = printed(("compare", *COMPARED[what], "--time-limit", "5", "--json"), capsys)
    assert answers
    for answer in answers:
        check_answer(answer)


def test_a_plan_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    check_answer(printed(("plan", LENET, "--cluster", CLUSTER, "--json"), capsys))


def test_solve_prints_answers_and_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [*(request for request, _ in METHODS.values()), CUT, {"problem": "ibach"}]
    lines = "\n".join(map(json.dumps, requests)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["solve", "--jsonl"]) == 2
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == len(requests)
    for answer in answers:
        check_answer(answer)


def test_the_schema_is_one_of_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    everything = printed(("schema",), capsys)
    assert everything.keys() == {*PROBLEMS, *FILES}
    for name, found in everything.items():
        assert found == json.loads(json.dumps(schema(name)))
        for part in found.values() if name in PROBLEMS else [found]:
            schemas.check_schema(part)


def test_every_file_of_the_schema_is_printed_by_a_command() -> None:
    others = {"cluster", "network", "run", "why"}  # by hand; see ELSEWHERE
    assert {*NAMES.values()} | others == set(FILES)


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, bool]]:
    """Yield every command, and whether it prints or writes something."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for one in inner:
        for word, child in one.choices.items():
            yield from commands(child, f"{name} {word}".strip())
    if not inner:
        options = {option for action in parser._actions for option in action.option_strings}
        yield name, bool(options & {"--json", "--output"})


def test_no_command_is_forgotten() -> None:
    writing = {name for name, writes in commands(whole()) if writes}
    here = {name.partition(",")[0] for name in PRINTED}
    assert writing == here | {"compare", "plan", "solve"} | set(ELSEWHERE) | NOT_OURS
