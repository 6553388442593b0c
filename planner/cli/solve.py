"""``planner solve``: requests in, answers out."""

import argparse
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from planner.cli.common import check_outputs, command, read, standard_input, standard_output
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
"compute_ns": [2, 6, 1]}' | planner solve
  planner solve request.json -o plan.json""",
    )
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="default: standard input"
    )
    parser.add_argument(
        "--jsonl", action="store_true", help="one request a line, one answer a line, same order"
    )
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="write the answer, or the error, here; default: standard output",
    )


def run(options: argparse.Namespace) -> int:
    """Answer; 0 if every request was answered, 2 if one was invalid, 1 after a fault."""
    check_outputs({"--output": options.output}, (options.file,))
    if not options.jsonl:
        return _answered([reply(read(options.file))], options.output)
    if options.file == "-":
        return _answered(reply_lines(standard_input()), options.output)
    with Path(options.file).open("rb") as stream:
        return _answered(reply_lines(stream), options.output)


def _answered(replies: Iterable[Reply], path: str) -> int:
    if path == "-":
        return _written(replies, standard_output())
    with Path(path).open("wb") as stream:
        return _written(replies, stream)


def _written(replies: Iterable[Reply], stream: BinaryIO) -> int:
    """Write each answer as soon as it is there."""
    statuses = set()
    for one in replies:
        stream.write(one.data + b"\n")
        stream.flush()
        if one.fault is not None and os.environ.get("PLANNER_DEBUG"):
            traceback.print_exception(one.fault, file=sys.stderr)
        statuses.add(one.exit_status)
    return next((status for status in (1, 2) if status in statuses), 0)
