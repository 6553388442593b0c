"""BigDL's published speed-ups beside the model, and what else its text claims.

    python benchmarks/bigdl_figures.py [--picture FILE]

Published are two ratios only (Venkataraman, Ding and Ermolin, Fig. 3): throughput of 16 nodes over
that of 8, 1.92 for Inception-v1 and 1.88 for ResNet. Neither network nor computation times are, so
this script measures nothing of theirs: it solves for the ratio of computation to T_F (the time of
one gradient over one link) that each ratio implies in the model, exactly, and for the overhead
that would explain it instead. Then: volume and time of every method against the number of nodes;
what one pull order for all costs if nodes do not wait for each other's turns, by simulation; and
how the run time of planning grows.
"""

import argparse
import time
from collections import deque
from fractions import Fraction
from pathlib import Path

from planner.bigdl import METHODS, Exchange, Problem, evaluate, solve
from planner.draw import HotSpotsChart, format_table, save_hot_spots
from planner.jsonio import bigdl as face
from planner.network import Network

PUBLISHED = {"Inception-v1": Fraction(192, 100), "ResNet": Fraction(188, 100)}

SPARK_SHARE = Fraction(10, 100) / 300
"""Fig. 4 read as a line: scheduling takes 10 % of computation at 300 partitions."""

NAMES = [name for name in METHODS if name != "auto"]


def case(nodes: int, partitions: int = 4, elements: int = 7 * 2**20) -> Problem:
    """Return a problem over 10 Gb/s; no figure here depends on the rate."""
    return Problem(
        elements=elements,
        element_bytes=4,
        nodes=nodes,
        partitions_per_node=partitions,
        network=Network(Fraction(1_250_000_000)),
    )


def volume(nodes: int) -> Fraction:
    """Return the time of a synchronisation, in T_F: 2(N-1)/N."""
    return evaluate(case(nodes), Exchange(7 * 2**20, nodes)).times_full_transfer


def implied() -> str:
    """Return which computation, or which overhead, each published ratio implies."""
    few, many = volume(8), volume(16)
    rows = []
    for name, ratio in PUBLISHED.items():
        # Each node computes c: ratio = 2 (c + few) / (c + many).
        same_each = (2 * few - ratio * many) / (ratio - 2)
        # All together compute w: ratio = (w/8 + few) / (w/16 + many).
        same_all = (ratio * many - few) / (Fraction(1, 8) - ratio / 16)
        # No traffic, but d of every task's c: ratio = 2 (1 + 8d) / (1 + 16d).
        overhead = (2 - ratio) / (16 * ratio - 16)
        rows.append(
            (
                name,
                f"{float(ratio):.2f}",
                f"{float(same_each):.4g}",
                f"{float(many / (same_each + many)):.0%}",
                f"{float(same_all / 8):.4g}",
                f"{float(many / (same_all / 16 + many)):.1%}",
                f"{float(16 * overhead):.1%}",
                f"{float(16 * overhead / SPARK_SHARE / 16):.0f}",
            )
        )
        assert ratio == 2 * (same_each + few) / (same_each + many)
        assert ratio == (same_all / 8 + few) / (same_all / 16 + many)
        assert ratio == 2 * (1 + 8 * overhead) / (1 + 16 * overhead)
    header = (
        "published",
        "16 over 8",
        "c, same a node",
        "traffic",
        "c at 8, same in all",
        "traffic",
        "or overhead at 16",
        "tasks a node",
    )
    floor = 2 * few / many
    return (
        f"{format_table(header, rows)}\n"
        f"volume in T_F: {float(few)} at 8 nodes, {float(many)} at 16; "
        f"without any computation the ratio would still be {float(floor):.4f}"
    )


def against_nodes() -> str:
    rows = []
    for nodes in (2, 4, 8, 16, 32, 64, 128, 256):
        problem = case(nodes)
        found = [solve(problem, method=name) for name in NAMES]
        costs = [evaluate(problem, one.plan) for one in found if one.plan is not None]
        rows.append(
            (
                str(nodes),
                f"{2 * (nodes - 1) / nodes:.4f}",
                *(f"{float(one.times_full_transfer):.4f}" for one in costs),
                found[0].status.value,
            )
        )
    return format_table(("nodes", "2(N-1)/N", *NAMES, "rotated is"), rows)


def first_come(nodes: int) -> int:
    """Return after how many slices all have pulled in one order, pulls served one by one."""
    queues: list[deque[int]] = [deque() for _ in range(nodes)]
    following = [0] * nodes

    def ask(node: int) -> None:
        following[node] += following[node] == node
        if following[node] < nodes:
            queues[following[node]].append(node)
            following[node] += 1

    for node in range(nodes):
        ask(node)
    slots = 0
    while any(queues):
        served = [queue.popleft() for queue in queues if queue]
        slots += 1
        for node in served:
            ask(node)
    return slots


def fair_shares(nodes: int) -> Fraction:
    """Return the same if each node shares its link among all who pull from it."""
    at = [0 if node else 1 for node in range(nodes)]
    left = [Fraction(1)] * nodes
    clock = Fraction(0)
    while any(place < nodes for place in at):
        pulling = [node for node in range(nodes) if at[node] < nodes]
        at_once = [0] * nodes
        for node in pulling:
            at_once[at[node]] += 1
        span = min(left[node] * at_once[at[node]] for node in pulling)
        clock += span
        for node in pulling:
            left[node] -= span / at_once[at[node]]
        for node in pulling:
            if not left[node]:
                at[node] += 2 if at[node] + 1 == node else 1
                left[node] = Fraction(1)
    return clock


def without_turns() -> str:
    rows = []
    for nodes in (4, 8, 16, 32, 64):
        least = nodes - 1
        rows.append(
            (
                str(nodes),
                "1",
                f"{first_come(nodes) / least:.3g}",
                f"{float(fair_shares(nodes) / least):.3g}",
                str(nodes),
            )
        )
    header = ("nodes", "rotated", "one at a time", "shared link", "turn by turn")
    return format_table(header, rows)


def growth() -> str:
    """Return the process time of planning, each relative to the row before."""
    rows, before = [], 0.0
    for power in range(12, 21, 2):
        problem = case(2**power)
        spent = []
        for _ in range(3):
            begin = time.process_time()
            solve(problem)
            spent.append(time.process_time() - begin)
        least = min(spent)
        rows.append((f"2^{power}", f"{least / before:.2f}" if before else "–"))
        before = least
    return format_table(("nodes", "time over that of a quarter of the nodes"), rows)


def save(path: Path) -> None:
    """Draw the plan for 16 nodes beside the other ways."""
    problem = case(16)
    answer = face.answer(problem, solve(problem))
    save_hot_spots(
        HotSpotsChart(face.headline(answer), face.hot_spots(answer), answer.lower_bound_ns), path
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="draw the hot spot and the methods")
    options = parser.parse_args()
    print("1. What the published ratios imply (c: computation in T_F; derived, not measured)\n")
    print(implied() + "\n")
    print("2. Time of one synchronisation in T_F, 4 partitions a node, no start-up, adding free\n")
    print(against_nodes() + "\n")
    print("3. One pull order for all against rotated, if nodes do not wait for turns (simulated)\n")
    print(without_turns() + "\n")
    print("4. Run time of planning\n")
    print(growth())
    if options.picture:
        save(options.picture)


if __name__ == "__main__":
    main()
