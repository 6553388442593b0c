"""Measures how far costs predicted from measured tables are off where they were measured, too.

    python benchmarks/held_out.py

All shipped clusters that carry tables of what collectives took. From 1 MiB up, and of any size:

- sizes: each size but a table's first and last is predicted from the others;
- ranks between: a number of ranks is predicted from smaller and larger ones;
- larger ranks: a number of ranks is predicted from smaller ones only.

Beside the errors of tables stand those of the affine cost nearest to the sizes that are left.
"""

from dataclasses import replace

from leaving_out import (
    HeldOut,
    from_smaller,
    ranks_left_out,
    sizes_left_out,
    summary,
)
from tables import rows_below

from planner.jsonio import read_cluster, shipped_clusters
from planner.model.fitting import fit_affine
from planner.model.measured import Measured, MeasuredNetwork
from planner.model.units import format_bytes

KINDS = ("sizes", "ranks between", "larger ranks")


def affine(table: Measured) -> list[HeldOut]:
    """Return each inner size as the affine cost of the others has it."""
    found = []
    for place in range(1, len(table.points) - 1):
        rest = replace(table, points=(*table.points[:place], *table.points[place + 1 :]))
        size, time = table.points[place]
        if len(rest.points) > 1:
            found.append(HeldOut(table, size, time, fit_affine(rest.points).cost_ns(size)))
    return found


def errors(network: MeasuredNetwork) -> dict[str, list[HeldOut]]:
    """Return what is left out, by what it is."""
    return {
        "sizes": [one for table in network.tables for one in sizes_left_out(table)],
        "sizes, affine": [one for table in network.tables for one in affine(table)],
        "ranks between": list(ranks_left_out(network)),
        "larger ranks": list(from_smaller(network)),
    }


def main() -> None:
    """Print the errors of every cluster, and of all."""
    every: dict[str, list[HeldOut]] = {}
    rows, short = [], []
    for name in shipped_clusters():
        network = read_cluster(name).network
        if network is None:
            continue
        known = errors(network)
        for kind, held_out in known.items():
            every.setdefault(kind, []).extend(held_out)
            rows += lines(name, kind, held_out)
        short.append(line(name, known))
    for kind, held_out in every.items():
        rows += lines("all", kind, held_out)
    print("## From 1 MiB up\n")
    titles = ["cluster"]
    for kind in KINDS:
        titles += [kind, f"{kind}: mean error", f"{kind}: largest"]
    rows_below(titles, [*short, line("all", every)])
    print("## Left out, and predicted\n")
    rows_below(("cluster", "left out", "from", "times", "mean error", "largest"), rows)
    worst = sorted(
        (one for kind in ("sizes", "larger ranks") for one in every[kind]),
        key=lambda one: -abs(one.error),
    )
    print("## The largest errors from 1 MiB up\n")
    header = ("collective", "ranks", "a host", "size", "measured us", "predicted us", "error")
    rows_below(
        header,
        [
            (
                one.table.collective,
                str(one.table.ranks),
                str(one.table.per_host),
                format_bytes(one.size_bytes),
                f"{one.measured_ns / 1000:.1f}",
                f"{one.predicted_ns / 1000:.1f}",
                f"{one.error:+.1%}",
            )
            for one in [one for one in worst if one.size_bytes >= 2**20][:15]
        ],
    )


def line(name: str, known: dict[str, list[HeldOut]]) -> tuple[str, ...]:
    """Return the row of one cluster: of each kind how many times, their mean and largest error."""
    cells = [name]
    for kind in KINDS:
        count, mean, largest = summary(known[kind]) or (0, 0.0, 0.0)
        cells += [str(count), f"{mean:.1%}", f"{largest:.1%}"] if count else ["0", "-", "-"]
    return tuple(cells)


def lines(name: str, kind: str, held_out: list[HeldOut]) -> list[tuple[str, ...]]:
    """Return the rows of one cluster and kind."""
    found: list[tuple[str, ...]] = []
    for least in (0, 2**20):
        known = summary(held_out, least)
        if known is not None:
            count, mean, largest = known
            above = format_bytes(least) if least else "any size"
            found.append((name, kind, above, str(count), f"{mean:.1%}", f"{largest:.1%}"))
    return found


if __name__ == "__main__":
    main()
