"""``planner import``: other tools' files as profiles."""

import argparse
import sys
from pathlib import Path
from typing import Any

from planner.cli.common import check_outputs, command, in_file, read, write_json
from planner.errors import InvalidInputError
from planner.formats import read_kineto, read_pipedream
from planner.jsonio import encode_profile
from planner.printing import escaped
from planner.validation import integer

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "import",
        run,
        "turn another tool's file into a profile",
        "planner import pipedream graph.txt -o vgg16.json\n"
        "  planner import kineto trace.json.gz --batch-size 64 -o resnet50.json",
    )
    parser.add_argument(
        "format",
        choices=["pipedream", "kineto"],
        help="pipedream: its profiler's graph.txt; kineto: a trace of PyTorch's profiler "
        "(.json, .json.gz), recorded with record_shapes=True",
    )
    parser.add_argument("file", metavar="FILE", help="'-': standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--name", help="name of the model; default: the file's name")
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples of one iteration")


def readable(name: str) -> str:
    """Return a file's name as text, whatever its encoding was."""
    return name.encode("utf-8", "replace").decode()


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError("", f"not UTF-8: {error.reason} at byte {error.start}") from None


def run(options: argparse.Namespace) -> int:
    """Import, with warnings on standard error."""
    if options.batch_size is not None:
        integer(options.batch_size, "--batch-size", minimum=1)
    check_outputs({"--output": options.output}, (options.file,))
    data = read(options.file)
    path = Path(options.file)
    about = {"source": readable(path.name), "batch_size": options.batch_size}
    try:
        if options.format == "kineto":
            stem = path.name.removesuffix(".gz").removesuffix(".json")
            profile, warnings = read_kineto(data, name=readable(options.name or stem), **about)
        else:
            name = readable(options.name or path.stem)
            profile, warnings = read_pipedream(_text(data), name=name, **about)
    except InvalidInputError as error:
        raise in_file(options.file, error) from None
    for warning in warnings:
        warn = escaped(f"{readable(path.name)}: {warning}")
        print(f"planner: warning: {warn}", file=sys.stderr)
    write_json(encode_profile(profile), options.output)
    return 0
