"""The picture of iBatch's Fig. 5: the model's four curves, and what the paper's text prints."""

from pathlib import Path
from typing import TYPE_CHECKING

from figures import figure_in
from ibatch_model import DEFAULT, NETWORKS, Constants, iteration
from ibatch_printed import METHODS, PRINTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES = (*range(1, 13), *range(14, 73, 2))
STYLES = {
    "one_batch": ("#333333", "o"),
    "layer_by_layer": ("#E69F00", "s"),
    "greedy": ("#0072B2", "^"),
    "exact": ("#009E73", ""),
}


def draw(constants: Constants, path: Path) -> None:
    """Draw one panel for each network; bands reach from one end of the start-up to the other."""
    with figure_in(path) as figure:
        figure.set_size_inches(10, 7.6)
        panels = figure.subplots(2, 2)
        for axes, network in zip(panels.flat, NETWORKS, strict=True):
            draw_network(axes, constants, network)
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(),
            frameon=False,
            fontsize=8.5,
            loc="outside lower center",
            ncols=4,
        )


def draw_network(axes: "Axes", constants: Constants, network: str) -> None:
    axes.plot((1, 72), (1, 72), color="#BBBBBB", linewidth=0.8, label="linear")
    for method, (colour, marker) in STYLES.items():
        every, once = (
            [
                iteration(constants, network, nodes, method, startup_share=share).speedup
                for nodes in NODES
            ]
            for share in (1, 0)
        )
        dashed = "--" if method == "exact" else "-"
        axes.plot(NODES, every, dashed, color=colour, label=f"{METHODS[method]}, ours")
        if method in {"layer_by_layer", "greedy"}:
            axes.fill_between(NODES, every, once, color=colour, alpha=0.15, linewidth=0)
        if not marker:
            continue
        printed = {
            nodes: speedup if method == "one_batch" else PRINTED[name, nodes][method]
            for (name, nodes), speedup in DEFAULT.items()
            if name == network
        }
        label = f"{METHODS[method]}, printed{' (fitted)' if method == 'one_batch' else ''}"
        axes.plot(
            list(printed),
            list(printed.values()),
            linestyle="",
            marker=marker,
            markersize=7,
            markerfacecolor="white",
            markeredgecolor=colour,
            label=label,
            zorder=5,
        )
    axes.set_title(NETWORKS[network], fontsize=10, loc="left")
    axes.set_xlabel("nodes")
    axes.set_ylabel("speed-up over one node")
    axes.set_xlim(0, 75)
    axes.set_ylim(0, 75)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
