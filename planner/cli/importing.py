"""``planner import``: other tools' files as profiles."""

import argparse
import sys
from pathlib import Path
from typing import Any

from planner.cli.common import check_outputs, command, in_file, read, readable, write_json
from planner.formats import READERS
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
        choices=list(READERS),
        help="; ".join(f"{name}: {reader.about}" for name, reader in READERS.items()),
    )
    parser.add_argument("file", metavar="FILE", help="'-': standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--name", help="name of the model; default: the file's name")
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples of one iteration")


def run(options: argparse.Namespace) -> int:
    """Import, with warnings on standard error."""
    if options.batch_size is not None:
        integer(options.batch_size, "--batch-size", minimum=1)
    check_outputs({"--output": options.output}, (options.file,))
    data = read(options.file)
    path = Path(options.file)
    reader = READERS[options.format]
    with in_file(options.file):
        profile, warnings = reader.read(
            data,
            name=readable(options.name or reader.name_of(path.name)),
            source=readable(path.name),
            batch_size=options.batch_size,
        )
    for warning in warnings:
        warn = escaped(f"{readable(path.name)}: {warning}")
        print(f"planner: warning: {warn}", file=sys.stderr)
    write_json(encode_profile(profile), options.output)
    return 0
