"""The lines of Spark's event logs, of any length, plain or packed by zstd.

Problem: a log is a file of JSON lines, of gigabytes, plain or compressed, or a rolling directory of
such files, of which the first may have been compacted. Method: a file's first bytes determine the
codec, not its name, and it is unpacked piece by piece. A log that is still being written may end
anywhere.
Guarantee: every whole line up to the end, or up to the damage with a warning. Memory is that of a
piece and the longest line.
Complexity: O(bytes). Source: Spark's EventLogFileWriters, EventLogFileCompactor, CompressionCodec.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from planner.model.errors import InvalidInputError, MissingExtraError

PIECE = 1 << 20  # bytes that are read at once
MAX_LINE = 1 << 28  # longest line (bytes): plans of SQL may have some megabytes

_ROLLED = re.compile(r"events_(\d+)_.*?(\.compact)?")
_STEP = 1 << 14  # packed bytes that are unpacked at once


def parts_of(path: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a log in order, and warnings about missing ones."""
    if not path.is_dir():
        return [path], []
    rolled = {}
    first = 0
    for file in path.iterdir():
        match = _ROLLED.fullmatch(file.name)
        if match is None or file.name.endswith((".crc", ".inprogress")):
            continue
        number = int(match[1])
        if match[2]:
            first = max(first, number)
        if match[2] or number not in rolled:
            rolled[number] = file
    numbers = sorted(number for number in rolled if number >= first)
    if not numbers:
        raise InvalidInputError(
            "", "expected a rolling event log, with files such as events_1_<application>"
        )
    missing = sorted(set(range(first or 1, numbers[-1])) - set(numbers))
    warnings = []
    if missing:
        names = ", ".join(f"events_{number}" for number in missing[:5])
        warnings.append(f"{names}{' …' if len(missing) > 5 else ''} missing: their events are lost")
    return [rolled[number] for number in numbers], warnings


def lines_of(
    source: BinaryIO, name: str, warn: Callable[[str], None]
) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file without their ends, each behind its place (``line 12``).

    Places contain `name` if the log has several files. `warn` is called with damages.
    """
    prefix = f"{name}, " if name else ""
    number, rest = 0, b""
    for piece in _unpacked(source, lambda text: warn(f"{prefix}{text}")):
        *whole, rest = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
        for text in whole:
            number += 1
            yield f"{prefix}line {number}", text
        if len(rest) > MAX_LINE:
            raise InvalidInputError(
                f"{prefix}line {number + 1}", f"expected at most {MAX_LINE} bytes a line"
            )
    if rest.strip():
        yield f"{prefix}line {number + 1}", rest


def _unpacked(source: BinaryIO, warn: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the unpacked text, in pieces, up to the first damage."""
    pieces = iter(lambda: source.read(PIECE), b"")
    first = next(pieces, b"")
    if not first.startswith(b"\x28\xb5\x2f\xfd"):
        yield from chain([first], pieces)
        return
    try:
        zstandard: Any = import_module("zstandard")
    except ModuleNotFoundError as error:
        raise MissingExtraError("zstandard", "spark-events") from error
    unpacking = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True)
    try:
        for piece in chain([first], pieces):
            for at in range(0, len(piece), _STEP):
                if text := unpacking.decompress(piece[at : at + _STEP]):
                    yield text
    except zstandard.ZstdError as error:
        warn(f"zstd: {error}; read up to there")


# ---
# The types of the Spark events that are decoded, with the fields that are needed.
#
# Source: Spark's JsonProtocol, versions 3 and 4.


def _named(name: str, default: Any) -> Any:
    return msgspec.field(default=default, name=name)


class StageInfo(msgspec.Struct, frozen=True, gc=False):
    """An attempt at a stage."""

    number: int = msgspec.field(name="Stage ID")
    attempt: int = _named("Stage Attempt ID", 0)
    name: str = _named("Stage Name", "")
    tasks: int = _named("Number of Tasks", 0)
    parents: tuple[int, ...] = _named("Parent IDs", ())


class JobStart(msgspec.Struct, frozen=True, gc=False):
    """A job was submitted."""

    number: int = msgspec.field(name="Job ID")
    time: int = msgspec.field(name="Submission Time")
    stages: tuple[int, ...] = _named("Stage IDs", ())
    properties: dict[str, Any] | None = _named("Properties", None)


class JobEnd(msgspec.Struct, frozen=True, gc=False):
    """A job has ended."""

    number: int = msgspec.field(name="Job ID")
    time: int = msgspec.field(name="Completion Time")
    result: dict[str, Any] = _named("Job Result", {})


class StageSubmitted(msgspec.Struct, frozen=True, gc=False):
    """A stage was submitted."""

    info: StageInfo = msgspec.field(name="Stage Info")


class TaskInfo(msgspec.Struct, frozen=True, gc=False):
    """Place and times of an attempt at a task."""

    launched: int = msgspec.field(name="Launch Time")
    finished: int = msgspec.field(name="Finish Time")
    index: int = _named("Index", 0)
    partition: int = _named("Partition ID", -1)  # not before Spark 3.2
    executor: str = _named("Executor ID", "")
    getting_result: int = _named("Getting Result Time", 0)
    speculative: bool = _named("Speculative", default=False)


class Metrics(msgspec.Struct, frozen=True, gc=False):
    """How long a task ran (ms)."""

    run: int = _named("Executor Run Time", 0)


class TaskEnd(msgspec.Struct, frozen=True, gc=False):
    """An attempt at a task has ended."""

    stage: int = msgspec.field(name="Stage ID")
    info: TaskInfo = msgspec.field(name="Task Info")
    attempt: int = _named("Stage Attempt ID", 0)
    reason: dict[str, Any] = _named("Task End Reason", {})
    metrics: Metrics | None = _named("Task Metrics", None)


class ExecutorInfo(msgspec.Struct, frozen=True, gc=False):
    """The cores of an executor."""

    cores: int = _named("Total Cores", 0)


class About(msgspec.Struct, frozen=True, gc=False):
    """What an event says of the application, its configuration, Spark or a new executor."""

    name: str = _named("App Name", "")
    version: str = _named("Spark Version", "")
    properties: dict[str, Any] = _named("Spark Properties", {})
    executor: str = _named("Executor ID", "")
    info: ExecutorInfo = _named("Executor Info", ExecutorInfo())


_ABOUT = ("LogStart", "ApplicationStart", "ApplicationEnd", "EnvironmentUpdate", "ExecutorAdded")
_KINDS = {kind.__name__: kind for kind in (JobStart, JobEnd, StageSubmitted, TaskEnd)}

DECODERS = {
    f"SparkListener{name}".encode(): msgspec.json.Decoder(kind)
    for name, kind in (dict.fromkeys(_ABOUT, About) | _KINDS).items()
}
"""The decoder of each event, by its name."""
