"""How far joint plans are from their bounds, for any profiles, and how long they take.

    python benchmarks/iteration_gaps.py [PROFILE ...] [--made N] [--computation 1,0.1,0.02]

Prints for every shipped cluster the mean and the largest distance to the bound and the processor
time of one request, from the dictionary to the answer. Without profiles it takes the shipped ones.
`--made N` adds N models that nobody trains: many branches, many tiny parameters beside a few large
ones, ops of very different lengths (`made`); the same N gives the same models.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from math import exp, log
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, NamedTuple

from peer_tables import markdown

import planner

DATA = Path(__file__).parent.parent / "data"
AIM, AIM_S = 0.01, 2.0


class Case(NamedTuple):
    """One request: its distance to the bound is None where nothing fits into memory."""

    profile: str
    cluster: str
    computation: str
    gap: float | None
    seconds: float


def made(seed: int) -> dict[str, Any]:
    """Return a profile of blocks whose branches have a few ops and parameters each."""
    draw = Random(seed)
    ops: list[dict[str, Any]] = []
    parameters: list[dict[str, Any]] = []

    def op(name: str, after: Sequence[str]) -> str:
        forward = round(exp(draw.gauss(log(2e5), 1.5)))
        ops.append({"name": name, "ns": forward, "pass": "forward", "after": after})
        if draw.random() < 0.8:
            size = 4 * round(exp(draw.gauss(log(300), 1.5)))
            if draw.random() < 0.15:
                size = 4 * round(exp(draw.gauss(log(3e5), 1.5)))
            parameters.append(
                {"name": f"{name}.w", "bytes": size, "updated_by": f"{name}'", "read_by": name}
            )
        return name

    last = op("stem", ())
    for block in range(draw.randint(3, 30)):
        ends = []
        for branch in range(draw.randint(1, 7)):
            end = last
            for depth in range(draw.randint(1, 5)):
                end = op(f"b{block}.{branch}.{depth}", (end,))
            ends.append(end)
        if draw.random() < 0.5 and last not in ends:
            ends.append(last)
        last = op(f"b{block}.join", tuple(ends))
    followers: dict[str, list[str]] = {}
    for one in ops:
        for before in one["after"]:
            followers.setdefault(before, []).append(f"{one['name']}'")
    for one in reversed(tuple(ops)):
        name = one["name"]
        after = followers.get(name, [name])
        ops.append({"name": f"{name}'", "ns": 2 * one["ns"], "pass": "backward", "after": after})
    return {
        "name": f"made {seed}",
        "provenance": {"kind": "synthetic", "source": f"benchmarks/iteration_gaps.py, seed {seed}"},
        "ops": ops,
        "parameters": parameters,
    }


def run(profiles: Iterable[dict[str, Any]], scales: Sequence[str]) -> list[Case]:
    """Plan every profile on every cluster with every speed of computation."""
    clusters = [
        json.loads(path.read_bytes()) for path in sorted((DATA / "clusters").glob("*.json"))
    ]
    cases = []
    for profile in profiles:
        for scale in scales:
            for cluster in clusters:
                request = {
                    "problem": "iteration",
                    "profile": profile,
                    "cluster": cluster,
                    "computation_scale": float(scale),
                }
                begin = time.process_time()
                answer = planner.solve(request)
                seconds = time.process_time() - begin
                cases.append(Case(profile["name"], cluster["name"], scale, gap(answer), seconds))
        print(f"{profile['name']}: done", file=sys.stderr)
    return cases


def gap(answer: dict[str, Any]) -> float | None:
    """Return the distance of a plan to its bound; errors end the run."""
    assert "error" not in answer, answer
    if answer["objective_ns"] is None:
        return None
    return float(answer["objective_ns"] / answer["lower_bound_ns"] - 1)


def tables(cases: Sequence[Case]) -> str:
    """Return a row for each cluster, and one for each speed of computation."""
    header = ["", "cases", "mean gap", "largest gap", "of", "longest", "of"]

    def rows(key: Callable[[Case], str]) -> list[list[str]]:
        return [row(one, [case for case in cases if key(case) == one]) for one in keys(key)]

    def keys(key: Callable[[Case], str]) -> list[str]:
        return list(dict.fromkeys(map(key, cases)))

    by_cluster = markdown(header, rows(lambda case: case.cluster))
    by_scale = markdown(header, rows(lambda case: f"computation × {case.computation}"))
    planned = [case for case in cases if case.gap is not None]
    near = sum(case.gap <= AIM for case in planned if case.gap is not None)
    quick = sum(case.seconds <= AIM_S for case in cases)
    return (
        f"{by_scale}\n\n{by_cluster}\n\n{near} of {len(planned)} within {AIM:.0%} of the bound, "
        f"{quick} of {len(cases)} requests within {AIM_S:g} s."
    )


def row(name: str, cases: Sequence[Case]) -> list[str]:
    planned = [case for case in cases if case.gap is not None]
    slowest = max(cases, key=lambda case: case.seconds)
    if not planned:
        return [name, "0", "–", "–", "–", f"{slowest.seconds:.2f} s", slowest.profile]
    farthest = max(planned, key=lambda case: case.gap or 0.0)
    return [
        name,
        str(len(planned)),
        f"{mean(case.gap or 0.0 for case in planned):.3%}",
        f"{farthest.gap:.3%}",
        f"{farthest.profile} × {farthest.computation}",
        f"{slowest.seconds:.2f} s",
        slowest.profile,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="*", type=Path, metavar="PROFILE")
    parser.add_argument("--made", type=int, default=0, metavar="N", help="also N made models")
    parser.add_argument("--computation", default="1,0.1,0.02", metavar="LIST")
    options = parser.parse_args()
    profiles = [json.loads(path.read_bytes()) for path in options.profiles]
    profiles += [made(seed) for seed in range(options.made)]
    if not profiles:
        paths = sorted((DATA / "profiles").glob("*.json"))
        profiles = [json.loads(path.read_bytes()) for path in paths]
    print(tables(run(profiles, options.computation.split(","))))


if __name__ == "__main__":
    main()
