"""What several commands share: files, progress, subcommands with examples."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.draw import Chart
from planner.errors import InvalidInputError, PlannerError

__all__ = ["Progress", "command", "in_file", "read", "save_picture", "write_text"]


def command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, example: str
) -> argparse.ArgumentParser:
    """Add a subcommand whose help ends with an example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def read(path: str) -> bytes:
    """Return the contents of a file, or of standard input for "-"."""
    return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()


def in_file(path: str, error: InvalidInputError) -> PlannerError:
    """Return `error` with the name of the file it is about."""
    name = "standard input" if path == "-" else path
    return PlannerError(f"{name}: {error}")


def write_text(text: str, path: str | None) -> None:
    """Write to a file, or to standard output without one."""
    if path is None or path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


def save_picture(chart: Chart, path: Path) -> None:
    """Write `chart` in the format its file name asks for.

    Raises
    ------
    InvalidInputError
        If the name asks for none of them.
    """
    from planner.draw import save_gantt, save_trace

    if path.suffix in (".svg", ".png", ".pdf"):
        save_gantt(chart, path)
    elif path.name.endswith((".json", ".json.gz")):
        save_trace(chart, path)
    else:
        known = ".svg, .png, .pdf (a chart) or .json, .json.gz (a trace)"
        raise InvalidInputError(str(path), f"expected a name ending in {known}")


class Progress:
    """One line on standard error that says what is going on; silent unless it is a terminal."""

    def __init__(self) -> None:
        self._active = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show `text` in place of what was shown before."""
        if self._active:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def done(self) -> None:
        """Remove the line."""
        self("")
