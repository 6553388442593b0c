"""Times collective programs over gloo, by the interpreter, against gloo's own ring.

    python benchmarks/runtime_programs.py [--quick] [--ranks 4 9] [--rate 100Mb/s | --loopback]

All-reduces of each size take turns; a time is that of the slowest rank. The ring by the interpreter
sends what gloo's ring sends, so that their ratio is what the interpreter itself costs or gains. On
the emulated cluster each rank is a host of its own, all on one switch; on the loopback interface
nothing limits them but this machine's cores.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from emulated_hosts import Layout
from emulated_network import reason_unavailable
from runtime_jobs import on_hosts
from tables import head, row
from torch import distributed

from planner.families.collectives.exchange import direct_program, halving_doubling_program
from planner.families.collectives.program import Program
from planner.families.collectives.ring import ring_program
from planner.model.units import format_bytes, format_ns, parse_rate
from planner.runtime import AllReduce, Ring, join
from planner.runtime.collectives.interpreter import Interpreter

GLOO = "gloo's ring"
MADE: dict[str, Callable[[int], Program]] = {
    "ring": ring_program,
    "direct": direct_program,
    "halving_doubling": halving_doubling_program,
}

Times = dict[str, dict[str, list[int]]]
"""By size and way, one of each round."""


def worker(options: argparse.Namespace) -> Times:
    """Measure on one rank; every rank returns the slowest one's times."""
    torch.set_num_threads(1)
    with join(60) as world:
        ways: dict[str, AllReduce] = {GLOO: Ring(world.group)}
        ways |= {name: Interpreter(world, MADE[name](world.size)) for name in options.programs}
        found: Times = {}
        signal = torch.zeros(1)
        for size in options.sizes:
            own: dict[str, list[int]] = {name: [] for name in ways}
            flat = torch.ones(size // 4)
            for turn in range(1 + options.rounds):
                for name in sorted(ways, reverse=bool(turn % 2)):
                    flat.fill_(1)
                    distributed.all_reduce(signal, group=world.group)
                    start = time.monotonic_ns()
                    for _ in range(options.times):
                        ways[name](flat)
                    if turn:
                        own[name].append((time.monotonic_ns() - start) // options.times)
            ranks = [json.loads(text) for text in world.gather("times", json.dumps(own))]
            found[str(size)] = {
                name: [max(times) for times in zip(*(rank[name] for rank in ranks), strict=True)]
                for name in ways
            }
        for way in ways.values():
            if isinstance(way, Interpreter):
                way.close()
    return found


def show(found: Times) -> None:
    """Print each way's median, and its ratio to gloo's ring, round by round."""
    head(("size", "way", "median", "× gloo's ring", "lowest – highest round"))
    for size, ways in found.items():
        for name, times in ways.items():
            ratios = [one / gloo for one, gloo in zip(times, ways[GLOO], strict=True)]
            row(
                (
                    format_bytes(int(size)),
                    name,
                    format_ns(round(median(times))),
                    f"{median(ratios):.3f}",
                    f"{min(ratios):.3f} – {max(ratios):.3f}",
                )
            )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="what do programs cost that gloo has not built in?",
        epilog="example: %(prog)s --ranks 4 --sizes 65536 --rate 100Mb/s",
    )
    parser.add_argument("--quick", action="store_true", help="2 ranks, 64 KiB, 1 round")
    parser.add_argument("--ranks", nargs="+", type=int, default=[4, 9], help="default: 4 9")
    parser.add_argument("--sizes", nargs="+", type=int, default=[2**16, 2**20, 2**24], help="bytes")
    parser.add_argument("--programs", nargs="*", choices=list(MADE), default=list(MADE))
    parser.add_argument("--rate", default="100Mb/s", help="of a link; default: 100Mb/s")
    parser.add_argument("--loopback", action="store_true", help="no emulated cluster")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--times", type=int, default=1, help="all-reduces a round; default: 1")
    options = parser.parse_args(argv)
    if options.quick:
        options.ranks, options.sizes, options.rounds = [2], [2**16], 1
    reason = None if options.loopback else reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    for ranks in options.ranks:
        if options.loopback:
            from tests.runtime.launching import launch

            found = launch(worker, ranks, options, timeout_s=600)[0].value
        else:
            rate = int(parse_rate(options.rate, "--rate") * 8)
            found = on_hosts(Layout.flat(ranks), rate, worker, options, timeout_s=3600)
        where = "loopback" if options.loopback else options.rate
        print(f"### {ranks} ranks, {where}\n")
        show(found)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
