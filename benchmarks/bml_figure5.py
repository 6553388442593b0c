"""Remakes Fig. 5 of the BML paper and its comparison of switches (Wang et al., NeurIPS 2018).

    python benchmarks/bml_figure5.py [--picture figure5.svg]

The synchronisation time of four algorithms in units of T_F, the time of one gradient over one link,
at 16 and at 1,024 servers; beside it what the paper states (§3.2, §3.3; the figure prints no
numbers), and the switches of each network as the paper counts them (§3.1) and as Fat-Trees can be
built. Nothing is measured and nothing is fitted: the numbers are closed forms, exact fractions.
"""

import argparse
from fractions import Fraction
from pathlib import Path

from planner.collectives import (
    Collective,
    Fabric,
    bml_bcube,
    hierarchical_fattree,
    ps_bcube,
    ps_fattree,
    switch_counts,
)
from planner.draw import format_table
from planner.draw.bars import BarChart, BarPanel, BarSeries
from planner.draw.bars_figure import save_bars
from planner.topologies import BCube, FatTree

NETWORKS = ((BCube(4, 2), FatTree(4)), (BCube(32, 2), FatTree(16)))
"""The two sizes of Fig. 5, by its caption."""

STATED = ("2(N-1)/(kN)", '"double" of BML', "same as PS/Fat-Tree", "2(N-1)/N")
"""What the paper says of each."""

NAMES = ("BML/BCube", "PS/BCube", "Hierarchical/Fat-Tree", "PS/Fat-Tree")
COLOURS = (5, 0, 6, 1)

SCALES = (BCube(3, 2), BCube(4, 2), BCube(8, 2), BCube(32, 2), BCube(8, 3), BCube(16, 4))
"""Networks whose switches are compared."""


def curves(bcube: BCube, tree: FatTree) -> tuple[Collective, ...]:
    """Return the four algorithms on networks of as many servers."""
    assert bcube.servers == tree.servers
    fabric = Fabric(tree.servers, tree.ports)
    return bml_bcube(bcube), ps_bcube(bcube), hierarchical_fattree(fabric), ps_fattree(fabric)


def share(value: Fraction) -> str:
    return f"{float(value):.4g}"


def times() -> str:
    found = [curves(*pair) for pair in NETWORKS]
    rows = []
    for place, (name, stated) in enumerate(zip(NAMES, STATED, strict=True)):
        cells = [name, stated]
        for one in found:
            ratio = one[place].volume / one[0].volume
            cells += [f"{one[place].volume} = {share(one[place].volume)}", f"{share(ratio)}×"]
        rows.append(cells)
    header = ["algorithm, topology", "paper", "16 servers", "of BML", "1,024 servers", "of BML"]
    return format_table(header, rows)


def doubles() -> str:
    rows = []
    for n in (2, 4, 8, 32, 128, 1024):
        bcube = BCube(n, 2)
        bml, servers = bml_bcube(bcube).volume, ps_bcube(bcube).volume
        rows.append([f"BCube({n},2)", str(servers), share(servers), share(servers / bml)])
    return format_table(["network", "PS", "×T_F", "of BML, 2n/(n+1)"], rows)


def switches() -> str:
    rows = []
    for bcube in SCALES:
        counts = switch_counts(bcube)
        rows.append(
            [
                f"BCube({bcube.n},{bcube.k})",
                f"{bcube.servers:,}",
                f"{counts.bcube:,}",
                f"{counts.fat_tree:,}",
                f"{counts.k_nics:,}",
                f"{counts.bcube / counts.fat_tree:.0%}",
                "yes" if counts.buildable else "no",
                f"{counts.tree.switches:,} of {counts.tree.ports} ports",
            ]
        )
    header = ["network", "servers", "BCube", "Fat-Tree", "k NICs", "BCube/Fat-Tree"]
    return format_table([*header, "can be built", "smallest Fat-Tree built"], rows)


def chart() -> BarChart:
    found = [curves(*pair) for pair in NETWORKS]
    times = tuple(
        BarSeries(
            name,
            tuple(float(one[place].volume) for one in found),
            tuple(share(one[place].volume) for one in found),
            colour,
        )
        for place, (name, colour) in enumerate(zip(NAMES, COLOURS, strict=True))
    )
    counts = tuple(
        BarSeries(name, tuple(map(float, numbers)), tuple(map(str, numbers)), colour)
        for name, numbers, colour in (
            ("BCube", [bcube.switches for bcube, _ in NETWORKS], COLOURS[0]),
            ("Fat-Tree", [tree.switches for _, tree in NETWORKS], COLOURS[2]),
        )
    )
    return BarChart(
        "Synchronising gradients on BCube and on Fat-Tree (Fig. 5 of the BML paper)",
        tuple(f"{bcube.servers:,} servers" for bcube, _ in NETWORKS),
        (
            BarPanel("time of one synchronisation", "time (×T_F)", times),
            BarPanel("cost of the network", "switches", counts),
        ),
        notes=tuple(f"BCube({b.n},{b.k}), Fat-Tree({t.ports})" for b, t in NETWORKS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    options = parser.parse_args()
    print(f"Fig. 5: time of one synchronisation, ×T_F\n\n{times()}\n")
    print(
        "PS on BCube takes 2(n-1)/n, BML (n+1)(n-1)/n² for k = 2: the ratio is 2n/(n+1). The\n"
        f'"double" of the paper is its limit for large switches.\n\n{doubles()}\n'
    )
    print(
        "Switches: k·N/n, 5·N/n and 5k·N/n of n ports each. A Fat-Tree of n-port switches has\n"
        "room for n³/4 servers; the last column is the smallest that can be built for all of\n"
        "them, of larger switches or with places left over.\n\n"
        f"{switches()}"
    )
    if options.picture:
        save_bars(chart(), options.picture)


if __name__ == "__main__":
    main()
