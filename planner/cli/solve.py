"""``planner solve``: answer JSON requests."""

import argparse
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from planner.cli.common import command, standard
from planner.cli.interrupting import interruptible
from planner.cli.parsing import seconds
from planner.cli.writing import replacing, writing
from planner.jsonio import Reply
from planner.jsonio.streams import CancellableLines, limited_replies, one_message
from planner.jsonio.workers import Limits
from planner.model.units import escaped_json
from planner.model.validation import shown
from planner.solving.deadline import Cancel
from planner.view.progress import Progress

_LIMITS = {
    "--max-request-bytes": ("request_bytes", "length of a request"),
    "--max-memory-bytes": ("memory_bytes", "memory of the process that answers"),
    "--max-seconds": ("seconds", "processor time"),
}
"""Options that set limits: the field of `Limits`, and what it limits."""


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
        {
            "file FILE? (-)": "default: standard input",
            "--jsonl": "one request a line, one answer a line, same order",
            "-o, --output FILE (-)": "write the answer, or the error, here; default: standard "
            "output",
        },
    )
    group = parser.add_argument_group(
        "limits of each request",
        "What exceeds one is answered by an error in its place; 0: no limit.",
    )
    for option, (name, what) in _LIMITS.items():
        usual, kind = getattr(Limits(), name), _seconds if name == "seconds" else _amount
        told = f"{what}; default: {usual:.15g}"
        group.add_argument(option, metavar="N", type=kind, default=usual, help=told)


def run(options: argparse.Namespace) -> int:
    """Answer requests; return 0 if all succeed, 2 after a refusal, 1 after a fault."""
    limits = Limits(
        **{name: getattr(options, f"max_{name}") or None for name, _ in _LIMITS.values()}
    )
    with ExitStack() as files:
        source = (
            standard("input")
            if options.file == "-"
            else files.enter_context(Path(options.file).open("rb"))
        )
        target = (
            standard("output")
            if options.output == "-"
            else files.enter_context(files.enter_context(replacing(options.output)).open("wb"))
        )
        return _answered(options, source, target, limits)


def _answered(
    options: argparse.Namespace, source: BinaryIO, target: BinaryIO, limits: Limits
) -> int:
    """Answer the requests of a stream; Ctrl-C ends with the best answer so far."""
    progress = Progress(quiet=options.quiet)
    lines = CancellableLines(source, limits) if options.jsonl else None
    messages = one_message(source, limits) if lines is None else lines

    def told(line: bytes) -> None:
        if lines is not None:
            _write(line, target, options.output)

    with ExitStack() as interrupting:
        interrupted: list[threading.Event] = []

        def cancels(number: int) -> Cancel:
            progress(f"answering request {number}")
            if not interrupted:  # before a request, Ctrl-C has no plan to return
                interrupted.append(interrupting.enter_context(interruptible()))
            return _Either(interrupted[0], lines, number)

        def until_interrupted() -> Iterator[bytes]:
            for message in messages:
                yield message
                interrupting.close()
                if interrupted.pop().is_set():
                    raise KeyboardInterrupt

        replies = limited_replies(until_interrupted(), limits, told, cancels)
        status = _written(replies, target, options.output)
    progress.done()
    return status


class _Either:
    """Cancels a request on Ctrl-C, or by another line of the stream."""

    def __init__(
        self, interrupted: threading.Event, lines: CancellableLines | None, number: int
    ) -> None:
        self._interrupted, self._lines, self._number = interrupted, lines, number

    def is_set(self) -> bool:
        """Return whether to stop."""
        if self._interrupted.is_set():
            return True
        return self._lines is not None and self._lines.cancelled(self._number)


def _write(data: bytes, stream: BinaryIO, path: str) -> None:
    with writing("standard output") if path == "-" else nullcontext():
        stream.write(escaped_json(data) + b"\n")
        stream.flush()


def _written(replies: Generator[Reply, None, None], stream: BinaryIO, path: str) -> int:
    """Write each answer as soon as it is complete; return the exit status."""
    statuses = set()
    with closing(replies):
        for reply in replies:
            _write(reply.data, stream, path)
            statuses.add(reply.exit_status)
    return next((status for status in (1, 2) if status in statuses), 0)


def _amount(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number >= 0, got {shown(text)}")
    return int(text)


def _seconds(text: str) -> float:
    number = seconds(text)
    if not 0 <= number <= 10**9:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to 10^9, got {shown(text)}")
    return number
