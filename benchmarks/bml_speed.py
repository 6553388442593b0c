"""Measures how fast BML's schedule is made, priced, checked and mended.

    python benchmarks/bml_speed.py [--quick]

Prints processor times and their ratios, from one run: the closed form of one server's schedule
against Algorithm 1 literally; both tiers of the checker; how time grows with the number of servers,
intact and with one NIC or one switch lost; and packings of trees, with their distance to the bound.
"""

import argparse
import gc
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import TypeVar

from bml_algorithm1 import run_thread
from tables import rows_below

from planner.families.bml import (
    CheckerContext,
    Damage,
    Failures,
    Problem,
    Schedule,
    check,
    evaluate,
)
from planner.families.bml.packing import pack
from planner.families.bml.problem import Transfer
from planner.families.bml.reroute import detour
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline

T = TypeVar("T")

LARGEST = BCube(16, 4)

FAMILIES = {
    "k = 2": [BCube(n, 2) for n in (24, 32, 64, 128, 256)],
    "k = 4": [BCube(n, 4) for n in (4, 6, 8, 12, 16)],
    "n = 2": [BCube(2, k) for k in (8, 10, 12, 14, 16)],
}
"""Networks up to 65,536 servers, too large for the complete check."""

NIC = Failures(nics=frozenset({(0, 0)}))
SWITCH = Failures(switches=frozenset({(0, 0)}))
SERVER = Failures(servers=frozenset({0}))
DAMAGES = {"NIC": NIC, "switch": SWITCH, "server": SERVER}


def once(run: Callable[[], T]) -> tuple[T, float]:
    """Return an answer and the processor time it took, in seconds."""
    gc.collect()
    begin = time.process_time()
    answer = run()
    return answer, time.process_time() - begin


def listed(schedule: Schedule, server: int) -> list[Transfer]:
    """Return all transfers of a server."""
    return list(schedule.transfers(server))


def seconds(run: Callable[[], object], budget: float = 0.1) -> float:
    """Return the shortest processor time of three runs or more, or of one that is long."""
    best, spent, runs = math.inf, 0.0, 0
    gc.collect()
    while runs < 3 or spent < budget:
        begin = time.process_time()
        run()
        took = time.process_time() - begin
        best, spent, runs = min(best, took), spent + took, runs + 1
        if took > 1:
            break
    return best


def name(bcube: BCube) -> str:
    return f"({bcube.n},{bcube.k})"


def span(taken: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if taken * scale >= 1:
            return f"{taken * scale:.3g} {unit}"
    return f"{taken * 1e9:.3g} ns"


def exponents(rows: Sequence[Sequence[float]]) -> list[str]:
    """Return for each column x of ``N^x``, fitted to all rows (N first) by least squares."""
    logs = [[math.log(value) for value in column] for column in zip(*rows, strict=True)]
    sizes, *others = [[one - sum(column) / len(column) for one in column] for column in logs]
    square = sum(size * size for size in sizes)
    return [
        f"N^{sum(map(math.prod, zip(sizes, other, strict=True))) / square:.2f}" for other in others
    ]


def literal(bcube: BCube, server: int) -> Counter[tuple[int, str, int, int, int, int]]:
    """Return what Algorithm 1 sends from a server, with the number of pieces of each transfer."""
    return Counter(
        (thread, sent.stage, sent.step, sent.level, sent.peer, len(sent.pieces))
        for thread in range(bcube.k)
        for sent in run_thread(bcube, thread, server)
    )


def one_server(quick: bool) -> None:
    print("## One server's schedule against Algorithm 1 literally\n")
    schedule, server = Schedule(LARGEST), LARGEST.servers // 3
    first = seconds(lambda: next(schedule.transfers(server)))
    made = seconds(lambda: Schedule(LARGEST))
    count = len(list(schedule.transfers(server)))
    whole = seconds(partial(listed, schedule, server))
    print(
        f"BCube(16,4): {span(whole)} for all {count} transfers of a server (aim: 1 ms), "
        f"{span(first)} for the first one alone, {span(made)} to make the schedule itself.\n"
    )
    rows = []
    for n in (2, 4) if quick else (2, 3, 4, 6, 8, 12, 16):
        bcube = BCube(n, 4)
        schedule, server = Schedule(bcube), bcube.servers // 3
        sent = list(schedule.transfers(server))
        closed = seconds(partial(listed, schedule, server))
        pieces, slow = once(partial(literal, bcube, server))
        if slow < 1:
            slow = seconds(partial(literal, bcube, server))
        assert pieces == Counter(
            (s.thread, s.stage, s.step, s.level, s.peer, s.length) for s in sent
        )
        rows.append(
            [
                name(bcube),
                f"{bcube.servers:,}",
                f"{bcube.nics:,}",
                str(len(sent)),
                span(closed),
                span(closed / len(sent)),
                span(closed / bcube.nics),
                span(slow),
                span(slow / len(sent)),
                span(slow / bcube.nics),
                f"{slow / closed:,.0f}×",
            ]
        )
    header = ["network", "servers", "pieces", "transfers"]
    for form in ("closed form", "literally"):
        header += [form, "a transfer", "a piece"]
    rows_below([*header, "ratio"], rows)


def complete(quick: bool) -> None:
    print("## The complete check\n")
    rows: list[list[str]] = []
    before: tuple[int, float] | None = None
    for bcube in [BCube(n, 2) for n in ((2, 4) if quick else (2, 4, 6, 8, 11, 16))]:
        schedule, context = Schedule(bcube), CheckerContext(bcube, exclusive=True)
        assert check(context, schedule) == "complete"
        taken = seconds(partial(check, context, schedule))
        cells = bcube.servers**2 * bcube.nics
        grown = "" if before is None else f"{cells / before[0]:.1f}× → {taken / before[1]:.1f}×"
        rows.append(
            [
                name(bcube),
                f"{bcube.servers:,}",
                f"{bcube.servers * len(list(schedule.transfers(0))):,}",
                f"{cells:,}",
                span(taken),
                grown,
            ]
        )
        before = cells, taken
    rows_below(["network", "servers", "transfers", "counts, k·N³", "time", "counts → time"], rows)


def representative(quick: bool) -> None:
    bcube = BCube(8, 4) if quick else LARGEST
    print(f"## The representative check of all {bcube.servers:,} servers of BCube{name(bcube)}\n")
    intact = Schedule(bcube)
    cases: list[tuple[str, CheckerContext, Schedule]] = [
        ("nothing", CheckerContext(bcube, exclusive=True), intact)
    ]
    several = Failures(SERVER.servers, frozenset({(bcube.servers - 1, 0)}), SWITCH.switches)
    everything = {**DAMAGES, "NIC, switch, server": several}
    for what, failed in everything.items():
        damage = Damage(bcube, failed)
        cases.append((what, CheckerContext(bcube, damage.dead, damage.down), detour(damage)))
    rows = []
    for what, context, plan in cases:
        assert check(context, plan) == "pieces"
        rows.append([what, str(len(plan.detours)), span(seconds(partial(check, context, plan)))])
    rows_below(["failed", "blocked transfers", "time (aim: 1 s)"], rows)


def growth(title: str, networks: Sequence[BCube]) -> None:
    print(f"## Growth with the number of servers, {title}\n")
    header = ["network", "servers", "a server's schedule", "price", "check", "NIC lost: cut off?"]
    header += ["detour", "price", "check", "switch lost: detour", "price", "check"]
    rows, times = [], []
    for bcube in networks:
        schedule, server = Schedule(bcube), bcube.servers // 3
        network = Network(Fraction(5 * 10**9), startup_ns=5000)
        problem = Problem(bcube, network, 2**40)
        taken = [
            seconds(partial(listed, schedule, server)),
            seconds(partial(evaluate, problem, schedule)),
            seconds(partial(check, CheckerContext(bcube, exclusive=True), schedule)),
            seconds(Damage(bcube, NIC).cut_off),
        ]
        for failures in (NIC, SWITCH):
            damage = Damage(bcube, failures)
            context, plan = CheckerContext(bcube, damage.dead, damage.down), detour(damage)
            taken += [
                seconds(partial(detour, damage)),
                seconds(partial(evaluate, problem, plan)),
                seconds(partial(check, context, plan)),
            ]
        rows.append([name(bcube), f"{bcube.servers:,}", *map(span, taken)])
        times.append([float(bcube.servers), *taken])
        print(f"{bcube}: {sum(taken):.1f} s", file=sys.stderr)
    rows_below(header, rows)
    print("Each grows as:\n")
    rows_below(header[2:], [exponents(times)])


def trees(networks: Sequence[BCube], limit: float) -> None:
    print(f"## Packings of trees, limit {limit:g} s\n")
    rows = []
    for bcube in networks:
        for what, failed in DAMAGES.items():
            damage = Damage(bcube, failed)
            packing, taken = once(partial(pack, damage, Deadline(limit)))
            gap = packing.load / packing.bound - 1
            rows.append(
                [
                    name(bcube),
                    f"{bcube.nics:,}",
                    what,
                    span(taken),
                    str(len(packing.trees)),
                    f"{float(packing.load):.4f}",
                    "0" if not gap else f"{float(gap):.1e}",
                    "yes" if packing.timed_out else "",
                ]
            )
        print(f"{bcube}, trees", file=sys.stderr)
    header = ["network", "NICs", "failed", "time", "trees", "load (×T_F)", "above the bound"]
    rows_below([*header, "stopped"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small networks only")
    quick = parser.parse_args().quick
    import numpy as np
    import scipy.optimize

    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, scipy {scipy.__version__}\n")
    one_server(quick)
    complete(quick)
    representative(quick)
    for title, networks in list(FAMILIES.items())[: 1 if quick else None]:
        growth(title, networks[:2] if quick else networks)
    sizes = [(3, 2), (4, 2), (2, 3)]
    if not quick:
        sizes += [(3, 3), (8, 2), (2, 6), (4, 3), (3, 4), (2, 7), (12, 2), (16, 2), (5, 3), (8, 3)]
    trees([BCube(*size) for size in sizes], 2.0 if quick else 20.0)


if __name__ == "__main__":
    main()
