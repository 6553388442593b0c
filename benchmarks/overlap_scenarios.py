"""What plans of compiled graphs expose if times differ, by a simulator of its own.

It reads the documents that ``planner solve`` takes and returns, and imports nothing of the package,
so that it can judge plans of anyone. The rank is a program that runs node by node; each channel is
a queue of transfers. Times are floats, not rounded.

    python benchmarks/overlap_scenarios.py ANSWER.json

prints what the plan of an answer exposes in each scenario.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Times(NamedTuple):
    """Factors on all transfers and on all computation, and whether all channels are one."""

    transfers: float = 1.0
    computation: float = 1.0
    shared: bool = False


SCENARIOS = {
    "as planned": Times(),
    "transfers × 1.25": Times(1.25),
    "transfers × 1.5": Times(1.5),
    "transfers × 2": Times(2.0),
    "computation × 0.8": Times(computation=0.8),
    "computation × 1.25": Times(computation=1.25),
    "one channel": Times(shared=True),
}


def exposed_ns(
    graph: Mapping[str, Any],
    order: Sequence[int],
    merged: Sequence[Sequence[int]],
    times: Times,
) -> float:
    """Return how long no node of the graph computes.

    Parameters
    ----------
    graph : mapping
        ``nodes``, ``kinds`` and ``collectives`` as in a request.
    order, merged : sequence
        The plan, as in an answer.
    times : Times
        The scenario.
    """
    collectives = graph["collectives"]
    bucket = {member: tuple(group) for group in merged for member in group}
    role = {it["start"]: ("start", number) for number, it in enumerate(collectives)}
    role |= {it["wait"]: ("wait", number) for number, it in enumerate(collectives)}
    issued: dict[tuple[int, ...], int] = {}
    arrives: dict[tuple[int, ...], float] = {}
    idle_from: dict[str, float] = {}
    clock = computed = 0.0
    for node in order:
        what, number = role.get(node, ("", -1))
        group = bucket.get(number, (number,))
        it = collectives[number]
        if what == "start":
            if len(group) > 1:
                clock += it.get("pack_ns", 0) * times.computation
            issued[group] = issued.get(group, 0) + 1
            if issued[group] == len(group):
                kind = graph["kinds"][it["kind"]]
                channel = "" if times.shared else kind["channel"]
                size = sum(collectives[member].get("size_bytes", 0) for member in group)
                begin = max(clock, idle_from.get(channel, 0.0))
                arrives[group] = begin + times.transfers * _interpolated(kind["times"], size)
                idle_from[channel] = arrives[group]
        elif what == "wait":
            clock = max(clock, arrives[group])
            if len(group) > 1:
                clock += it.get("unpack_ns", 0) * times.computation
        else:
            took = graph["nodes"][node].get("duration_ns", 0) * times.computation
            clock += took
            computed += took
    return clock - computed


def _interpolated(points: Sequence[Sequence[int]], size: int) -> float:
    """Return the time of a size; beyond the last point the last slope continues."""
    if len(points) == 1 or size <= points[0][0]:
        return float(points[0][1])
    above = next((i for i, point in enumerate(points) if point[0] >= size), len(points) - 1)
    (low, first), (high, last) = points[max(above - 1, 0)], points[max(above, 1)]
    return first + (last - first) * (size - low) / (high - low)


def main() -> None:
    answer = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, times in SCENARIOS.items():
        exposed = exposed_ns(answer, answer["order"], answer["merged"], times)
        print(f"{name}: {exposed / 1e6:.3f} ms exposed")


if __name__ == "__main__":
    main()
