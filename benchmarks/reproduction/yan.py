"""Remakes Table 1, Figs. 8, 9 and 11 of Yan et al. (KDD'15), and the spread of configurations.

    python benchmarks/reproduction/yan.py [WHAT]

WHAT is one of these; without it, all are printed:

    1            Table 1: ranks
    8            Fig. 8: epochs by machines, MNIST
    9            Fig. 9: the same, ImageNet-22K
    11           Fig. 11: where the time of an epoch goes
    spread       best, median and worst configuration
    ranges       how far a constant may go (two minutes)
    heldout      fitted to four rows (some ten minutes)

Networks and constants are those of ``data/yan``: stand-ins that meet the printed totals. Of the
constants, two were fitted to the ranks of each half of Table 1; so ranks are scored with those
fitted to the other half (`yan_ranks`), and with those fitted to half of the rows (`yan_heldout`).
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from grids import grid, percent, sections
from table import Claim, Row, claims, numbers
from yan_heldout import held_out, orders
from yan_ranks import (
    HALVES,
    Triple,
    everything,
    given,
    label,
    load,
    order,
    pairs_right,
    ranking,
    transferred,
)
from yan_spread import spread

from planner.families.yan import Problem, solve
from planner.families.yan.model import estimate
from planner.families.yan.problem import scaled
from planner.solving.result import Status

LIMIT = 10
"""How far constants are changed."""

CONSTANTS = ("muladd_ns", "activation_ns", "error_ns", "latency_ns", "nic_bits_per_s")

WORST = 10
"""The best configuration is so many times as fast as the worst, say the slides."""

MACHINES = (2, 4, 8, 12, 16, 20)
"""Of Figs. 8 and 9."""

HOUR_NS = 3600 * 10**9


def halves() -> dict[str, tuple[Problem, Problem]]:
    """Return each half of Table 1 with the other one."""
    first, second = (load(f"{name}-table1") for name in HALVES)
    return dict(zip(HALVES, ((first, second), (second, first)), strict=True))


def table1() -> str:
    """Return the ranks with constants from the other half, scored, and with fitted ones."""
    parts, rows = [], []
    for name, (problem, other) in halves().items():
        paper = given(problem)
        two = order(transferred(problem, other))
        every = order(everything(problem, other))
        fitted = ranking(problem)
        epochs: dict[Triple, Fraction] = {one.configuration.triple: one.epoch for one in fitted}
        best = min(epochs.values())
        own: list[Triple] = [one.configuration.triple for one in fitted]
        lines = []
        for rank, triple in enumerate(paper, 1):
            cells = [label(triple), f"{rank}"]
            for found in (two, every):
                place = found.index(triple) + 1
                cells += [f"{place}", f"{place - rank:+d}" if place != rank else "0"]
            cells += [f"{own.index(triple) + 1}", f"{float(epochs[triple] / best):.3f}"]
            lines.append(cells)
        header = ("#W/#R/#PS", "paper", "scored", "difference", "all constants", "difference")
        parts.append((HALVES[name], grid((*header, "fitted", "epoch over the best"), lines)))
        for found, what, is_fit in (
            (two, "two constants from the other half", False),
            (every, "all constants from the other half", False),
            (own, "constants of this half", True),
        ):
            right, count = pairs_right(found, paper)
            title = f"{HALVES[name]}: {what}"
            rows.append(Row(title, count, right, decimals=0, fitted=is_fit))
    parts.append(("Pairs of configurations in the paper's order", numbers(rows)))
    return sections(parts)


def figure11() -> str:
    """Return the shares of an epoch in the configurations of Table 1(b)."""
    problem = load("imagenet22k-table1")
    lines = []
    for one in sorted(
        ranking(problem), key=lambda ranked: given(problem).index(ranked.configuration.triple)
    ):
        layers = estimate(problem, one.configuration).layers
        phases = [sum(times, Fraction(0)) / one.epoch for times in zip(*layers, strict=True)]
        work = phases[0] + phases[2] + phases[4]
        lines.append(
            (
                label(one.configuration.triple),
                f"{float(one.epoch / HOUR_NS):.1f} h",
                *map(percent, phases),
                percent(work),
            )
        )
    header = ("#W/#R/#PS", "epoch", "forward", "its traffic", "backward", "its traffic")
    about = "Fig. 11: ImageNet-22K, where an epoch goes. The slides print none of its numbers."
    found = grid((*header, "weight update", "reading weights", "all computation"), lines)
    return sections([(about, found)])


def scalability(name: str) -> str:
    """Return the best epoch of a network by the number of machines."""
    network = HALVES[name].partition(",")[0]
    lines = []
    for machines in MACHINES:
        cells = [f"{machines}"]
        for copies in (1, None):
            problem = replace(load(name), machines=machines, max_copies=copies)
            epoch, triple = fastest(problem)
            alone, _ = fastest(replace(problem, machines=MACHINES[0]))
            cells += [label(triple), lasting(epoch), f"{alone / epoch:.1f}×"]
        lines.append(cells)
    columns = ("#W/#R/#PS", "epoch", "speed-up")
    about = (
        f"{network}: the fastest configuration of so many machines, and its speed-up over two of "
        "them, one worker and one server. The slides print none of these numbers."
    )
    with_copies = (f"{column}, all" for column in columns)
    without = (f"{column}, without copies" for column in columns)
    return sections([(about, grid(("machines", *without, *with_copies), lines))])


def fastest(problem: Problem) -> tuple[float, tuple[int, int, int]]:
    """Return the time of the shortest epoch in ns, with its configuration; proven."""
    result = solve(problem)
    assert result.plan is not None
    assert result.status is Status.OPTIMAL
    return float(result.objective_ns or 0), result.plan.configuration.triple


def lasting(time_ns: float) -> str:
    """Return a time in hours, or in seconds if it is short."""
    return f"{time_ns / HOUR_NS:.3g} h" if time_ns >= HOUR_NS else f"{time_ns / 10**9:.3g} s"


def apart(samples: int | None) -> str:
    """Return how far the configurations of the whole space lie apart."""
    rows, sayings = [], []
    for name, title in HALVES.items():
        network = title.partition(",")[0]
        for copies, space in ((1, "without copies"), (None, "all")):
            problem = replace(load(name), max_copies=copies)
            found = spread(problem) if samples is None else spread(problem, samples=samples)
            best = float(found.best)
            rows.append(
                Row(f"{network}, {space}: worst over best", WORST, float(found.worst) / best, "×")
            )
            low, high = (float(end) / best for end in (found.median_low, found.median_high))
            sayings.append(
                Claim(
                    f"noticeably faster than the median ({network}, {space})",
                    f"{float(found.median) / best:.3g}× (95 %: {low:.3g} to {high:.3g})",
                    holds=low > 1,
                )
            )
    return f"{numbers(rows)}\n\n{claims(sayings)}"


def reach(problem: Problem, name: str, step: Fraction) -> str:
    """Return how far a constant may go in steps of a factor, then halving the last step."""

    def holds(factor: Fraction) -> bool:
        if name != "read_every":
            changed = scaled(problem, name, factor)
        else:
            changed = replace(problem, read_every=max(1, round(problem.read_every * factor)))
        return order(changed) == given(problem)

    good, bad = Fraction(1), step
    while holds(bad):
        good, bad = bad, bad * step
        if not Fraction(1, LIMIT) <= bad <= LIMIT:
            return f"beyond {float(good):.2f}"
    while abs(bad / good - 1) > Fraction(1, 100):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return f"{float(good):.2f}"


def ranges() -> str:
    """Return for each constant the range in which all ranks stay right."""
    parts = []
    for name, title in HALVES.items():
        problem = load(f"{name}-table1")
        lines = []
        for constant in (*CONSTANTS, "read_every"):
            ends = [reach(problem, constant, step) for step in (Fraction(3, 4), Fraction(4, 3))]
            lines.append((constant, *ends))
            print(f"{constant} done", file=sys.stderr)
        about = f"{title}: all ranks stay right if one constant is multiplied by"
        parts.append((about, grid(("constant", "from", "to"), lines)))
    return sections(parts)


def four_rows() -> str:
    """Return the score of constants fitted to four rows on the pairs with the others."""
    lines = []
    for name, title in HALVES.items():
        problem = load(f"{name}-table1")
        found = held_out(problem, dict(orders(problem)))
        shares = map(percent, (found.mean, found.worst, found.best))
        lines.append((title, f"{found.fitting} of {found.sets}", f"{found.pairs}", *shares))
        print(f"{name} done", file=sys.stderr)
    header = ("", "sets of four that fit", "pairs scored", "right, mean", "worst", "best")
    return grid(header, lines)


def main() -> None:
    tables: dict[str, tuple[str, Callable[[], str]]] = {
        "1": ("Table 1", table1),
        "8": ("Fig. 8", lambda: scalability("mnist")),
        "9": ("Fig. 9", lambda: scalability("imagenet22k")),
        "11": ("Fig. 11", figure11),
        "spread": ("The spread", lambda: apart(options.samples)),
        "ranges": ("How far a constant may go", ranges),
        "heldout": ("Table 1, fitted to four rows", four_rows),
    }
    parser = argparse.ArgumentParser(description="remake a table of Yan et al., KDD'15")
    parser.add_argument("what", nargs="?", choices=tuple(tables), help="default: all")
    parser.add_argument("--samples", type=int, metavar="N", help="drawn for the median in spread")
    options = parser.parse_args()
    for title, table in (tables[options.what],) if options.what else tables.values():
        print(f"## {title}\n\n{table()}\n", flush=True)


if __name__ == "__main__":
    main()
