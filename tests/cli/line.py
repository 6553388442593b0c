"""The command line, run in this process: what it is given, and what it prints."""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from planner.cli import main
from planner.cli.main import parser


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
        return {one: one.read_bytes() if one.is_file() else None for one in self.folder.iterdir()}


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


class Command(NamedTuple):
    """A command: its words, such as ``("calibrate", "network")``, and the names of its options."""

    path: tuple[str, ...]
    options: tuple[str, ...]


def commands(
    of: argparse.ArgumentParser | None = None, path: tuple[str, ...] = ()
) -> Iterator[Command]:
    """Yield the command of a parser, by default the whole command line's, and those below it."""
    one = parser() if of is None else of
    yield Command(path, tuple(name for action in one._actions for name in action.option_strings))
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands(child, (*path, name))
