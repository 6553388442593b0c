"""The cluster options of ``planner compare`` with a profile."""

import argparse
from fractions import Fraction

from planner.cli.family import Option
from planner.cli.iteration_options import add_failed_option, asked_cluster, damaged
from planner.cli.parsing import parse_number
from planner.clusters import Cluster, Nic
from planner.errors import InvalidInputError
from planner.network import AnyNetwork, links
from planner.topologies import Switch
from planner.validation import integer

__all__ = [
    "MACHINES",
    "MEMORY",
    "OPTIONS",
    "add_cluster_options",
    "cluster_of",
    "needs_cluster",
    "settle_cluster",
    "workers_of",
]

MEMORY = ("--activations", "--ignore-memory")
"""Memory options; only whole iterations take both."""

OPTIONS = ("--cluster", "--failed", "--computation", *MEMORY)
"""Options that do not apply to requests, which state the same themselves."""

MACHINES = Option(
    "--machines",
    None,
    {
        "type": int,
        "metavar": "N",
        "help": "machines on one switch, without --cluster; of yan parameter servers count too",
    },
)
"""An option of several problems."""


def add_cluster_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the cluster options and return their group."""
    group = parser.add_argument_group("with a profile, on a cluster")
    group.add_argument(
        "--cluster",
        metavar="FILE",
        help="a cluster's file or the name of a shipped one, which says all that the other options "
        "would",
    )
    add_failed_option(group)
    group.add_argument(
        "--computation",
        metavar="F",
        help="multiply all times of computation: 0.02 or 1/50 for workers 50 times as fast as "
        "those the profile was measured on; default: 1",
    )
    return group


def settle_cluster(options: argparse.Namespace) -> Fraction:
    """Store the cluster as `options.at` and return the factor of computation times."""
    options.at = None
    if options.cluster:
        if options.cluster == options.file == "-":
            raise InvalidInputError("--cluster", "standard input is the profile already")
        options.at = damaged(asked_cluster(options.cluster), options.failed)
    elif options.failed is not None:
        raise InvalidInputError("--failed", "only together with --cluster")
    return parse_number(options.computation or "1", "--computation", positive=True)


def workers_of(options: argparse.Namespace, option: Option, minimum: int = 1) -> int:
    """Return the number of workers, from the cluster or from an option."""
    given: int | None = getattr(options, option.key)
    if options.at is not None:
        if given is not None:
            raise InvalidInputError(option.name, "not together with --cluster")
        return int(options.at.workers)
    if given is None:
        raise InvalidInputError(option.name, "missing, or --cluster, which says it all")
    return integer(given, option.name, minimum=minimum, maximum=2**16)


def cluster_of(network: AnyNetwork, options: argparse.Namespace) -> Cluster:
    """Return the given cluster, or one switch with ``--machines`` machines."""
    if options.at is not None:
        return options.at  # type: ignore[no-any-return]
    machines, link = options.machines, links(network, 1)
    nic = Nic(link.link_bytes_per_s, link.startup_ns)
    return Cluster("a switch", "--machines", machines, Switch(machines), nic)


def needs_cluster(options: argparse.Namespace) -> None:
    """Raise InvalidInputError without ``--cluster``."""
    if options.at is None:
        raise InvalidInputError("--cluster", "missing: where the profile shall run")
