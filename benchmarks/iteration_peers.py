"""How much planning an iteration at once gains, on every shipped profile and cluster.

    python benchmarks/iteration_peers.py [--quick] [--full] [--picture FILE]

Prints tables in Markdown: the methods over all cases, and by cluster and by profile, with the
computation as measured (on two processor cores) and 50 times as fast. Ends with an error if any
method beats the joint plan, or that its bound. What is compared are plans,
priced by one model; nothing is executed, and no number depends on the machine.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from peer_cases import BASELINE, PeerCase, Ratios, planned, standings
from peer_picture import chart_of, save_peers
from peer_tables import (
    above_text,
    case_table,
    markdown,
    picked,
    scale_text,
    summary_table,
    times_text,
)

from planner.families.iteration import JOINT
from planner.families.iteration import METHODS as ALL
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.solving.methods import without_auto

METHODS = without_auto(ALL)

DATA = Path(__file__).parent.parent / "data"
SCALES = (Fraction(1), Fraction(1, 50))
CLEARLY = 0.01
QUICK = (("lenet5", "alexnet_v2"), ("a10g-16", "bml-bcube", "h100-8"))


def planned_cases(quick: bool) -> list[PeerCase]:
    """Plan every case by every method."""
    names, places = QUICK if quick else (stems("profiles"), stems("clusters"))
    profiles = [decode_profile((DATA / f"profiles/{name}.json").read_bytes()) for name in names]
    clusters = [decode_cluster((DATA / f"clusters/{name}.json").read_bytes()) for name in places]
    cases = []
    for scale in SCALES:
        for profile in profiles:
            begin = time.perf_counter()
            cases += [planned(profile, cluster, scale, METHODS) for cluster in clusters]
            for case in cases:
                check(case)
            took = time.perf_counter() - begin
            print(f"× {scale_text(scale)}, {profile.name}: {took:.1f} s", file=sys.stderr)
    return cases


def check(case: PeerCase) -> None:
    """Refuse a case in which a method beats the joint plan, or that its bound."""
    joint, bound = case.time_ns(JOINT), case.bound_ns
    if joint is None or bound is None:
        return
    times = [case.time_ns(method) or joint for method in METHODS]
    if not bound <= joint <= min(times):
        raise SystemExit(f"{case.profile} on {case.cluster}: the joint plan is not the best one")


def stems(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (DATA / folder).glob("*.json")))


def by(
    cases: Sequence[PeerCase], name: Callable[[PeerCase], str], what: str, methods: Sequence[str]
) -> str:
    """Return a row a profile or a cluster: every method's mean gain, and the joint plan's gap.

    Parameters
    ----------
    cases : sequence of PeerCase
        The cases.
    name : callable
        Returns the row a case belongs to.
    what : str
        What the rows are.
    methods : sequence of str
        Methods to show.
    """
    others = [method for method in methods if method != BASELINE]
    rows = []
    for group in dict.fromkeys(map(name, cases)):
        own = standings([case for case in cases if name(case) == group], [*others, JOINT])
        *gains, joint = own
        over = joint.over_bound
        rows.append(
            [
                group,
                *(picked(standing.speedup, times_text, "mean") for standing in gains),
                *(picked(over, above_text, pick) for pick in ("mean", "most")),
            ]
        )
    return markdown([what, *others, f"{JOINT} above bound", "worst"], rows)


def tables(cases: Sequence[PeerCase]) -> str:
    """Return what the methods do over all cases, by cluster and by profile."""
    blocks = []
    for scale in SCALES:
        own = [case for case in cases if case.computation == scale]
        what = f"computation × {scale_text(scale)}"
        blocks += [
            f"### {what}: all {len(own)} cases",
            summary_table(own, METHODS),
            margin(own),
            f"### {what}: speed-up over DDP by cluster, geometric means",
            by(own, lambda case: case.cluster, "cluster", METHODS),
            f"### {what}: speed-up over DDP by profile, geometric means",
            by(own, lambda case: case.profile, "profile", METHODS),
        ]
    return "\n\n".join(blocks)


def margin(cases: Sequence[PeerCase]) -> str:
    """Say how much faster the joint plan is than the best other, whichever that is in a case."""
    ratios = []
    for case in cases:
        times = [case.time_ns(method) for method in METHODS if method != JOINT]
        joint = case.time_ns(JOINT)
        if joint is not None:
            ratios.append(min(one for one in times if one is not None) / joint)
    spread = Ratios(tuple(ratios))
    clear = sum(ratio > 1 + CLEARLY for ratio in ratios)
    return (
        "Against the best of all others, chosen anew in every case, the joint plan is "
        f"{CLEARLY:.0%} faster or more in {clear} of {len(ratios)} cases: {spread.mean:.3f} times "
        f"as fast in the geometric mean, {spread.most:.2f} times at most."
    )


def full(cases: Sequence[PeerCase]) -> str:
    """Return every case: how many times as fast as with DDP an iteration is; –: no plan."""
    blocks = []
    for scale in SCALES:
        own = [case for case in cases if case.computation == scale]
        what = f"computation × {scale_text(scale)}"
        blocks += [f"### {what}: every case", case_table(own, METHODS)]
    return "\n\n".join(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two profiles on three clusters")
    parser.add_argument("--full", action="store_true", help="print every case too")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the methods there")
    options = parser.parse_args()
    cases = planned_cases(options.quick)
    print(tables(cases))
    if options.full:
        print(f"\n{full(cases)}")
    if options.picture:
        save_peers(chart_of(cases, SCALES, METHODS), options.picture)


if __name__ == "__main__":
    main()
