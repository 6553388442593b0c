"""The options of ``planner compare``, its help, and the place where a profile shall run.

The parser knows all options of all problems. Each family declares the options that make its problem
of a profile (`planner.solving.compare.Option`).
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

from planner.cli.common import command, file_name, in_file, read
from planner.cli.iteration_options import ON_CLUSTER
from planner.cli.parsing import add_options, declared, refuse
from planner.families.collectives.prediction import predicted, with_measured_nics
from planner.families.iteration import fsdp_from_profile as fully_sharded
from planner.families.iteration.measured import assumed_startups
from planner.families.iteration.sizing import scheduling_from_profile
from planner.families.yan.from_profile import nic_rate
from planner.jsonio import shipped_clusters
from planner.jsonio.interfaces import families
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.profiles import Profile
from planner.model.topologies import BCube
from planner.model.units import counted, format_ns, format_rate, parse_rate, parse_time
from planner.solving.compare import Place
from planner.solving.family import Family

DEFAULT_SECONDS = 10.0
"""Default time limit (s) of a method."""

ASSUMED = "start-ups are assumed, not measured"

NETWORK = ("--startup", "--bandwidth", "--network")
OPTIONS = ("--cluster", "--computation")
"""Options that do not apply to a request, whose fields say the same."""

COMPOSED: Mapping[str, Callable[[Profile, Place, Mapping[str, Any]], Any]] = {
    "drizzle": scheduling_from_profile,
    "fsdp": fully_sharded.from_profile,
}
"""Makers of problems of a profile that need other families; a family makes all other problems."""

PROFILED: Mapping[str, Family[Any, Any, Any]] = {
    name: family
    for name, family in families().items()
    if name in COMPOSED or type(family).from_profile is not Family.from_profile
}
"""Problems that can be made of a profile; the first one is the default."""


def add_compare(commands: Any, run: Callable[[argparse.Namespace], int]) -> None:
    """Add the command with the options of all problems."""
    parser = command(
        commands,
        "compare",
        run,
        "compare every method on a request, or on a profiled model and a network",
        "planner compare request.json",
        {
            "file FILE?": "a profile, or a request of planner solve; '-': standard input",
            "--problem NAME": "what to do with a profile; a request says itself what it asks",
            "--methods A,B,…": "default: all that --help lists",
            "--time-limit S": f"seconds a method; default: the request's, or {DEFAULT_SECONDS:g}",
            "--picture FILE": "draw the best plan (.svg, .json.gz)",
            "-o, --output FILE": "write the best plan as JSON",
            "--json": "print every answer as JSON, no table",
            "--startup TIME": "with a profile: start-up cost of a communication: 100us",
            "--bandwidth RATE": "with a profile: 10Gb/s (bits) or 1.25GB/s (bytes)",
            "--network FILE": "with a profile, instead of both: a network, such as planner "
            "calibrate network measured, or a NIC of a cluster file; with --cluster measured "
            "tables in place of what it says",
        },
        {"--problem": {"choices": list(families())}},
    )
    parser.usage = "planner compare [--problem NAME] FILE [option ...]"
    add_options(parser.add_argument_group("with a profile, on a cluster"), ON_CLUSTER)
    owners = _owners()
    own = {option.name: option for family in PROFILED.values() for option in family.options}
    add_options(
        parser.add_argument_group("with a profile, depending on --problem"),
        {own[name].typed: f"{', '.join(owners[name])}: {own[name].help}" for name in own},
    )
    lines = ["problems, with the methods and an example of each:"]
    for name, family in families().items():
        methods = wrap(", ".join(family.names()), 87, break_on_hyphens=False)
        lines += [f"  {name}: {family.asks}", *(f"    {line}" for line in methods)]
        lines.append(f"    {family.example}")
    parser.epilog = "\n".join(lines)


def _owners() -> dict[str, list[str]]:
    """Return the problems that take each option."""
    owners: dict[str, list[str]] = {}
    for name, family in PROFILED.items():
        for option in family.options:
            owners.setdefault(option.name, []).append(name)
    return owners


def settle(options: argparse.Namespace, problem: str) -> dict[str, Any]:
    """Return the options of one problem, with defaults; refuse options of other problems."""
    for name, names in _owners().items():
        if problem not in names:
            only = f"does not apply to --problem {problem}, only to {', '.join(names)}"
            refuse(options, (name,), only)
    return declared(options, PROFILED[problem].options)


def settle_network(
    options: argparse.Namespace,
    cluster: Cluster | None,
    collective: str | None,
    settled: Mapping[str, Any],
) -> Place:
    """Return the place a profile runs on: from the cluster, a file or the options.

    `collective` is the collective whose measured times are wanted, `settled` the problem's options.
    """
    if cluster is not None:
        refuse(options, ("--startup", "--bandwidth"), "not together with --cluster")
        return _on_cluster(cluster, collective)
    if options.network is not None:
        refuse(options, ("--startup", "--bandwidth"), "not together with --network")
        return _in_file(options, collective, settled)
    for name in ("startup", "bandwidth"):
        if getattr(options, name) is None:
            raise InvalidInputError(
                f"--{name}",
                "missing: it comes with a profile, or --network or --cluster in place of both",
            )
    startup = parse_time(options.startup, "--startup")
    nic = Nic(parse_rate(options.bandwidth, "--bandwidth"), startup)
    return Place(nic, f"start-up {options.startup}, bandwidth {options.bandwidth}")


def _on_cluster(cluster: Cluster, collective: str | None) -> Place:
    """Return the network of one worker: its NICs, or its share of the shared medium."""
    contention = cluster.interference if collective == "all_reduce" else cluster.interference.half
    place = Place(cluster.nic, path="--cluster", cluster=cluster, interference=contention)
    about = f"{cluster.name}: {counted(cluster.workers, 'worker')}"
    tables = None if cluster.failed or cluster.workers == 1 else cluster.network
    if tables is not None and collective in COLLECTIVES:
        wanted: Collective = collective
        known = predicted(tables, wanted, cluster.workers, cluster.workers_per_host)
        about = f"{about}, {collective} by measured tables"
        return replace(
            place, network=known.cost, about=about, notes=known.notes, collective=collective
        )
    measured, notes = with_measured_nics(cluster)
    if assumed_startups(measured):
        notes = (ASSUMED, *notes)
    nic, rate = measured.nic, nic_rate(measured)
    levels = nic.per_machine if isinstance(measured.topology, BCube) else 1
    alone = replace(nic, bytes_per_s=rate / levels, per_machine=levels, message_ns=0)
    about = f"{about}, start-up {format_ns(nic.startup_ns)}, {format_rate(rate)} each"
    return replace(place, network=alone, about=about, notes=notes)


def _in_file(
    options: argparse.Namespace, collective: str | None, settled: Mapping[str, Any]
) -> Place:
    from planner.jsonio.links import resolved
    from planner.jsonio.network import decode_network, measured_as

    path: str = options.network
    if path in shipped_clusters() and not Path(path).exists():
        raise InvalidInputError("--network", f"{path} is a cluster: give it as --cluster")
    data = read(path)
    bcube = settled.get("bcube")
    ranks = bcube.servers if bcube else settled.get("workers") or settled.get("machines")
    with in_file(path):
        described = decode_network(data)
        described = resolved(described, collective, ranks, "")
        network = measured_as(described, collective, "", contention=collective is not None)
    about = f"as {file_name(path)} describes it"
    if described.ranks is not None:
        how = f" ({described.algorithm})" if described.algorithm else ""
        measured = f"{described.collective}{how} among {described.ranks} ranks as measured"
        about = f"{measured}: table of {file_name(path)}"
    return Place(
        network,
        about=about,
        path=path,
        ranks=described.ranks,
        interference=described.interference,
        notes=described.notes,
        collective=described.collective,
    )
