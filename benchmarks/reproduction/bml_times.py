"""Fig. 5 of the BML paper, and its comparison of switches: what ``bml.py 5`` prints and draws.

Problem: the time of one synchronisation by four algorithms in units of T_F, the time of one
gradient over one link, at 16 and at 1,024 servers; and the switches of each network as the paper
counts them (§3.1) and as Fat-Trees can be built.

Method: the closed forms of `planner.collectives`, exact. Nothing is measured and nothing is fitted.
The figure has no numbers on its bars; the paper's are those its text gives (§3.2, §3.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from figures import OUTLINE, figure_in, write_title
from grids import grid, sections
from table import Row, numbers

from planner.families.collectives import Collective, Fabric
from planner.families.collectives.exchange import bml_on, direct_on, hierarchical_on
from planner.model.topologies import BCube, FatTree
from planner.view.style import COLOURS

NETWORKS = ((BCube(4, 2), FatTree(4)), (BCube(32, 2), FatTree(16)))
"""The two sizes of Fig. 5, by its caption."""

STATED = ("2(N-1)/(kN)", "double of BML", "as PS/Fat-Tree", "2(N-1)/N")
"""What the paper says of each."""

NAMES = ("BML/BCube", "PS/BCube", "Hierarchical/Fat-Tree", "PS/Fat-Tree")

SCALES = (BCube(3, 2), BCube(4, 2), BCube(8, 2), BCube(32, 2), BCube(8, 3), BCube(16, 4))
"""Networks whose switches are compared."""


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """Switches that connect N = n^k servers.

    Attributes
    ----------
    bcube : int
        Of n ports, in BCube(n, k): k·N/n.
    fat_tree : int
        Of n ports, in a Fat-Tree by the paper's count: 5·N/n rounded up.
    k_nics : int
        The same with k NICs a server, as many as in the BCube.
    tree : FatTree
        The smallest Fat-Tree that can be built for N servers; it has its own number of ports.
    buildable : bool
        Whether n-port switches can be built into a Fat-Tree of N servers: n is even, N ≤ n³/4.
    """

    bcube: int
    fat_tree: int
    k_nics: int
    tree: FatTree
    buildable: bool


def switch_counts(bcube: BCube) -> SwitchCounts:
    """Return how many switches the servers of a BCube take on each topology."""
    single = Fabric.of_bcube(bcube)
    return SwitchCounts(
        bcube.switches,
        single.switches,
        Fabric.of_bcube(bcube, bcube.k).switches,
        single.tree,
        bcube.n % 2 == 0 and 4 * bcube.servers <= bcube.n**3,
    )


def curves(bcube: BCube, tree: FatTree) -> tuple[Collective, ...]:
    """Return the four algorithms on networks of as many servers."""
    assert bcube.servers == tree.servers
    fabric = Fabric(tree.servers, tree.ports)
    return bml_on(bcube), direct_on("ps", bcube), hierarchical_on(fabric), direct_on("ps", fabric)


def share(value: Fraction) -> str:
    return f"{float(value):.4g}"


def printed(servers: int, nics: int) -> tuple[Fraction, ...]:
    """Return what the paper's text gives for the four, in the order of `NAMES`."""
    flat = Fraction(2 * (servers - 1), servers)
    return flat / nics, 2 * flat / nics, flat, flat


def times() -> str:
    """Return the bars of Fig. 5 beside the text."""
    rows = []
    for bcube, tree in NETWORKS:
        stated = printed(bcube.servers, bcube.k)
        found = curves(bcube, tree)
        for name, formula, paper, ours in zip(NAMES, STATED, stated, found, strict=True):
            label = f"{bcube.servers:,} servers, {name} ({formula})"
            rows.append(Row(label, float(paper), float(ours.volume), "×", decimals=4))
    return numbers(rows)


def doubles() -> str:
    rows = []
    for n in (2, 4, 8, 32, 128, 1024):
        bcube = BCube(n, 2)
        bml, servers = bml_on(bcube).volume, direct_on("ps", bcube).volume
        rows.append([f"BCube({n},2)", str(servers), share(servers), share(servers / bml)])
    return grid(["network", "PS", "×T_F", "of BML, 2n/(n+1)"], rows)


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
    return grid([*header, "can be built", "smallest Fat-Tree built"], rows)


def bars(
    axes: Any,
    names: Sequence[str],
    colours: Sequence[int],
    values: Sequence[Sequence[float]],
    title: str,
) -> None:
    """Draw a bar a name beside one another in each group, a group for each of `NETWORKS`."""
    width = 0.76 / len(names)
    axes.set_prop_cycle(color=[COLOURS[colour] for colour in colours])
    for place, (name, heights) in enumerate(zip(names, values, strict=True)):
        middles = [group + (place - (len(names) - 1) / 2) * width for group in range(len(heights))]
        drawn = axes.bar(middles, heights, width, label=name, edgecolor=OUTLINE, linewidth=0.5)
        axes.bar_label(drawn, fmt="{:.4g}", fontsize=8.5, padding=3)
    groups = [
        f"{bcube.servers:,} servers\nBCube({bcube.n},{bcube.k}), Fat-Tree({tree.ports})"
        for bcube, tree in NETWORKS
    ]
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=8.5)


def report() -> str:
    """Return all tables."""
    return sections(
        [
            ("Fig. 5: one synchronisation, in T_F; paper: the formulas of its text", times()),
            ("PS on BCube takes 2(n-1)/n: 2n/(n+1) times as long as BML for k = 2", doubles()),
            ("Switches: k·N/n, 5·N/n and 5k·N/n of n ports each", switches()),
        ]
    )


def save(path: Path) -> None:
    """Draw Fig. 5 and the switches."""
    found = [curves(*pair) for pair in NETWORKS]
    times = [[float(one[place].volume) for one in found] for place in range(len(NAMES))]
    switches = [[bcube.switches for bcube, _ in NETWORKS], [tree.switches for _, tree in NETWORKS]]
    with figure_in(path) as figure:
        figure.set_size_inches(11, 5)
        write_title(
            figure, "Synchronising gradients on BCube and Fat-Tree (Fig. 5 of the BML paper)"
        )
        left, right = figure.subplots(1, 2, width_ratios=[5, 3])
        bars(left, NAMES, (5, 0, 6, 1), times, "time of one synchronisation (×T_F)")
        bars(right, ("BCube", "Fat-Tree"), (5, 6), switches, "switches")
