"""Helpers that several commands share: files, error paths, subcommands with examples."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO, TypeVar

from planner.cli.parsing import add_options
from planner.cli.writing import write_file, writing
from planner.model.errors import InvalidInputError, PlannerError
from planner.model.units import escaped, escaped_json, printable

if TYPE_CHECKING:
    from planner.model.measured import MeasuredNetwork

T = TypeVar("T")

_READ = (
    *("file", "plan", "plans", "profile", "cluster", "network", "measurements", "traces"),
    "events",
)
_WRITTEN = ("picture", "trace", "output", "cluster_out")
"""Options that name files."""

ERROR_SIGN = "predicted / measured - 1; above 0 the prediction is too long"
"""Meaning of the sign of prediction errors, printed wherever errors are printed."""


def command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    example: str,
    options: Mapping[str, str],
    more: Mapping[str, Mapping[str, Any]] | None = None,
    about: str = "",
) -> argparse.ArgumentParser:
    """Add a subcommand with `add_options`, whose help ends with an example; return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description="\n\n".join(filter(None, (f"{summary[0].upper()}{summary[1:]}.", about))),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    add_options(parser, {"-q, --quiet": "show no progress", **options}, more)
    return parser


def read(path: str) -> bytes:
    """Return the contents of a file, or of standard input for "-"."""
    return standard("input").read() if path == "-" else Path(path).read_bytes()


def standard(name: Literal["input", "output"]) -> BinaryIO:
    """Return standard input or output as a stream of bytes."""
    stream: TextIO | None = sys.stdin if name == "input" else sys.stdout
    if stream is None:
        raise PlannerError(f"standard {name} is closed")
    return stream.buffer


def read_as(path: str, decoded: Callable[[bytes], T]) -> T:
    """Return the decoded contents of a file, or of standard input for "-"."""
    data = read(path)
    with in_file(path, data=data):
        return decoded(data)


def measured_tables(data: bytes) -> "MeasuredNetwork":
    """Return the measured tables of a network document; InvalidInputError without any."""
    from planner.jsonio.network import decode_network  # only then: it loads families

    tables = decode_network(data).tables
    if tables is None:
        raise InvalidInputError(
            "",
            "expected measured tables of collectives, of planner calibrate network or planner "
            "import, got what was not timed",
        )
    return tables


@contextmanager
def in_file(path: str, *, data: bytes | None = None, reader: str = "") -> Iterator[None]:
    """Add the file's name to errors of invalid input in the block; raise PlannerError instead.

    Errors of an option stay unchanged. `data` is the file's content (default: the file is read
    again) and `reader` the format that ``planner import`` expects: both serve to recognise a file
    of another kind.
    """
    try:
        yield
    except InvalidInputError as error:
        if error.path.startswith("--"):
            raise
        # Only then: it loads readers.
        from planner.formats.importers.foreign import SEARCHED, foreign

        name = "standard input" if path == "-" else path
        if data is None and Path(path).is_file():
            with suppress(OSError), Path(path).open("rb") as file:
                data = file.read(SEARCHED)
        other = foreign(data or b"", reader)
        raise PlannerError(escaped(f"{name}: {other or error}")) from None


@contextmanager
def in_option(name: str) -> Iterator[None]:
    """Replace the path of InvalidInputError in the block by an option's name."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(name, error.message) from None


def file_name(path: str) -> str:
    """Return the name of a file without its folder."""
    name = "standard input" if path == "-" else Path(path).name
    return readable(name)


def readable(name: str) -> str:
    """Return a file's name as text, with undecodable bytes replaced."""
    return name.encode("utf-8", "replace").decode()


def write_json(text: str, path: str | None) -> None:
    """Write JSON as UTF-8 to a file, or to standard output without one."""
    _write(escaped_json(text.encode("utf-8", "replace")), path)


def write_document(text: str, path: str | None) -> None:
    """Write text as UTF-8 to a file, or to standard output without one."""
    _write(text.encode("utf-8", "replace"), path)


def _write(data: bytes, path: str | None) -> None:
    if path is None or path == "-":
        output = standard("output")
        with writing("standard output"):
            sys.stdout.flush()
            output.write(data)
            output.flush()
    else:
        write_file(path, data)


def warn(lines: Iterable[str]) -> None:
    """Print lines on standard error."""
    if sys.stderr is not None:
        sys.stderr.write("".join(f"planner: {line}\n" for line in lines))


def complain(text: str) -> None:
    """Print why this process ends, and record it for the launcher if there is one.

    The processes of a job share their standard error, so each message names its rank and is written
    in one piece. torchrun shows the content of the file that TORCHELASTIC_ERROR_FILE names.
    """
    rank = os.environ.get("RANK", "")
    text = escaped(text, keep="\n")
    whose = f"rank {rank}: " if rank and os.environ.get("WORLD_SIZE", "1") != "1" else ""
    if sys.stderr is not None:
        over = "\r\x1b[K" if sys.stderr.isatty() else ""  # a line of progress
        sys.stderr.write(f"{over}{whose}{text}\n")
        sys.stderr.flush()
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file:
        record = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
        with suppress(OSError):  # standard error has the message already
            Path(file).write_text(json.dumps({"message": record}), "utf-8")


def write_text(text: str) -> None:
    """Write text to standard output in its own encoding."""
    standard("output")
    encoding = sys.stdout.encoding or "utf-8"
    shown = printable(text, keep="\n")
    with writing("standard output"):
        sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str | None] = ()) -> None:
    """Raise InvalidInputError for outputs that cannot be written or collide.

    An output collides if it would replace an input or another output. `outputs` maps options to
    paths, where ``-`` and None are no files.
    """
    taken = {_file(path): "is read" for path in inputs if path is not None and path != "-"}
    for option, path in outputs.items():
        if path is None or path == "-":
            continue
        place = Path(path).absolute()
        if not place.parent.is_dir():
            raise InvalidInputError(option, f"no such folder: {Path(path).parent}")
        if place.is_dir():
            raise InvalidInputError(option, f"is a folder: {path}")
        if not os.access(place if place.exists() else place.parent, os.W_OK):
            raise InvalidInputError(option, f"no permission to write {path}")
        if place.exists() and not place.is_file():
            continue  # devices such as /dev/null can be written several times
        known = _file(path)
        if known in taken:
            raise InvalidInputError(option, f"would replace {path}, which {taken[known]}")
        taken[known] = f"{option} writes"


def check_files(options: argparse.Namespace) -> None:
    """Check the files that a command's options name; in a job only rank 0 checks and writes."""
    if os.environ.get("RANK", "0") == "0":
        typed = vars(options)
        read = [typed.get(name) for name in _READ]
        lists = [known if isinstance(known, list) else [known] for known in read]
        written = {f"--{name.replace('_', '-')}": typed.get(name) for name in _WRITTEN}
        check_outputs(written, chain.from_iterable(lists))


def _file(path: str) -> Hashable:
    """Return a key that all names of one file share."""
    try:
        known = Path(path).stat()
    except OSError:
        return Path(path).resolve()
    return known.st_dev, known.st_ino
