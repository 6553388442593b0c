"""The command line as a process: what it loads, streams that close, encodings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.jsonio import decode_profile
from tests.cli.documents import IBATCH, LINK
from tests.cli.line import Line, read, started, write
from tests.formats.test_exports import caramel
from tests.formats.test_pipedream import GOOD

LINE = json.dumps(IBATCH).encode() + b"\n"


def shell(command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", command.replace("planner", f"{sys.executable} -m planner", 1)],
        capture_output=True,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("words", [["solve", os.devnull], ["export", "ddp", "plan.json"]])
def test_starting_imports_no_solver_and_no_torch(words: list[str], line: Line) -> None:
    write("plan.json", caramel())
    heavy = ("numpy", "scipy", "pulp", "ortools", "torch", "matplotlib")
    code = (
        f"import sys; from planner.cli import main; main({words});"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr.splitlines()[-1] == b"[]"


def test_a_reader_that_stops_early_is_no_fault() -> None:
    with started("solve --jsonl") as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(LINE)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["objective_ns"] == 18
        process.stdout.close()
        process.stdin.write(LINE * 10)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_files_are_written_though_nobody_reads_the_table(line: Line) -> None:
    words = f"compare tiny.json {LINK} --methods exact -o plan.json --picture plan.trace.json"
    with started(words) as process:
        assert process.stdout
        process.stdout.close()
        assert process.wait(timeout=60) == 0
    assert read("plan.json")["method"] == "exact"
    assert read("plan.trace.json")["traceEvents"]


@pytest.mark.slow
def test_closed_streams_are_no_fault() -> None:
    for command, said in (
        ("planner solve <&-", b"standard input is closed"),
        ("planner schema >&-", b"standard output is closed"),
    ):
        done = shell(command)
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.slow
def test_other_encodings_of_the_terminal(line: Line) -> None:
    command = f"planner compare tiny.json {LINK} --methods exact,greedy"
    for variables in (
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        done = shell(command, **variables)
        assert done.returncode == 0, done.stderr
    write("graph.txt", GOOD)
    done = shell("planner import pipedream graph.txt --name é", PYTHONIOENCODING="latin-1")
    assert decode_profile(done.stdout).name == "é"


def test_standard_output_may_be_full(line: Line) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = shell("planner solve request.json > /dev/full")
    assert done.returncode == 2
    said = b"planner: error: standard output: cannot be written: No space left on device\n"
    assert done.stderr == said
