"""``planner compare --peers``: the joint plan beside what one would use instead, over many cases.

Every profile is planned on every cluster, for every scale of computation, by every method.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from planner.cli.common import (
    check_outputs,
    in_option,
    read_as,
    write_document,
    write_json,
    write_text,
)
from planner.cli.family import warning_lines
from planner.cli.iteration_options import (
    add_failed_option,
    add_memory_options,
    asked_cluster,
    damaged,
    memory_options,
)
from planner.cli.parsing import parse_names, parse_number
from planner.cli.peers_text import report, summary
from planner.cli.progress import Progress
from planner.cli.telling import tell
from planner.cli.writing import replacing
from planner.clusters import Cluster
from planner.draw.drawing import BARS
from planner.draw.peers import MAX_SCALES, PeersChart, save_peers
from planner.errors import InvalidInputError, PlannerError
from planner.iteration import METHODS, Problem
from planner.iteration.measured import assumed_startups
from planner.iteration.peers import JOINT, PeerCase, compare_peers, standings
from planner.jsonio import decode_profile
from planner.jsonio.peers import document
from planner.methods import concrete, deadline_in, known_method
from planner.printing import printable
from planner.profiles import Profile

__all__ = ["MEMORY", "OPTIONS", "add_cluster_options", "add_options", "chart_of", "planned", "run"]

MEMORY = ("--activations", "--ignore-memory")
"""What memory holds: only whole iterations take both."""

OPTIONS = ("--cluster", "--failed", "--computation", *MEMORY)
"""What no request is told, as it says so itself."""

MAX_CASES = 10_000
"""More would take hours: a mistake in a pattern of file names."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("with --peers and profiles")
    group.add_argument(
        "--peers",
        action="store_true",
        help="plan whole iterations of every profile on every --cluster, and compare the joint "
        "plan (auto) with those of single families and of other systems",
    )
    add_memory_options(add_cluster_options(parser))


def add_cluster_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that say where a profile shall run, and return their group."""
    group = parser.add_argument_group("with a profile, on a cluster")
    group.add_argument(
        "--cluster",
        nargs="+",
        metavar="FILE",
        help="a cluster's file or the name of a shipped one, which says all that the other options "
        "would; with --peers several: data/clusters/*.json",
    )
    add_failed_option(group)
    group.add_argument(
        "--computation",
        metavar="F,G,…",
        help="multiply all times of computation: 0.02 or 1/50 for workers 50 times as fast as "
        "those the profiles were measured on; with --peers once by each; default: 1",
    )
    return group


def run(options: argparse.Namespace) -> int:
    """Compare."""
    memory = memory_options(options)
    methods = _methods(options.methods)
    scales = _scales(options.computation or "1")
    deadline_in(options.time_limit)
    if not options.cluster:
        raise InvalidInputError("--cluster", "missing: --peers needs at least one cluster")
    picture = None if options.picture is None else Path(options.picture)
    if picture is not None:
        with in_option("--picture"):
            BARS.writer(picture)  # the same kinds of files
    outputs = {"--picture": options.picture, "--output": options.output}
    check_outputs(outputs, (*options.file, *options.cluster))
    profiles = [(path, read_as(path, decode_profile)) for path in dict.fromkeys(options.file)]
    for path, profile in profiles:
        for line in warning_lines(profile.doubts):
            print(f"planner: {printable(path)}: {line}", file=sys.stderr)
    clusters = [
        (path, damaged(asked_cluster(path), options.failed))
        for path in dict.fromkeys(options.cluster)
    ]
    count = len(profiles) * len(clusters) * len(scales)
    if count > MAX_CASES:
        raise InvalidInputError("--peers", f"expected at most {MAX_CASES:,} cases, got {count:,}")
    progress = Progress(quiet=options.quiet)
    cases: list[PeerCase] = []
    for scale in scales:
        for path, profile in profiles:
            for cluster_path, cluster in clusters:
                progress("case", len(cases) + 1, count)
                tell(f"planning {path} on {cluster_path}, computation × {scale}")
                try:
                    case = planned(profile, cluster, scale, methods, options.time_limit, **memory)
                except InvalidInputError as error:
                    raise PlannerError(f"{path} on {cluster_path}: {error}") from None
                cases.append(case)
    progress.done()
    whole = msgspec.json.encode(document(cases, scales, methods)).decode() + "\n"
    if options.output not in (None, "-"):
        if options.output.endswith(".md"):
            write_document(report(cases, scales, methods) + "\n", options.output)
        else:
            write_json(whole, options.output)
    try:
        if options.json or options.output == "-":
            write_json(whole, None)
        else:
            where = options.output or "-o FILE.md (tables) or FILE.json"
            rows = f"Every case in a row of its own ({len(cases):,}): {printable(where)}"
            write_text(f"{summary(cases, scales, methods)}\n\n{rows}\n")
    finally:
        if picture is not None:
            with replacing(picture) as place:
                save_peers(chart_of(cases, scales, methods), place)
    return 0


def planned(
    profile: Profile,
    cluster: Cluster,
    scale: Fraction,
    methods: Sequence[str],
    time_limit: float | None = None,
    **options: Any,
) -> PeerCase:
    """Plan one case by every method.

    Parameters
    ----------
    profile : Profile
        The model.
    cluster : Cluster
        Where it shall run.
    scale : Fraction
        What its computation times are multiplied by.
    methods : sequence of str
        Some of `planner.iteration.METHODS`.
    time_limit : float, optional
        Seconds for each method.
    **options
        What `planner.iteration.Problem.from_profile` is told beside these.
    """
    problem = Problem.from_profile(profile, cluster, computation=scale, **options)
    comparison = compare_peers(problem, methods, time_limit=time_limit)
    assumed = assumed_startups(cluster)
    return PeerCase(profile.name, cluster.name, scale, comparison, assumed)


def chart_of(
    cases: Sequence[PeerCase], scales: Iterable[Fraction], methods: Sequence[str]
) -> PeersChart:
    """Return what is drawn: every method's standing at every scale of computation."""
    profiles, clusters = (
        {getattr(case, name) for case in cases} for name in ("profile", "cluster")
    )
    scaled = tuple(
        (float(scale), standings([case for case in cases if case.computation == scale], methods))
        for scale in scales
    )
    gains = [row.speedup.mean for _, rows in scaled for row in rows[:1] if row.speedup]
    where = f"{_counted(profiles, 'profile')} on {_counted(clusters, 'cluster')}"
    if not gains:
        return PeersChart(f"There is no plan for {where}", scaled)
    times = f"{min(gains):.2f} to {max(gains):.2f}" if len(gains) > 1 else f"{gains[0]:.2f}"
    return PeersChart(
        f"Joint plans of whole iterations are in the mean {times} times as fast as those of "
        f"DDP: {where}",
        scaled,
    )


def _counted(names: Iterable[str], what: str) -> str:
    known = list(names)
    return known[0] if len(known) == 1 else f"{len(known)} {what}s"


def _methods(text: str | None) -> tuple[str, ...]:
    """Return the methods to show: the joint plan first."""
    names = METHODS if text is None else parse_names(text, "--methods")
    with in_option("--methods"):
        return tuple(
            dict.fromkeys((JOINT, *concrete(known_method(name, METHODS) for name in names)))
        )


def _scales(text: str) -> tuple[Fraction, ...]:
    names = parse_names(text, "--computation")
    scales = (parse_number(name, "--computation", positive=True) for name in names)
    distinct = tuple(dict.fromkeys(scales))
    if len(distinct) > MAX_SCALES:
        raise InvalidInputError(
            "--computation", f"expected at most {MAX_SCALES} scales, got {len(distinct)}"
        )
    return distinct
