"""What benchmarks of four hosts on one switch have in common: the cluster and the command line."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emulated_hosts import Layout
from emulated_network import reason_unavailable
from runtime_jobs import on_hosts

from planner.view.drawing import GANTT

HOSTS = 4
RATE = 100_000_000


def run(
    argv: Sequence[str] | None,
    worker: Callable[[argparse.Namespace], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    *,
    about: str,
    models: Sequence[str],
    ratios: Sequence[float],
    quick_s: float,
    pictured: str,
) -> int:
    """Read the options, measure on all hosts, print the tables and draw the picture.

    Parameters
    ----------
    argv : sequence of str or None
        The command line's.
    worker : callable
        Measures on one host, with the options; what rank 0 returns has a `chart`.
    show : callable
        Prints it.
    about, pictured : str
        What is asked, and which step is drawn, for the help.
    models, ratios : sequence
        Shipped profiles, and communication over computation, by default.
    quick_s : float
        How long steps compute with ``--quick``.
    """
    parser = argparse.ArgumentParser(
        description=about, epilog="example: %(prog)s --models vgg16 --ratios 1 --picture steps.svg"
    )
    parser.add_argument("--quick", action="store_true", help="one setting, few short steps")
    parser.add_argument("--models", nargs="+", default=list(models), help="shipped profiles")
    parser.add_argument("--ratios", nargs="+", type=float, default=list(ratios), metavar="RHO")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--steps", type=int, default=2, help="of each variant a round; default: 2")
    parser.add_argument("--picture", type=Path, help=f"draw {pictured} (.svg)")
    options = parser.parse_args(argv)
    options.compute, options.samples, options.repetitions = 0.3, 5, 5
    if options.quick:
        options.models, options.ratios = options.models[:1], [1.0]
        options.rounds, options.steps, options.samples, options.repetitions = 2, 2, 1, 2
        options.compute = quick_s
    write = GANTT.writer(options.picture) if options.picture else None
    reason = reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    result = on_hosts(Layout.flat(HOSTS), RATE, worker, options, timeout_s=3600)
    print(
        f"{HOSTS} hosts, {RATE // 10**6} Mbit/s, {options.rounds} rounds of {options.steps} steps\n"
    )
    show(result)
    if write is not None:
        write(result["chart"], options.picture)
    return 0
