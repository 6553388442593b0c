"""Reports of a small model, made without the command line."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from planner.cli.plan_text import about_cluster
from planner.families import iteration
from planner.families.iteration.sensitivity import sweep
from planner.jsonio.iteration import planned
from planner.model.clusters import Cluster, Nic
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import Switch
from planner.solving.compare import Comparison, compare
from planner.view.page import Report

FACTORS = (Fraction(1, 2), Fraction(1), Fraction(2))


def model(name: str = "tiny", layer: str = "l", note: str = "a note") -> Profile:
    layers = tuple(
        Layer(f"{layer}{i}", 1000 * i, 2000, 4000 * i, activation_bytes=1000) for i in range(1, 5)
    )
    return Profile(name, layers, Provenance("synthetic", "a test", notes=(note,)), 2)


def cluster(name: str = "four", source: str = "a test", **options: Any) -> Cluster:
    nic = Nic(Fraction(10**9), options.pop("startup_ns", 900))
    return Cluster(name, source, 4, Switch(4), nic, notes=("assumed",), **options)


def report(
    profile: Profile | None = None,
    where: Cluster | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """What `planner report` makes of these."""
    profile, where = profile or model(), where or cluster()
    made = planned(profile, where, options or {}, regret=True)
    others = compare(made.problem, ("ddp", "horovod", "ps", "bml"), solve=iteration.solve)
    return Report(
        answer=made.answer,
        profile=profile,
        cluster=where,
        about=about_cluster(where),
        job="a job",
        peers=Comparison((made.result, *others.rows), others.left_out),
        sweeps=sweep(made.problem, made.alternatives, FACTORS),
        command=("planner", "report", "a model.json"),
        version="1.2.3",
    )
