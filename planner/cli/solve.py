"""``planner solve``: requests in, answers out."""

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from planner.cli.common import command, read, standard_input, standard_output
from planner.jsonio import Reply, reply, reply_lines

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "solve",
        run,
        "answer JSON requests with JSON answers",
        """echo '{"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1, 5], \
"compute_ns": [2, 6, 1]}' | planner solve""",
    )
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="default: standard input"
    )
    parser.add_argument(
        "--jsonl", action="store_true", help="one request a line, one answer a line, same order"
    )


def run(options: argparse.Namespace) -> int:
    """Answer; 0 if every request was answered, 2 if one was invalid, 1 after a fault."""
    if not options.jsonl:
        return _emit(reply(read(options.file)))
    if options.file == "-":
        return _stream(standard_input())
    with Path(options.file).open("rb") as stream:
        return _stream(stream)


def _stream(lines: BinaryIO) -> int:
    statuses = {_emit(one) for one in reply_lines(lines)}
    return next((status for status in (1, 2) if status in statuses), 0)


def _emit(answer: Reply) -> int:
    standard_output().write(answer.data + b"\n")
    standard_output().flush()
    if answer.fault is not None and os.environ.get("PLANNER_DEBUG"):
        traceback.print_exception(answer.fault, file=sys.stderr)
    return answer.exit_status
