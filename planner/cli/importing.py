"""``planner import``: other tools' files as profiles, networks, requests or measurements."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from planner.cli.common import (
    command,
    file_name,
    in_file,
    measured_tables,
    read,
    readable,
    warn,
    write_json,
)
from planner.cli.parsing import check_integers, refuse
from planner.cli.spark_logs import import_spark
from planner.families.overlap import evaluate, own_order, with_limit
from planner.formats import READERS
from planner.formats.importers.deepspeed_comms import read_deepspeed_comms
from planner.formats.importers.fx import Freed, problem_of
from planner.formats.importers.nccl_tests import read_nccl_tests
from planner.formats.importers.timed_rows import Read, TimedRow, network_of, read_vidur
from planner.jsonio import encode_profile
from planner.jsonio.graphs import decode_fx
from planner.jsonio.network_measurements import encode_measured
from planner.jsonio.overlap import encode_request
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Link
from planner.model.units import escaped, parse_rate
from planner.model.validation import inside, shown

FX, SPARK = "fx", "spark-events"

_OF_MODELS = ("--name", "--batch-size")
_OF_COLLECTIVES = ("--ranks", "--ranks-per-host", "--link", "--collective")


def _document(data: bytes, **_: Any) -> Read:
    """Return the rows of a network document."""
    rows = [
        TimedRow(table.collective, table.ranks, table.per_host, size, time, "table")
        for table in measured_tables(data).tables
        for size, time in table.points
    ]
    return rows, ()


NETWORKS: Mapping[str, tuple[Callable[..., Read], str]] = {
    "nccl-tests": (
        read_nccl_tests,
        "what all_reduce_perf, all_gather_perf and reduce_scatter_perf print, or write as JSON",
    ),
    "deepspeed-comms": (
        read_deepspeed_comms,
        "the summary of DeepSpeed's communication logger",
    ),
    "vidur": (read_vidur, "Vidur's tables of collectives (.csv)"),
    "network": (
        _document,
        "what planner calibrate network or planner import wrote, several as one",
    ),
}
"""Reader and description of each format of timed collectives."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    abouts = {
        **{name: reader.about for name, reader in READERS.items()},
        **{name: about for name, (_, about) in NETWORKS.items()},
        FX: "a compiled graph that planner.profiling.fx wrote",
        SPARK: "event logs of Spark 3 or 4, files or folders",
    }
    command(
        commands,
        "import",
        run,
        "turn another tool's file into a profile, a network, a request, or what scheduling takes",
        "planner import pipedream graph.txt -o vgg16.json\n"
        "  planner import kineto trace.json.gz --batch-size 64 -o resnet50.json\n"
        "  planner import nccl-tests all_reduce.log all_gather.log -o network.json\n"
        "  planner import fx graph.fx.json -o graph.json\n"
        "  planner import spark-events eventlog_v2_app-20261125093000-0001 -o spark.json",
        {
            f"format {'|'.join(abouts)}": "; ".join(
                f"{name}: {about}" for name, about in abouts.items()
            ),
            "file FILE+": "'-': standard input; several of timed collectives become one network",
            "-o, --output FILE": "default: standard output",
            "--name NAME": "name of the model; default: the file's name",
            "--batch-size N": "samples of one iteration",
            "--ranks N": "of timed collectives: among how many ranks, where a file does not list "
            "them",
            "--ranks-per-host N": "of timed collectives: how many ranks share a host; default: "
            "as the file lists",
            "--link N=RATE": "of timed collectives, where hosts have several kinds of link: the "
            "line rate in one direction of the slowest that joins N ranks of a host; again for "
            "more: --link 2=300GB/s --link 4=32GB/s",
            f"--freed-inputs {'|'.join(get_args(Freed))}": "of fx: which inputs of the graph are "
            "freed after their last reader, parameters (primals_1) never: named, the default: "
            "those whose names tell that they are none (arg0_1 does not)",
            f"--collective {'|'.join(COLLECTIVES)}": "of nccl-tests: what was timed, where neither "
            "a file nor its name says it",
        },
        {"--link": {"action": "append"}},
    )


def run(options: argparse.Namespace) -> int:
    """Import a file, with warnings on standard error."""
    name, reader = options.format, READERS.get(options.format)
    check_integers(options, {"batch_size": 1, "ranks": 2, "ranks_per_host": 1})
    if reader is None:
        refuse(options, _OF_MODELS, "only of models")
    if name != FX:
        refuse(options, ("--freed-inputs",), "only of fx")
    if name not in NETWORKS:
        refuse(options, _OF_COLLECTIVES, "only of timed collectives")
    if name in NETWORKS:
        _import_network(options)
    elif name == SPARK:
        import_spark(options.file, options.output, quiet=options.quiet)
    elif len(options.file) > 1:
        raise InvalidInputError("FILE", f"expected one of {name}")
    elif name == FX:
        _import_graph(options)
    else:
        _import_model(options)
    return 0


def _import_model(options: argparse.Namespace) -> None:
    file, reader = options.file[0], READERS[options.format]
    path = Path(file)
    named: dict[str, Any] = {
        "name": readable(options.name or Path(path.name.removesuffix(".gz")).stem),
        "source": readable(path.name),
        "batch_size": options.batch_size,
    }
    data = read(file)
    with in_file(file):
        profile, warnings = reader.read(data, **named)
    warn(f"warning: {escaped(f'{readable(path.name)}: {warning}')}" for warning in warnings)
    write_json(encode_profile(profile), options.output)


def _import_network(options: argparse.Namespace) -> None:
    """Import timed collectives, with warnings and estimated errors on standard error."""
    links = _links(options.link or ())
    reader, rows, warned = NETWORKS[options.format][0], [], []
    for path in options.file:
        data, name = read(path), file_name(path)
        with in_file(path, data=data, reader=options.format):
            more, warnings = reader(
                data,
                name=name,
                ranks=options.ranks,
                per_host=options.ranks_per_host,
                collective=options.collective,
            )
        rows += more
        if options.format == "network" and not options.link:
            links = measured_tables(data).links or links
        warned += [f"{name}: {warning}" for warning in warnings]
    with in_file(options.file[0]):
        network, warnings = network_of(rows, links)
    warn(f"warning: {escaped(warning)}" for warning in (*warned, *warnings))
    names = list(map(file_name, options.file))
    provenance = {"kind": "imported", "format": options.format, "source": names}
    write_json(encode_measured(network, provenance), options.output)


def _links(texts: Sequence[str]) -> tuple[Link, ...]:
    """Return the links of ``--link N=RATE`` by increasing ranks."""
    links = []
    for text in texts:
        ranks, _, rate = text.partition("=")
        if not ranks.isdecimal() or len(ranks) > 9:
            raise InvalidInputError("--link", f"expected N=RATE: 2=300GB/s, got {shown(text)}")
        with inside("--link"):
            links.append(Link(int(ranks), parse_rate(rate, "")))
    return tuple(sorted(links, key=lambda link: link.ranks))


def _import_graph(options: argparse.Namespace) -> None:
    """Import a compiled graph; the memory limit is the peak of the graph's original order."""
    file = options.file[0]
    data = read(file)
    with in_file(file):
        problem = problem_of(decode_fx(data), options.freed_inputs or "named")
    peak = evaluate(problem, own_order(problem)).peak_bytes
    write_json(encode_request(with_limit(problem, peak)), options.output)
