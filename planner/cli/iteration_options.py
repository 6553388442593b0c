"""Options that all commands about whole iterations share: profile, cluster, problem."""

import argparse
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from planner.cli.common import in_file, in_option, measured_tables, read_as
from planner.cli.parsing import declared, parse_names, parse_number, typed
from planner.families.iteration import ALGORITHMS, MODES
from planner.jsonio import decode_profile
from planner.jsonio.clusters import cluster_data, decode_cluster
from planner.jsonio.network import decode_network
from planner.model.clusters import Cluster
from planner.model.contention import Interference
from planner.model.measured import MeasuredNetwork
from planner.model.profiles import Profile
from planner.solving.compare import ACTIVATIONS, FOR, IGNORE_MEMORY, OPTIMISER, Option
from planner.solving.targets import target_of


@dataclass(frozen=True, slots=True)
class Job:
    """The profile, the cluster, and further options of `planner.iteration.Problem.from_profile`."""

    profile: Profile
    cluster: Cluster
    options: dict[str, Any]


ON_CLUSTER = {
    "--cluster FILE": "a cluster's file, or the name of a shipped one, such as caramel-16",
    "--computation F": "multiply all times of computation: 0.02 or 1/50 for workers 50 times as "
    "fast as those the profile was measured on; default: 1",
}
"""Where a profile trains, and how fast."""

_DECLARED = (
    *(FOR, OPTIMISER, ACTIVATIONS, IGNORE_MEMORY),
    Option("--max-transfer SIZE", "no transfer may be larger: 25MiB"),
)


OF_ITERATION = {
    "profile PROFILE": "a profile; '-': standard input",
    **ON_CLUSTER,
    **typed(_DECLARED),
    "--network FILE": "what collectives take there, and what all-reduces and computation take from "
    "each other, in place of what the cluster says: a network as planner import or planner "
    "calibrate network wrote it; planner plan without --cluster is planner compare --problem "
    "caramel",
    "--algorithms A,B,…": f"synchronisation algorithms to consider; default: "
    f"{','.join(ALGORITHMS)}",
    f"--mode any|{'|'.join(MODES)}|fsdp (any)": "replicated: every worker updates all parameters, "
    "as under DDP; sharded: each its share, as with parameter servers on all machines; fsdp, for "
    "planner plan, as --for fsdp2: what FSDP should wrap, prefetch and gather again, by memory; "
    "default: replicated or sharded, whichever is faster",
}
"""The profile, the cluster, and the problem's options."""


def scale_in(options: argparse.Namespace) -> Fraction:
    """Return the factor of all times of computation."""
    return parse_number(options.computation or "1", "--computation", positive=True)


def cluster_in(options: argparse.Namespace) -> Cluster:
    """Return the cluster of ``--cluster`` with the measured tables and contention given."""
    name = options.cluster
    if name == "-":
        cluster = read_as(name, decode_cluster)
    else:
        with in_option("--cluster"):
            data = cluster_data(name)
        with in_file(name):
            cluster = decode_cluster(data)
    if options.network is not None:
        tables, contention = read_as(options.network, _measured)
        cluster = replace(cluster, network=tables, interference=contention or cluster.interference)
    return cluster


def _measured(data: bytes) -> tuple[MeasuredNetwork, Interference | None]:
    """Return the measured tables of a network document, and its contention if known."""
    tables, known = measured_tables(data), decode_network(data)
    contention = known.collective == "all_reduce" and not known.interference.is_none
    return tables, known.interference if contention else None


def settle(options: argparse.Namespace) -> Job:
    """Return the job that the options describe."""
    names, known = options.algorithms, declared(options, _DECLARED)
    settled = {
        "computation": scale_in(options),
        "optimiser": known["optimiser_ratio"],
        "activation_bytes": known["activations"],
        "ignore_memory": known["ignore_memory"],
        "max_transfer_bytes": known["max_transfer"],
        "algorithms": ALGORITHMS if names is None else parse_names(names, "--algorithms"),
        "modes": MODES if options.mode == "any" else (options.mode,),
        "target": target_of(known["for"], "--for"),
    }
    profile = read_as(options.profile, decode_profile)
    cluster = cluster_in(options)
    return Job(profile, cluster, settled)
