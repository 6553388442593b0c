"""How fast a whole iteration is planned, and where the time goes.

    python benchmarks/iteration_speed.py [--quick]

Prints processor times of one process: of one request, from the dictionary to the answer, for every
shipped profile on every shipped cluster; for each profile's slowest cluster the shares of the parts
of it; and the slowest case of all against the aim of 2 s. Times depend on the machine; shares and
ratios are what counts. Run it with priority (nice -n -15) on a machine that others use.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec
from peer_tables import markdown

import planner
from planner.families import iteration
from planner.families.iteration.bounds import bound
from planner.jsonio import decode_request
from planner.jsonio.iteration_making import answer
from planner.solving.deadline import Deadline

T = TypeVar("T")

DATA = Path(__file__).parent.parent / "data"
AIM_S = 2.0
QUICK = (("lenet5", "alexnet_v2"), ("bml-bcube", "h100-8"))
PARTS = (
    "read the request",
    "plan and price",
    "bounds",
    "check the best",
    "explain it",
    "rest of the answer",
)


def stems(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (DATA / folder).glob("*.json")))


def load(folder: str, name: str) -> Any:
    return json.loads((DATA / folder / f"{name}.json").read_text(encoding="utf-8"))


def timed(run: Callable[[], T]) -> tuple[T, float]:
    begin = time.process_time()
    result = run()
    return result, time.process_time() - begin


def parts(request: dict[str, Any]) -> list[float]:
    """Return the processor time of each of `PARTS`, each run by itself on a fresh problem."""
    data = msgspec.json.encode(request)
    problem, reading = timed(lambda: decode_request(data).to_problem())
    found, planning = timed(lambda: iteration.alternatives(problem, Deadline(None)))
    distinct = {(one.synchronisation.half, one.mode): one for one in found if one.plan is not None}

    def bounds() -> None:
        for one in distinct.values():
            bound(problem, one.synchronisation, one.mode)

    _, bounding = timed(bounds)
    best, checking = timed(lambda: iteration.best_of(problem, found, 0.0))
    explaining = 0.0
    if best.plan is not None:
        _, explaining = timed(partial(iteration.explain, problem, best.plan, found))
    _, answering = timed(lambda: msgspec.json.encode(answer(problem, best, found)))
    whole = (reading, planning - bounding, bounding, checking, explaining, answering - explaining)
    return [max(one, 0.0) for one in whole]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two profiles on two clusters")
    quick = parser.parse_args().quick
    profiles, clusters = QUICK if quick else (stems("profiles"), stems("clusters"))
    documents = {name: load("clusters", name) for name in clusters}
    times: dict[tuple[str, str], float] = {}
    rows, shares = [], []
    warm_up = {"profile": load("profiles", "lenet5"), "cluster": documents[clusters[0]]}
    planner.solve({"problem": "iteration", **warm_up})  # solver libraries load on their first use
    for name in profiles:
        base = {"problem": "iteration", "profile": load("profiles", name)}
        for place, document in documents.items():
            request = {**base, "cluster": document}
            given, times[name, place] = timed(partial(planner.solve, request))
            assert "error" not in given, given
        own = {place: times[name, place] for place in clusters}
        slowest = max(own, key=own.__getitem__)
        problem = decode_request(msgspec.json.encode(request)).to_problem()
        rows.append(
            [
                name,
                f"{len(problem.graph.ops):,}",
                f"{len(problem.pushed):,}",
                f"{median(own.values()):.3f} s",
                f"{own[slowest]:.3f} s",
                slowest,
                f"{AIM_S / own[slowest]:.1f}×",
            ]
        )
        each = parts({**base, "cluster": documents[slowest]})
        total = sum(each) or 1.0
        shares.append([name, slowest, *(f"{one / total:.0%}" for one in each)])
        print(f"{name}: {sum(own.values()):.1f} s", file=sys.stderr)
    header = ["profile", "ops", "parameters", "median", "slowest", "cluster", "aim / slowest"]
    print(markdown(header, rows))
    print("\n" + markdown(["profile", "cluster", *PARTS], shares, 2))
    (name, place), most = max(times.items(), key=lambda item: item[1])
    kept = sum(one <= AIM_S for one in times.values())
    print(
        f"\nSlowest: {name} on {place}, {most:.2f} s, {most / AIM_S:.0%} of the aim of "
        f"{AIM_S:g} s; {kept} of {len(times)} cases keep it."
    )


if __name__ == "__main__":
    main()
