"""``planner import`` of timed collectives (``nccl-tests``, ``network``, …), and of graphs."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from planner.cli.common import in_file, read, readable, write_json
from planner.families.overlap import Problem, evaluate, own_order, with_limit
from planner.formats.importers.deepspeed_comms import read_deepspeed_comms
from planner.formats.importers.fx import check_ranks, problem_of
from planner.formats.importers.nccl_tests import read_nccl_tests
from planner.formats.importers.timed_rows import TimedRow, network_of, read_vidur
from planner.jsonio.graphs import decode_fx
from planner.jsonio.measured_network import encode_measured
from planner.jsonio.network import decode_network
from planner.jsonio.overlap import encode_request
from planner.model.errors import InvalidInputError
from planner.model.measured import Link, MeasuredNetwork
from planner.model.units import escaped, parse_rate
from planner.model.validation import inside, integer, shown

Rows = tuple[list[TimedRow], tuple[str, ...]]


class NetworkReader(NamedTuple):
    """A format of timed collectives: its reader and a description."""

    read: Callable[..., Rows]
    about: str


def _document(data: bytes, **_: Any) -> Rows:
    """Return the rows of a network document."""
    rows = [
        TimedRow(table.collective, table.ranks, table.per_host, size, time, "table")
        for table in _tables(data).tables
        for size, time in table.points
    ]
    return rows, ()


def _tables(data: bytes) -> MeasuredNetwork:
    tables = decode_network(data).tables
    if tables is None:
        raise InvalidInputError("", "expected measured times, of planner calibrate or import")
    return tables


NETWORKS: Mapping[str, NetworkReader] = {
    "nccl-tests": NetworkReader(
        read_nccl_tests,
        "what all_reduce_perf, all_gather_perf and reduce_scatter_perf print, or write as JSON",
    ),
    "deepspeed-comms": NetworkReader(
        read_deepspeed_comms, "the summary of DeepSpeed's communication logger"
    ),
    "vidur": NetworkReader(read_vidur, "Vidur's tables of collectives (.csv)"),
    "network": NetworkReader(
        _document, "what planner calibrate network or planner import wrote, several as one"
    ),
}
"""Formats of timed collectives by their names in ``planner import``."""


def import_network(options: argparse.Namespace) -> int:
    """Import timed collectives, with warnings and estimated errors on standard error."""
    for name, value in (("--ranks", options.ranks), ("--ranks-per-host", options.ranks_per_host)):
        if value is not None:
            integer(value, name, minimum=2 if name == "--ranks" else 1)
    links = _links(options.link)
    reader, rows, warned = NETWORKS[options.format], [], []
    for path in options.file:
        data, name = read(path), readable(Path(path).name)
        with in_file(path, but="--", data=data, reader=options.format):
            more, warnings = reader.read(
                data,
                name=name,
                ranks=options.ranks,
                per_host=options.ranks_per_host,
                in_place=options.in_place,
                collective=options.collective,
            )
        rows += more
        if options.format == "network" and not options.link:
            links = _tables(data).links or links
        warned += [f"{name}: {warning}" for warning in warnings]
    with in_file(options.file[0]):
        network, warnings = network_of(rows, links)
    for warning in (*warned, *warnings):
        print(f"planner: warning: {escaped(warning)}", file=sys.stderr)
    names = [readable(Path(path).name) for path in options.file]
    provenance = {"kind": "imported", "format": options.format, "source": names}
    write_json(encode_measured(network, provenance), options.output)
    return 0


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


# ---
# ``planner import fx``: write compiled graphs as requests.


def _fx(files: Sequence[str]) -> Problem:
    documents = []
    for file in files:
        data = read(file)
        with in_file(file):
            documents.append(decode_fx(data))
    check_ranks(documents, list(files))
    with in_file(files[0]):
        return problem_of(documents[0])


class GraphReader(NamedTuple):
    """A format of compiled graphs: its reader and a description."""

    read: Callable[[Sequence[str]], Problem]
    about: str


GRAPHS: Mapping[str, GraphReader] = {
    "fx": GraphReader(
        _fx, "a compiled graph that planner.profiling.fx wrote, of one rank or of several"
    )
}
"""Formats of compiled graphs by their names in ``planner import``."""


def import_graph(options: argparse.Namespace) -> int:
    """Import a graph; the memory limit is the peak of the graph's original order."""
    for name in ("name", "batch_size", "ranks", "ranks_per_host", "statistic"):
        if getattr(options, name) is not None:
            raise InvalidInputError(f"--{name.replace('_', '-')}", "not of compiled graphs")
    if options.in_place:
        raise InvalidInputError("--in-place", "not of compiled graphs")
    problem = GRAPHS[options.format].read(options.file)
    peak = evaluate(problem, own_order(problem)).peak_bytes
    write_json(encode_request(with_limit(problem, peak)), options.output)
    return 0
