"""``planner import`` of timed collectives (``nccl-tests``, ``network``, …) as one document."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from planner.cli.common import in_file, read, readable, warn, write_json
from planner.collectives.held_out import (
    HeldOut,
    from_smaller,
    ranks_left_out,
    sizes_left_out,
    summary,
)
from planner.draw.table import format_table
from planner.errors import InvalidInputError
from planner.formats.deepspeed_comms import read_deepspeed_comms
from planner.formats.nccl_tests import read_nccl_tests
from planner.formats.timed_rows import TimedRow, network_of
from planner.formats.vidur import read_vidur
from planner.jsonio.measured_network import encode_measured
from planner.jsonio.network import decode_network
from planner.measured import Link, MeasuredNetwork
from planner.printing import escaped
from planner.units import format_bytes, parse_rate
from planner.validation import inside, integer, shown

__all__ = ["NETWORKS", "import_network"]

Rows = tuple[list[TimedRow], tuple[str, ...]]


class NetworkReader(NamedTuple):
    """A format of timed collectives: what reads it, and what it is."""

    read: Callable[..., Rows]
    about: str


def _document(data: bytes, **_: Any) -> Rows:
    """Return the rows of a network document that has tables, or is one."""
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
"""Formats that become a network, by the name that ``planner import`` uses."""


def import_network(options: argparse.Namespace) -> int:
    """Import, with warnings and estimated errors on standard error."""
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
    warn(estimate(network).splitlines())
    return 0


def _links(texts: Sequence[str]) -> tuple[Link, ...]:
    """Return what ``--link N=RATE`` says, by rising ranks."""
    links = []
    for text in texts:
        ranks, _, rate = text.partition("=")
        if not ranks.isdecimal() or len(ranks) > 9:
            raise InvalidInputError("--link", f"expected N=RATE: 2=300GB/s, got {shown(text)}")
        with inside("--link"):
            links.append(Link(int(ranks), parse_rate(rate, "")))
    return tuple(sorted(links, key=lambda link: link.ranks))


def estimate(network: MeasuredNetwork) -> str:
    """Return a table of the errors that leaving points out shows."""
    kinds: tuple[tuple[str, list[HeldOut]], ...] = (
        ("a size", [left for table in network.tables for left in sizes_left_out(table)]),
        ("a number of ranks between others", list(ranks_left_out(network))),
        ("numbers of ranks above others", list(from_smaller(network))),
    )
    rows = []
    for name, held_out in kinds:
        for least in (0, 2**20):
            known = summary(held_out, least)
            if known is not None:
                count, mean, worst = known
                above = format_bytes(least) if least else "any size"
                rows.append((name, above, str(count), f"{mean:.1%}", f"{worst:.1%}"))
    if not rows:
        return "nothing can be left out of so few points: no error is known"
    return format_table(("left out", "from", "times", "mean error", "largest"), rows)
