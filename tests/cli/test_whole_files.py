"""A file that a command writes appears whole or not at all, whatever happens on the way."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import planner
from planner.cli import main
from planner.cli.writing import replacing, write_file
from planner.model.errors import PlannerError
from tests.jsonio.test_iteration import CLUSTER, PROFILE
from tests.jsonio.test_plan_files import CARAMEL, DRIZZLE, IBATCH
from tests.jsonio.test_service import EXAMPLE

ROOM = 64
"""Bytes that a file may have: less than any that is written."""


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    caramel = {**CARAMEL, "method": "layer_by_layer"}
    for name, document in {
        "request.json": EXAMPLE,
        "requests.jsonl": EXAMPLE,
        "groups.json": DRIZZLE,
        "plan.json": planner.solve(caramel),
        "batches.json": planner.solve({**IBATCH, "direction": "push"}),
        "profile.json": PROFILE,
        "cluster.json": CLUSTER,
    }.items():
        (tmp_path / name).write_text(json.dumps(document))
    return tmp_path


COMMANDS = [
    "solve request.json -o out.json",
    "solve requests.jsonl --jsonl -o out.json",
    "compare groups.json -o out.json",
    "compare groups.json --picture out.svg",
    "draw plan.json -o out.svg",
    "draw plan.json -o out.json.gz",
    "export ddp plan.json -o out.json",
    "plan profile.json --cluster cluster.json -o out.json",
    "plan profile.json --cluster cluster.json --picture out.svg",
    "report profile.json --cluster cluster.json -o out.html",
]


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_full_disk_leaves_the_old_file(
    line: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # half a file of it would be read later
    words = line.split()
    out = Path(words[-1])
    out.write_text("what was there")
    files = sorted(folder.iterdir())
    capsys.readouterr()
    with full_disk():
        assert main(words) == 2
    error = capsys.readouterr().err
    assert error == f"planner: error: {out}: cannot be written: File too large\n"
    assert out.read_text() == "what was there"
    assert sorted(folder.iterdir()) == files
    assert main(words) == 0
    assert len(out.read_bytes()) > ROOM
    assert sorted(folder.iterdir()) == files


def test_a_new_file_does_not_appear_half(folder: Path) -> None:
    with full_disk():
        assert main(["solve", str(folder / "request.json"), "-o", str(folder / "new.json")]) == 2
    assert not (folder / "new.json").exists()


def test_standard_output_may_be_full(folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "planner", "solve", str(folder / "request.json")],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert (
        done.stderr
        == b"planner: error: standard output: cannot be written: No space left on device\n"
    )


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("file")
    write_file(link, b"new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    dangling = tmp_path / "dangling"
    dangling.symlink_to("made")
    write_file(dangling, b"new")
    assert (tmp_path / "made").read_text() == "new"


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


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


def test_a_name_may_be_as_long_as_names_are(tmp_path: Path) -> None:
    file = tmp_path / f"{'ü' * 120}.json"
    write_file(file, b"new")
    assert file.read_bytes() == b"new"


def _raised(fault: BaseException) -> Callable[[Path], None]:
    def fail(place: Path) -> None:
        place.write_text("half")
        raise fault

    return fail


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ValueError(), OSError(28, "No space")])
def test_whatever_stops_it_nothing_is_left(fault: BaseException, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    expected = PlannerError if isinstance(fault, OSError) else type(fault)
    with pytest.raises(expected), replacing(file) as place:
        _raised(fault)(place)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
