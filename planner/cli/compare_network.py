"""The network of ``planner compare``: a start-up time and a bandwidth, or what was measured."""

import argparse
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.common import in_file, read
from planner.cli.family import Profiled
from planner.costs import AffineCost, DepthCost, TableCost
from planner.errors import InvalidInputError
from planner.units import parse_rate, parse_time

if TYPE_CHECKING:
    from planner.jsonio.network_measurements import MeasuredNetwork
    from planner.sweeps import Model

__all__ = ["Link", "Measured", "add_network_options", "on_network", "settle_network"]

_MODELS: "dict[str, Model]" = {"table": "table", "affine": "affine", "two-point": "two_point"}


@dataclass(frozen=True, slots=True)
class Link:
    """A network as it was described.

    Attributes
    ----------
    startup_ns : int
        Start-up cost of a communication.
    bytes_per_s : Fraction
        What a network card carries.
    """

    startup_ns: int
    bytes_per_s: Fraction


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured network that was chosen.

    Attributes
    ----------
    path : str
        The file it is from.
    cost : AffineCost, TableCost or DepthCost
        What a transfer costs.
    ranks : int
        Among how many ranks it was measured.
    about : str
        What a person should know of it.
    """

    path: str
    cost: AffineCost | TableCost | DepthCost
    ranks: int
    about: str


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what communication costs."""
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
        help="with a profile and problem ibatch or caramel, instead of both: what planner "
        "calibrate network measured",
    )
    parser.add_argument(
        "--network-model",
        choices=list(_MODELS),
        help="which model of --network: the measured table (default), the affine cost nearest to "
        "it, or the line through 64 B and 4 MB",
    )


def settle_network(options: argparse.Namespace, problem: str, family: Profiled) -> Link | Measured:
    """Return the network that is given; one that was measured also takes its option's place."""
    if options.network is not None:
        for name in ("startup", "bandwidth"):
            if getattr(options, name) is not None:
                raise InvalidInputError(f"--{name}", "not together with --network")
        if family.collective is None:
            raise InvalidInputError("--network", f"does not apply to --problem {problem}")
        if options.network == options.file == "-":
            raise InvalidInputError("--network", "standard input is the profile already")
        measured = _read(options, family.collective(options))
        options.network = measured
        return measured
    if options.network_model is not None:
        raise InvalidInputError("--network-model", "only together with --network")
    instead = "" if family.collective is None else ", or --network in place of both"
    for name in ("startup", "bandwidth"):
        if getattr(options, name) is None:
            raise InvalidInputError(f"--{name}", f"missing: it comes with a profile{instead}")
    return Link(
        parse_time(options.startup, "--startup"), parse_rate(options.bandwidth, "--bandwidth")
    )


def on_network(
    subject: Any, family: Profiled, network: Link | Measured, options: argparse.Namespace
) -> Any:
    """Return the problem of a subject on a network."""
    try:
        if isinstance(network, Measured):
            return family.problem(subject, network.cost, options)
        cost = family.cost(network.startup_ns, network.bytes_per_s, options)
        return family.problem(subject, cost, options)
    except InvalidInputError as error:
        if isinstance(network, Measured):
            raise in_file(network.path, InvalidInputError("network", error.message)) from None
        raise InvalidInputError("--startup, --bandwidth", error.message) from None


def _read(options: argparse.Namespace, wanted: str) -> Measured:
    from planner.jsonio.network_measurements import decode_network

    path: str = options.network
    data = read(path)
    model = options.network_model or "table"
    try:
        found = decode_network(data, _MODELS[model])
        _check(found, wanted)
    except InvalidInputError as error:
        raise in_file(path, error) from None
    name = "standard input" if path == "-" else Path(path).name
    how = f" ({found.algorithm})" if found.algorithm else ""
    about = f"{found.collective}{how} among {found.ranks} ranks as measured: {model} of {name}"
    return Measured(path, found.cost, found.ranks, about)


def _check(found: "MeasuredNetwork", wanted: str) -> None:
    if found.collective != wanted:
        raise InvalidInputError(
            "collective",
            f"expected {wanted}, which is what these plans do, got {found.collective}: measure "
            f"with --collective {wanted}",
        )
    if isinstance(found.cost, DepthCost) and wanted != "all_reduce":
        raise InvalidInputError("network.depths", "only transfers of an all-reduce are cut")
