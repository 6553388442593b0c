"""What the text of BigDL claims without a figure: what ``bigdl.py claims`` prints and draws.

Problem: volume and time of every method against the number of nodes ("the time spent at the driver
linearly increases", "data size transferred on each node remains the same"); what one pull order for
all costs if nodes do not wait for each other's turns, by simulation; how planning's run time grows.
"""

import time
from collections import deque
from fractions import Fraction
from pathlib import Path

from grids import grid, sections

from planner.families.bigdl import METHODS, Problem, evaluate, solve
from planner.jsonio import bigdl as bigdl_json
from planner.model.network import Network
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS

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
                *(f"{float(cost.times_full_transfer):.4f}" for cost in costs),
                found[0].status.value,
            )
        )
    return grid(("nodes", "2(N-1)/N", *NAMES, "rotated is"), rows)


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
    return grid(header, rows)


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
    return grid(("nodes", "time over that of a quarter of the nodes"), rows)


def save(path: Path) -> None:
    """Draw the plan for 16 nodes beside the other ways."""
    problem = case(16)
    answer = bigdl_json.answer(problem, solve(problem))
    drawn = Chart(answer.headline(), bigdl_json.ranking(answer), answer.lower_bound_ns)
    DRAWINGS["bigdl"].save(drawn, path)


def report() -> str:
    """Return all tables."""
    tables = (
        ("Time in T_F, 4 partitions a node, no start-up, adding free", against_nodes()),
        ("One pull order for all against rotated, if nodes do not wait for turns", without_turns()),
        ("Run time of planning", growth()),
    )
    return sections(tables)
