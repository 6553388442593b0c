"""The lines of Spark's event logs, of any length, plain or packed by zstd or LZ4.

Problem: a log is a file of JSON lines, of gigabytes, plain or compressed by one of Spark's codecs,
or a rolling directory of such files, of which the first may have been compacted. Method: a file's
first bytes determine the codec, not its name, and it is unpacked piece by piece. LZ4 has lz4-java's
own blocks instead of frames. A log that is still being written may end anywhere.
Guarantee: every whole line up to the end, or up to the damage with a warning. Memory is that of a
piece and the longest line.
Complexity: O(bytes). Source: Spark's EventLogFileWriters, EventLogFileCompactor, CompressionCodec;
LZ4BlockOutputStream of lz4-java for the form of its blocks.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from planner.model.errors import InvalidInputError, MissingExtraError

PIECE = 1 << 20  # bytes that are read at once
MAX_LINE = 1 << 28  # longest line (bytes): plans of SQL may have some megabytes

_ROLLED = re.compile(r"events_(\d+)_.*?(\.compact)?")
_LZ4 = b"LZ4Block"
_LZ4_HEADER = 21
_RAW, _PACKED = 0x10, 0x20


class Line(NamedTuple):
    """A line of a log, without its line end."""

    text: bytes
    where: str  # its place, such as ``line 12``
    whole: bool  # whether it had a line end


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
    source: BinaryIO,
    name: str,
    warn: Callable[[str], None],
    progress: Callable[[int], None] | None = None,
) -> Iterator[Line]:
    """Yield the lines of a file, with `name` in their places if the log has several files.

    `warn` is called with damages, `progress` with the bytes read so far.
    """
    prefix = f"{name}, " if name else ""
    number, rest = 0, b""
    for piece in _unpacked(_pieces(source, progress), lambda text: warn(f"{prefix}{text}")):
        *whole, rest = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
        for text in whole:
            number += 1
            yield Line(text, f"{prefix}line {number}", whole=True)
        if len(rest) > MAX_LINE:
            raise InvalidInputError(
                f"{prefix}line {number + 1}", f"expected at most {MAX_LINE} bytes a line"
            )
    if rest.strip():
        yield Line(rest, f"{prefix}line {number + 1}", whole=False)


def _pieces(source: BinaryIO, progress: Callable[[int], None] | None) -> Iterator[bytes]:
    read = 0
    while data := source.read(PIECE):
        read += len(data)
        if progress is not None:
            progress(read)
        yield data


def _unpacked(pieces: Iterator[bytes], warn: Callable[[str], None]) -> Iterator[bytes]:
    """Return the unpacked text, in pieces."""
    first = next(pieces, b"")
    again = chain([first], pieces)
    if first.startswith(b"\x28\xb5\x2f\xfd"):
        zstandard = _codec("zstandard")
        unpacking = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True)
        step = 1 << 14
        small = (piece[at : at + step] for piece in again for at in range(0, len(piece), step))
        return _whole(map(unpacking.decompress, small), "zstd", warn, zstandard.ZstdError)
    if first.startswith(_LZ4):
        block = _codec("lz4.block")
        damages = (ValueError, RuntimeError, block.LZ4BlockError)
        return _whole(_lz4(again, block, warn), "lz4", warn, *damages)
    if first.startswith((b"ZV", b"\x82SNAPPY")):
        codec = "lzf" if first.startswith(b"ZV") else "snappy"
        raise InvalidInputError(
            "",
            f"packed by {codec}, which is not read: write logs with "
            "spark.eventLog.compression.codec=zstd or lz4",
        )
    return again


def _whole(
    texts: Iterator[bytes], codec: str, warn: Callable[[str], None], *damages: type[Exception]
) -> Iterator[bytes]:
    """Yield texts up to the first damage, with a warning."""
    try:
        yield from filter(None, texts)
    except damages as error:
        warn(f"{codec}: {error}; read up to there")


def _codec(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(name.partition(".")[0], "spark-events") from error


def _lz4(pieces: Iterator[bytes], block: Any, warn: Callable[[str], None]) -> Iterator[bytes]:
    held = b""
    for piece in pieces:
        held += piece
        while len(held) >= _LZ4_HEADER:
            kind = held[8] & 0xF0
            packed, length = (int.from_bytes(held[at : at + 4], "little") for at in (9, 13))
            if held[:8] != _LZ4 or kind not in (_RAW, _PACKED) or max(packed, length) > MAX_LINE:
                raise ValueError("a damaged block")
            end = _LZ4_HEADER + packed
            if len(held) < end:
                break
            data, held = held[_LZ4_HEADER:end], held[end:]
            yield data if kind == _RAW else block.decompress(data, uncompressed_size=length)
    if held:
        warn("lz4: the last block is cut")


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


class ShuffleRead(msgspec.Struct, frozen=True, gc=False):
    """What a task fetched from other machines (bytes), and its wait for all (ms)."""

    remote: int = _named("Remote Bytes Read", 0)
    waited: int = _named("Fetch Wait Time", 0)


class ShuffleWrite(msgspec.Struct, frozen=True, gc=False):
    """What a task wrote for others."""

    written: int = _named("Shuffle Bytes Written", 0)


class Metrics(msgspec.Struct, frozen=True, gc=False):
    """How long a task ran, and what it sent (ms and bytes)."""

    run: int = _named("Executor Run Time", 0)
    result: int = _named("Result Size", 0)
    read: ShuffleRead | None = _named("Shuffle Read Metrics", None)
    write: ShuffleWrite | None = _named("Shuffle Write Metrics", None)


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


class ExecutorAdded(msgspec.Struct, frozen=True, gc=False):
    """An executor has registered."""

    executor: str = msgspec.field(name="Executor ID")
    info: ExecutorInfo = msgspec.field(name="Executor Info")


class EnvironmentUpdate(msgspec.Struct, frozen=True, gc=False):
    """The configuration of the application."""

    properties: dict[str, Any] = _named("Spark Properties", {})


class LogStart(msgspec.Struct, frozen=True, gc=False):
    """The version of Spark."""

    version: str = _named("Spark Version", "")


class ApplicationStart(msgspec.Struct, frozen=True, gc=False):
    """The name of the application."""

    name: str = _named("App Name", "")


class ApplicationEnd(msgspec.Struct, frozen=True, gc=False):
    """The log is complete."""


DECODERS = {
    f"SparkListener{kind.__name__}".encode(): msgspec.json.Decoder(kind)
    for kind in (
        *(LogStart, ApplicationStart, ApplicationEnd, EnvironmentUpdate, ExecutorAdded),
        *(JobStart, JobEnd, StageSubmitted, TaskEnd),
    )
}
"""The decoder of each event, by its name."""
