"""No command writes over what it reads, whichever it is."""

import json
import os
from pathlib import Path

import pytest

import planner
from planner.cli import main
from planner.cli.common import check_outputs
from tests.jsonio.test_service import EXAMPLE


@pytest.mark.parametrize(
    "words",
    [
        ["solve", "{file}"],
        ["compare", "{file}"],
        ["draw", "{file}"],
        ["export", "ddp", "{file}"],
        ["import", "kineto", "{file}"],
        ["import", "pipedream", "{file}"],
    ],
    ids=" ".join,
)
def test_what_is_read_is_not_written(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.json"
    document = planner.solve(EXAMPLE) if words[0] == "draw" else EXAMPLE
    file.write_text(json.dumps(document))
    before = file.read_bytes()
    arguments = [word.format(file=file) for word in words]
    link = tmp_path / "link.json"
    link.symlink_to(file)
    for name in (file, link):
        assert main([*arguments, "-o", str(name)]) == 2
        assert f"--output: would replace {name}, which is read" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_devices_can_be_read_and_written_at_once() -> None:
    check_outputs({"--output": os.devnull, "--picture": os.devnull, "--trace": "-"}, (os.devnull,))
