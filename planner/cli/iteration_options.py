"""Options that all commands about whole iterations share: profile, cluster, problem."""

import argparse
from dataclasses import dataclass, replace
from typing import Any

from planner.cli.common import in_file, in_option, measured_tables, read_as
from planner.cli.parsing import add_options, parse_names, parse_number
from planner.families.iteration import ALGORITHMS, MODES
from planner.jsonio import decode_profile
from planner.jsonio.clusters import cluster_data, decode_cluster
from planner.jsonio.network import decode_network, measured_as
from planner.model.clusters import Cluster
from planner.model.contention import Interference
from planner.model.errors import InvalidInputError
from planner.model.profiles import Profile
from planner.model.units import parse_bytes
from planner.solving.compare import ACTIVATIONS, IGNORE_MEMORY
from planner.solving.targets import FSDP2, PLANNER, TARGET_NAMES, target_of


@dataclass(frozen=True, slots=True)
class Job:
    """The profile, the cluster, and further options of `planner.iteration.Problem.from_profile`."""

    profile: Profile
    cluster: Cluster
    options: dict[str, Any]


def add_iteration_options(parser: argparse.ArgumentParser, *, on_cluster: bool = True) -> None:
    """Add the profile, the cluster, which is needed if `on_cluster`, and the problem's options."""
    parser.add_argument("profile", metavar="PROFILE", help="a profile; '-': standard input")
    add_options(
        parser,
        {
            "--cluster FILE": "a cluster's file, or the name of a shipped one, such as caramel-16",
            "--network FILE": "what collectives take there, in place of what the cluster says: a "
            "network as planner import or planner calibrate network wrote it; planner plan without "
            "--cluster is planner compare --problem caramel",
            "--interference FILE": "what transfers and computation take from each other, instead "
            "of what the cluster says: a network that planner calibrate network measured",
            "--computation F": "multiply all times of computation: 0.02 or 1/50 for workers that "
            "compute 50 times as fast as those the profile was measured on; default: 1",
            "--optimiser-ratio R": "bytes of optimiser state for each byte of parameters: 1 for "
            "momentum, 2 for Adam; default: 0",
            f"{ACTIVATIONS.name} SIZE": ACTIVATIONS.help,
            IGNORE_MEMORY.name: IGNORE_MEMORY.help,
            "--max-transfer SIZE": "no transfer may be larger, such as 25MiB",
            "--algorithms A,B,…": "synchronisation algorithms to consider; default: "
            f"{','.join(ALGORITHMS)}",
            "--mode": "replicated: every worker updates all parameters, as under DDP; sharded: "
            "each its share, as with parameter servers on all machines; fsdp, for planner plan: "
            "what FSDP should wrap, prefetch and gather again, by memory; default: replicated or "
            "sharded, whichever is faster",
            "--for": "whose rules the plan keeps to: what it can be told of buckets and "
            f"algorithms, what it overlaps with what; {FSDP2.name}: planner plan does as with "
            "--mode fsdp; default: planner, whose runtime has none",
        },
        {
            "--cluster": {"required": on_cluster},
            "--computation": {"default": "1"},
            "--optimiser-ratio": {"default": "0"},
            "--mode": {"choices": ("any", *MODES, "fsdp"), "default": "any"},
            "--for": {"choices": TARGET_NAMES, "default": PLANNER},
        },
    )


def inputs_of(options: argparse.Namespace) -> tuple[str | None, ...]:
    """Return the files that the options name."""
    return options.profile, options.cluster, options.interference, options.network


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

    def size(name: str) -> int | None:
        text = getattr(options, name.removeprefix("--").replace("-", "_"))
        return None if text is None else parse_bytes(text, name)

    names = options.algorithms
    settled = {
        "computation": parse_number(options.computation, "--computation", positive=True),
        "optimiser": parse_number(options.optimiser_ratio, "--optimiser-ratio"),
        "activation_bytes": size("--activations"),
        "ignore_memory": options.ignore_memory,
        "max_transfer_bytes": size("--max-transfer"),
        "algorithms": ALGORITHMS if names is None else parse_names(names, "--algorithms"),
        "modes": MODES if options.mode == "any" else (options.mode,),
        "target": target_of(vars(options)["for"], "--for"),
    }
    profile = read_as(options.profile, decode_profile)
    cluster = cluster_in(options)
    if options.interference is not None:
        cluster = replace(cluster, interference=read_as(options.interference, _interference))
    return Job(profile, cluster, settled)
