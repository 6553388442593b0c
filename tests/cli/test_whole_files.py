"""A file that a command writes appears whole or not at all, and never over what is read."""

import os
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import planner
from planner.cli.common import check_outputs
from planner.cli.writing import replacing, write_file
from planner.model.errors import PlannerError
from tests.cli.documents import IBATCH
from tests.cli.line import Line, write
from tests.jsonio.test_plan_files import CARAMEL, DRIZZLE

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "solve request.json -o out.json",
        "solve request.json --jsonl -o out.json",
        "compare groups.json -o out.json",
        "compare groups.json --picture out.svg",
        "draw plan.json -o out.svg",
        "draw plan.json -o out.json.gz",
        "export ddp plan.json -o out.json",
        "plan model.json --cluster cluster.json -o out.json",
        "plan model.json --cluster cluster.json --picture out.svg",
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
    said = f"planner: error: {out}: cannot be written: File too large\n"
    with full_disk():
        error = line(command, status=2).err
    assert error == said
    assert out.read_text() == "what was there"
    assert sorted(line.folder.iterdir()) == files
    line(command)
    assert len(out.read_bytes()) > ROOM
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


def test_devices_can_be_read_and_written_at_once() -> None:
    check_outputs({"--output": os.devnull, "--picture": os.devnull, "--trace": "-"}, (os.devnull,))


def test_links_and_permissions_stay_and_new_files_have_the_usual_ones(tmp_path: Path) -> None:
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
    before = os.umask(0o027)
    try:
        write_file(tmp_path / f"{'ü' * 120}.json", b"new")  # as long as names are
    finally:
        os.umask(before)
    new = tmp_path / f"{'ü' * 120}.json"
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
