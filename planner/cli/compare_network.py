"""The network of ``planner compare``: a NIC from options, or a network file."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.common import file_name, in_file, read, read_as
from planner.cli.family import Profiled
from planner.cli.iteration_options import measured_tables
from planner.cli.naming import as_typed
from planner.cli.parsing import parse_bcube
from planner.clusters import Cluster, Nic
from planner.collectives.nics import with_measured_nics
from planner.collectives.predicted import predicted, range_note
from planner.costs import TableCost
from planner.errors import InvalidInputError
from planner.interference import Interference
from planner.iteration.measured import assumed_startups
from planner.jsonio import shipped_clusters
from planner.measured import COLLECTIVES, Collective
from planner.network import AnyNetwork
from planner.topologies import BCube
from planner.units import counted, format_ns, format_rate, parse_rate, parse_time
from planner.yan.profiled import nic_rate

if TYPE_CHECKING:
    from planner.sweeps import Model

__all__ = ["ASSUMED", "NetworkFile", "add_network_options", "on_network", "settle_network"]

ASSUMED = "start-ups are assumed, not measured; planner plan says how much its lead bears"

_MODELS: "dict[str, Model]" = {"table": "table", "affine": "affine", "two-point": "two_point"}


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """A network, where it comes from, and what of it was not measured.

    `ranks` is the number of ranks at the measurement, if there was one; `about` is a line for the
    reader; `notes` tell which costs were not measured; `collective` is the measured collective of a
    table.
    """

    path: str
    network: AnyNetwork
    ranks: int | None
    about: str
    interference: Interference
    notes: tuple[str, ...] = ()
    collective: str | None = None

    def beyond(self, sizes: Sequence[int]) -> tuple[str, ...]:
        """Return a note about transfers whose size (bytes) the table does not cover."""
        if self.collective is None or not isinstance(self.network, TableCost):
            return ()
        note = range_note(self.network, self.collective, sizes)
        return () if note is None else (note,)


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about the cost of communication."""
    parser.add_argument(
        "--startup",
        metavar="TIME",
        help="with a profile: start-up cost of a communication: 100us",
    )
    parser.add_argument(
        "--bandwidth", metavar="RATE", help="with a profile: 10Gb/s (bits) or 1.25GB/s (bytes)"
    )
    parser.add_argument(
        "--network",
        metavar="FILE",
        help="with a profile, instead of both: a network, such as planner calibrate network "
        "measured, or a NIC of a cluster file; with --cluster measured tables in place of what it "
        "says",
    )
    parser.add_argument(
        "--network-model",
        choices=list(_MODELS),
        help="which model of a measured --network: its table (default), the affine cost nearest to "
        "that, or the line through 64 B and 4 MB",
    )


def settle_network(options: argparse.Namespace, family: Profiled) -> AnyNetwork:
    """Return the given network; store its description as `options.network`."""
    if options.at is not None:
        for name in ("startup", "bandwidth", "network_model"):
            if getattr(options, name) is not None:
                option = f"--{name}".replace("_", "-")
                raise InvalidInputError(option, "not together with --cluster")
        if options.network is not None:
            options.at = replace(options.at, network=read_as(options.network, measured_tables))
        described = _of_cluster(options.at, family.collective(options))
        options.network = described
        return described.network
    if options.network is not None:
        for name in ("startup", "bandwidth"):
            if getattr(options, name) is not None:
                raise InvalidInputError(f"--{name}", "not together with --network")
        if options.network == options.file == "-":
            raise InvalidInputError("--network", "standard input is the profile already")
        described = _read(options, family)
        options.network = described
        return described.network
    if options.network_model is not None:
        raise InvalidInputError("--network-model", "only together with --network")
    for name in ("startup", "bandwidth"):
        if getattr(options, name) is None:
            raise InvalidInputError(
                f"--{name}",
                "missing: it comes with a profile, or --network or --cluster in place of both",
            )
    startup = parse_time(options.startup, "--startup")
    return Nic(parse_rate(options.bandwidth, "--bandwidth"), startup)


def _of_cluster(cluster: Cluster, collective: str | None) -> NetworkFile:
    """Return a worker's network: its NICs, its share of a common link, or measured tables."""
    beside = cluster.interference if collective == "all_reduce" else cluster.interference.half
    workers = counted(cluster.workers, "worker")
    tables = None if cluster.failed or cluster.workers == 1 else cluster.network
    if tables is not None and collective in COLLECTIVES:
        wanted: Collective = collective
        known = predicted(tables, wanted, cluster.workers, cluster.workers_per_host)
        about = f"{cluster.name}: {workers}, {collective} by measured tables"
        return NetworkFile("--cluster", known.cost, None, about, beside, known.notes, collective)
    cluster, notes = with_measured_nics(cluster)
    if assumed_startups(cluster):
        notes = (ASSUMED, *notes)
    nic, rate = cluster.nic, nic_rate(cluster)
    levels = nic.per_machine if isinstance(cluster.topology, BCube) else 1
    about = (
        f"{cluster.name}: {workers}, start-up {format_ns(nic.startup_ns)}, {format_rate(rate)} each"
    )
    alone = replace(nic, bytes_per_s=rate / levels, per_machine=levels, message_ns=0)
    return NetworkFile("--cluster", alone, None, about, beside, notes)


def _ranks(options: argparse.Namespace) -> int | None:
    """Return the number of ranks of a collective, if an option states it."""
    bcube: str | None = getattr(options, "bcube", None)
    if bcube is not None:
        return parse_bcube(bcube).servers
    return getattr(options, "workers", None) or getattr(options, "machines", None)


def on_network(
    part: Any, family: Profiled, network: AnyNetwork, options: argparse.Namespace
) -> Any:
    """Return the problem of a profile's part on a network; errors name the option or file."""
    try:
        return family.problem(part, network, options)
    except InvalidInputError as error:
        if as_typed(error, options) is not error:  # the error belongs to an option
            raise
        if options.network is not None:
            path = error.path if error.path.startswith("network.") else "network"
            if options.network.ranks is None:  # an unmeasured document is the network itself
                path = path.removeprefix("network").removeprefix(".")
            with in_file(options.network.path):
                raise InvalidInputError(path, error.message) from None
        raise InvalidInputError("--startup, --bandwidth", error.message) from None


def _read(options: argparse.Namespace, family: Profiled) -> NetworkFile:
    from planner.jsonio.network import decode_network, measured_as
    from planner.jsonio.settled_network import settled

    path: str = options.network
    if path in shipped_clusters() and not Path(path).exists():
        raise InvalidInputError("--network", f"{path} is a cluster: give it as --cluster")
    data = read(path)
    model = options.network_model
    with in_file(path):
        described = decode_network(data, None if model is None else _MODELS[model])
        collective, beside = family.collective(options), family.beside
        described = settled(described, collective, _ranks(options), "")
        network = measured_as(described, collective, "", beside=beside)
    about = f"as {file_name(path)} describes it"
    if described.ranks is not None:
        how = f" ({described.algorithm})" if described.algorithm else ""
        measured = f"{described.collective}{how} among {described.ranks} ranks as measured"
        about = f"{measured}: {model or 'table'} of {file_name(path)}"
    return NetworkFile(
        path,
        network,
        described.ranks,
        about,
        described.interference,
        described.notes,
        described.collective,
    )
