"""``planner import``: other tools' files as profiles, networks, requests or measurements."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from planner.cli.common import (
    check_outputs,
    command,
    in_file,
    read,
    readable,
    standard_input,
    write_json,
)
from planner.cli.import_network import GRAPHS, NETWORKS, import_graph, import_network
from planner.cli.spark_logs import FORMAT, import_spark
from planner.cli.telling import Progress, tell
from planner.formats import READERS
from planner.jsonio import encode_profile
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES
from planner.model.profiles import STATISTICS
from planner.model.units import escaped
from planner.model.validation import integer

_MB = 10**6


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "import",
        run,
        "turn another tool's file into a profile, a network, a request, or what scheduling takes",
        "planner import pipedream graph.txt -o vgg16.json\n"
        "  planner import kineto trace.json.gz --batch-size 64 -o resnet50.json\n"
        "  planner import nccl-tests all_reduce.log all_gather.log -o network.json\n"
        "  planner import fx rank0.json rank1.json -o graph.json\n"
        "  planner import spark-events eventlog_v2_app-20261125093000-0001 -o spark.json",
    )
    parser.add_argument(
        "format",
        choices=[*READERS, *NETWORKS, *GRAPHS, FORMAT],
        help="; ".join(
            f"{name}: {about}"
            for name, about in (
                *((name, reader.about) for name, reader in READERS.items()),
                *((name, network.about) for name, network in NETWORKS.items()),
                *((name, graph.about) for name, graph in GRAPHS.items()),
                (FORMAT, "event logs of Spark 3 or 4, files or folders"),
            )
        ),
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="'-': standard input; several of timed collectives become one network; of a compiled "
        "graph: one a rank, which must start collectives in the same order",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--name", help="name of the model; default: the file's name")
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples of one iteration")
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="of timed collectives: among how many ranks, where a file does not list them",
    )
    parser.add_argument(
        "--ranks-per-host",
        type=int,
        metavar="G",
        help="of timed collectives: how many ranks share a host; default: as the file lists",
    )
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="N=RATE",
        help="of timed collectives, where hosts have several kinds of link: the line rate in one "
        "direction of the slowest that joins N ranks of a host; again for more: --link 2=300GB/s "
        "--link 4=32GB/s",
    )
    parser.add_argument(
        "--collective",
        choices=COLLECTIVES,
        help="of nccl-tests: what was timed, where neither a file nor its name says it",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="of nccl-tests: take the times in place"
    )
    parser.add_argument(
        "--statistic",
        choices=list(STATISTICS),
        help="kineto: how the times of several steps become one; default: median",
    )


def run(options: argparse.Namespace) -> int:
    """Import a file, with warnings on standard error."""
    if options.batch_size is not None:
        integer(options.batch_size, "--batch-size", minimum=1)
    check_outputs({"--output": options.output}, options.file)
    if options.format in GRAPHS:
        return import_graph(options)
    reader = READERS.get(options.format)
    if options.statistic is not None and not (reader and reader.streams):
        raise InvalidInputError("--statistic", f"a file of {options.format} has one time an op")
    if reader is None and (options.batch_size is not None or options.name is not None):
        raise InvalidInputError("--name, --batch-size", "only of models")
    if reader is None and options.format != FORMAT:
        return import_network(options)
    counts = (options.ranks, options.ranks_per_host)
    rows_only = (options.in_place, options.link, options.collective)
    if any(rows_only) or any(count is not None for count in counts):
        raise InvalidInputError(
            "--ranks, --ranks-per-host, --link, --collective, --in-place",
            "only of timed collectives",
        )
    if reader is None:
        import_spark(options.file, options.output, quiet=options.quiet)
        return 0
    if len(options.file) > 1:
        raise InvalidInputError("FILE", f"expected one of {options.format}")
    (file,) = options.file
    path = Path(file)
    named: dict[str, Any] = {
        "name": readable(options.name or reader.name_of(path.name)),
        "source": readable(path.name),
        "batch_size": options.batch_size,
    }
    if reader.streams:
        progress = Progress(quiet=options.quiet)
        with opened(file) as (source, size), in_file(file):
            profile, warnings = reader.read(
                source,
                **named,
                statistic=options.statistic or "median",
                progress=lambda done: progress(
                    f"{readable(path.name)}: MB read:", done // _MB, max(size, done) // _MB
                ),
            )
        progress.done()
    else:
        data = read(file)
        with in_file(file):
            profile, warnings = reader.read(data, **named)
    for warning in warnings:
        warn = escaped(f"{readable(path.name)}: {warning}")
        print(f"planner: warning: {warn}", file=sys.stderr)
    write_json(encode_profile(profile), options.output)
    return 0


@contextmanager
def opened(path: str) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file, or standard input for "-", as a stream with its size (bytes; 0: unknown)."""
    tell(f"reading {'standard input' if path == '-' else path}")
    if path == "-":
        yield standard_input(), 0
        return
    with Path(path).open("rb") as file:
        yield file, Path(path).stat().st_size
