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
from planner.jsonio.network import decode_network, measured_as
from planner.model.clusters import Cluster
from planner.model.contention import Interference
from planner.model.errors import InvalidInputError
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
    "--network FILE": "what collectives take there, in place of what the cluster says: a network "
    "as planner import or planner calibrate network wrote it; planner plan without --cluster is "
    "planner compare --problem caramel",
    "--interference FILE": "what transfers and computation take from each other, instead of what "
    "the cluster says: a network that planner calibrate network measured",
    "--algorithms A,B,…": f"synchronisation algorithms to consider; default: "
    f"{','.join(ALGORITHMS)}",
    f"--mode any|{'|'.join(MODES)}|fsdp (any)": "replicated: every worker updates all parameters, "
    "as under DDP; sharded: each its share, as with parameter servers on all machines; fsdp, for "
    "planner plan, as --for fsdp2: what FSDP should wrap, prefetch and gather again, by memory; "
    "default: replicated or sharded, whichever is faster",
}
"""The profile, the cluster, and the problem's options."""


def scale_in(options: argparse.Namespace) -> Fraction:
    """Return what all times of computation are multiplied by."""
    return parse_number(options.computation or "1", "--computation", positive=True)


def cluster_in(options: argparse.Namespace) -> Cluster:
    """Return the cluster of ``--cluster`` with the measured tables that are given."""
    name = options.cluster
    if name == "-":
        cluster = read_as(name, decode_cluster)
    else:
        with in_option("--cluster"):
            data = cluster_data(name)
        with in_file(name):
            cluster = decode_cluster(data)
    if options.network is not None:
        cluster = replace(cluster, network=read_as(options.network, measured_tables))
    return cluster


def _interference(data: bytes) -> Interference:
    """Return the contention of a network document.

    Raises InvalidInputError if there is none, or if it was not measured with all-reduces.
    """
    known = decode_network(data)
    measured_as(known, "all_reduce", "", beside=True)
    if known.interference.is_none:
        raise InvalidInputError(
            "interference", "missing: planner calibrate network measures it, without --alone"
        )
    return known.interference


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
    if options.interference is not None:
        cluster = replace(cluster, interference=read_as(options.interference, _interference))
    return Job(profile, cluster, settled)
