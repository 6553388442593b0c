"""The command line, run in this process: what it is given, and what it prints."""

import json
import shlex
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from planner.cli import main


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Line:
    """The command line in the current folder."""

    def __init__(
        self, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        self._capture, self._patch, self.folder = capture, patch, folder

    def __call__(self, *words: str, status: int | None = 0, given: Any = None) -> Said:
        """Run a command, typed as one text or as several; `given` is its standard input.

        It ends with this status, or, for None, with 0 or 2.
        """
        if given is not None:
            data = given if isinstance(given, bytes) else json.dumps(given).encode()
            self._patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))
        self._capture.readouterr()
        try:
            ended: Any = main([word for text in words for word in shlex.split(text)])
        except SystemExit as stop:  # argparse's own: errors and help
            ended = stop.code
        said = Said(*self._capture.readouterr())
        assert ended in ((0, 2) if status is None else (status,)), said
        return said

    def error(self, *words: str) -> str:
        """Return why a command is refused: it prints nothing else, and all files stay."""
        before = self._files()
        said = self(*words, status=2)
        assert said.out == ""
        assert self._files() == before
        return said.err

    def _files(self) -> dict[Path, bytes | None]:
        return {
            path: path.read_bytes() if path.is_file() else None for path in self.folder.iterdir()
        }


def started(words: str) -> subprocess.Popen[bytes]:
    """Start a command as a process of its own, all of whose streams are pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "planner", *words.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def write(name: str, content: Any) -> str:
    """Write a file, as JSON unless it is text, and return its name."""
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


def read(name: str) -> Any:
    """Return the contents of a file of JSON."""
    return json.loads(Path(name).read_bytes())


def without_runtime(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "runtime_s"}
