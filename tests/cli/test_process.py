"""The command line as a process: what it loads, streams, encodings, Ctrl-C, and whole files."""

import hashlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

import planner
from planner.cli import main
from planner.cli.common import check_outputs
from planner.cli.interrupting import interruptible
from planner.cli.writing import replacing, write_file
from planner.jsonio import decode_answer, decode_profile
from planner.model.errors import PlannerError
from tests.cli.documents import IBATCH, LINK
from tests.cli.line import Line, read, started, write
from tests.formats.test_exports import caramel
from tests.formats.test_pipedream import GOOD
from tests.jsonio.test_plan_files import CARAMEL, DRIZZLE

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
    said = b"planner: error: standard output: cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


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
    done = interrupted(name, "schema ibatch")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_where_it_is_ignored_it_stays_ignored() -> None:
    ignored = "import signal; signal.signal(2, signal.SIG_IGN)\n"
    done = interrupted("numpy", "schema ibatch", ignored)
    assert (done.returncode, done.stderr) == (0, b"")


def test_while_a_solver_is_loaded(line: Line) -> None:
    done = interrupted("pulp", "compare request.json --methods exact,milp")
    assert done.returncode == 130
    assert done.stderr.startswith(ENDING)
    assert b"Traceback" not in done.stderr
    assert b"exact" in done.stdout  # which ran before


def test_a_plan_is_written_before_it_ends(line: Line) -> None:
    """It comes when the joint search first needs NumPy."""
    done = interrupted("numpy", "plan data/profiles/vgg19.json --cluster caramel-16 -o plan.json")
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


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 64 bytes, which are less than any that is written has."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "solve request.json -o out.json",
        "solve request.json --jsonl -o out.json",
        "compare groups.json --picture out.svg",
        "draw plan.json -o out.json.gz",
        "export ddp plan.json -o out.json",
        "plan model.json --cluster cluster.json -o out.json",
        "report model.json --cluster cluster.json -o out.html",
    ],
)
def test_a_full_disk_leaves_the_old_file_and_no_half_one(
    command: str, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("groups.json", DRIZZLE)
    write("plan.json", planner.solve({**CARAMEL, "method": "layer_by_layer"}))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # half a file of it would be read later
    out = Path(command.rsplit(maxsplit=1)[-1])
    out.write_text("what was there")
    files = sorted(line.folder.iterdir())
    with full_disk():
        error = line(command, status=2).err
    assert error == f"planner: error: {out}: cannot be written: File too large\n"
    assert out.read_text() == "what was there"
    assert sorted(line.folder.iterdir()) == files
    line(command)
    assert len(out.read_bytes()) > 64
    assert sorted(line.folder.iterdir()) == files
    out.unlink()
    with full_disk():
        line(command, status=2)
    assert not out.exists()


def test_what_is_read_is_not_written(line: Line) -> None:
    write("file.json", IBATCH)
    Path("link.json").symlink_to("file.json")
    for command in ("solve", "solve --jsonl", "compare", "draw", "export ddp", "import kineto"):
        for name in ("file.json", "link.json"):
            error = line.error(command, "file.json -o", name)
            assert f"--output: would replace {name}, which is read" in error
    # Devices can be read and written at once.
    check_outputs({"--output": os.devnull, "--picture": os.devnull, "--trace": "-"}, (os.devnull,))


def test_links_and_permissions_stay_and_new_files_have_the_usual_ones(tmp_path: Path) -> None:
    file, link, dangling = (tmp_path / name for name in ("file", "link", "dangling"))
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("file")
    write_file(link, b"new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    dangling.symlink_to("made")
    write_file(dangling, b"new")
    assert (tmp_path / "made").read_text() == "new"
    new = tmp_path / f"{'ü' * 120}.json"  # as long as names are
    before = os.umask(0o027)
    try:
        write_file(new, b"new")
    finally:
        os.umask(before)
    assert new.read_bytes() == b"new"
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


def test_pipes_and_devices_are_written_in_place(tmp_path: Path) -> None:
    write_file(os.devnull, b"gone")
    assert not Path(os.devnull).is_file()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(pipe, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ValueError(), OSError(28, "No space")])
def test_whatever_stops_it_nothing_is_left(fault: BaseException, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def fail(place: Path) -> None:
        place.write_text("half")
        raise fault

    expected = PlannerError if isinstance(fault, OSError) else type(fault)
    with pytest.raises(expected), replacing(file) as place:
        fail(place)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
