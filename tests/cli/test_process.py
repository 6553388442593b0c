"""The command line as a process: what it loads, streams that close, encodings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.jsonio import decode_profile
from tests.cli.test_cli import NETWORK, REQUEST


def run(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "planner", *arguments], input=data, capture_output=True, check=False
    )


def test_as_a_process() -> None:
    done = run("solve", data=json.dumps(REQUEST).encode())
    assert done.returncode == 0
    assert json.loads(done.stdout)["objective_ns"] == 18
    assert done.stderr == b""


def test_starting_imports_no_solver_and_no_torch() -> None:
    heavy = ("numpy", "scipy", "pulp", "ortools", "torch", "matplotlib")
    code = (
        "import sys; from planner.cli import main; main(['solve', sys.argv[1]]);"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    path = Path(os.devnull)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True)
    assert done.stderr.strip() == b"[]"


def test_a_reader_that_stops_early_is_no_fault() -> None:
    line = json.dumps(REQUEST).encode() + b"\n"
    with subprocess.Popen(
        [sys.executable, "-m", "planner", "solve", "--jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(line * 10)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_files_are_written_though_nobody_reads_the_table(profile: str, tmp_path: Path) -> None:
    plan, picture = tmp_path / "plan.json", tmp_path / "plan.trace.json"
    options = ["--methods", "exact", "-o", str(plan), "--picture", str(picture)]
    with subprocess.Popen(
        [sys.executable, "-m", "planner", "compare", profile, *NETWORK, *options],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.close()
        assert process.wait(timeout=60) == 0
    assert json.loads(plan.read_text())["method"] == "exact"
    assert json.loads(picture.read_text())["traceEvents"]


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", command.replace("planner", f"{sys.executable} -m planner", 1)],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_closed_streams_are_no_fault() -> None:
    done = shell("planner solve <&-")
    assert done.returncode == 2
    assert b"standard input is closed" in done.stderr
    done = shell("planner schema >&-")
    assert done.returncode == 2
    assert b"standard output is closed" in done.stderr


@pytest.mark.slow
def test_other_encodings_of_the_terminal(profile: str) -> None:
    command = f"planner compare {profile} --startup 1us --bandwidth 1Gb/s --methods exact,greedy"
    done = shell(command, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    done = shell(command, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stderr
    graph = Path(profile).with_name("graph.txt")
    graph.write_text(
        "n -- ReLU -- forward_compute_time=1, backward_compute_time=1, "
        "activation_size=8.0, parameter_size=8.0\n"
    )
    done = shell(f"planner import pipedream {graph} --name é", PYTHONIOENCODING="latin-1")
    assert decode_profile(done.stdout).name == "é"
