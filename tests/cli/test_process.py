"""The command line as a process: what it loads, streams that close, encodings, and Ctrl-C."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from planner.cli import main
from planner.cli.interrupting import interruptible
from planner.jsonio import decode_answer, decode_profile
from tests.cli.documents import IBATCH, LINK
from tests.cli.line import Line, read, started, write
from tests.formats.test_exports import caramel
from tests.formats.test_pipedream import GOOD

LINE = json.dumps(IBATCH).encode() + b"\n"


def test_starting_imports_no_solver_and_no_torch(line: Line) -> None:
    write("plan.json", caramel())
    heavy = ("numpy", "scipy", "pulp", "ortools", "torch", "matplotlib")
    code = (
        "import sys; from planner.cli import main;"
        "main(['solve', '/dev/null']); main(['export', 'ddp', 'plan.json']);"
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


def test_closed_streams_are_no_fault(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, words in (("input", "solve"), ("output", "schema")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, f"std{stream.removesuffix('put')}", None)  # as Python has it
            assert f"standard {stream} is closed" in line(words, status=2).err


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_other_encodings_of_the_terminal(
    encoding: str, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("graph.txt", GOOD)
    screen = TextIOWrapper(BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(f"compare tiny.json {LINK} --methods exact,greedy".split()) == 0
    screen.seek(0)
    screen.truncate()
    assert main(["import", "pipedream", "graph.txt", "--name", "é"]) == 0
    assert decode_profile(screen.buffer.getvalue()).name == "é"


def test_standard_output_may_be_full(line: Line) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    words = [sys.executable, "-m", "planner", "solve", "request.json"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    said = b"planner: error: standard output: cannot be written: No space left on device\n"
    assert done.stderr == said


# ---
# Ctrl-C ends a command without a traceback, whenever it comes.

# Compiled code that is being loaded may drop an exception.
AT_AN_IMPORT = """
import os, signal, sys
from contextlib import suppress

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["planner", *{words!r}]
from planner.__main__ import entry_point
entry_point()
"""
SCHEMA = "schema ibatch"
ENDING = b"planner: ending with the best so far"


def interrupted(name: str, words: str, first: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a command that is interrupted when it imports a module."""
    script = first + AT_AN_IMPORT.format(name=name, words=words.split())
    return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)


@pytest.mark.parametrize(
    "name",
    ["planner.cli.main", "argparse", "msgspec", "planner.families.caramel", "planner.cli.schema"],
)
def test_while_it_starts(name: str) -> None:
    done = interrupted(name, SCHEMA)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_where_it_is_ignored_it_stays_ignored() -> None:
    done = interrupted("numpy", SCHEMA, "import signal; signal.signal(2, signal.SIG_IGN)\n")
    assert (done.returncode, done.stderr) == (0, b"")


def test_while_a_solver_is_loaded(line: Line) -> None:
    done = interrupted("pulp", "compare request.json --methods exact,milp")
    assert done.returncode == 130
    assert done.stderr.startswith(ENDING)
    assert b"Traceback" not in done.stderr
    assert b"exact" in done.stdout  # which ran before


def test_a_plan_is_written_before_it_ends(line: Line) -> None:
    """It comes when the joint search first needs NumPy."""
    words = "plan data/profiles/vgg19.json --cluster caramel-16 -o plan.json"
    done = interrupted("numpy", words)
    assert done.returncode == 130
    assert done.stderr.startswith(ENDING)
    answer, view = decode_answer(Path("plan.json").read_bytes())
    assert answer.objective_ns == view.end_ns


@pytest.fixture
def _heard() -> Iterator[None]:
    """Whoever started the tests may have SIGINT ignored, or end what hears it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
def test_a_second_one_ends_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with interruptible() as cancel:
        assert not cancel.is_set()
        signal.raise_signal(signal.SIGINT)
        assert cancel.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "Ctrl-C once more" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("_heard")
def test_compiled_code_does_not_keep_it_from_being_heard() -> None:
    """Another thread hears of it while the main thread runs no Python, here in one long call."""
    heard: list[float] = []

    def wait(cancel: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        cancel.wait(20)
        heard.append(time.monotonic())

    with interruptible() as cancel:
        killer = threading.Timer(0.05, wait, (cancel,))
        killer.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)
        ended = time.monotonic()
        killer.join()
    assert heard[0] < ended
