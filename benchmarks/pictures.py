"""Draws the pictures of "How fast, how good" from `benchmarks/results` (needs matplotlib).

    python benchmarks/pictures.py [NAME …] [--folder FOLDER] [--suffix .svg]

Without a name all are drawn. Pictures hold no number that is not in a results file.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from results import Results, Table, load

from planner.view.style import COLOURS

sys.path.append(str(Path(__file__).with_name("reproduction")))

from figures import OUTLINE, figure_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parent.parent / "docs" / "images"
BLUE, ORANGE, GREEN, PINK, DARK, RED = (COLOURS[place] for place in (0, 1, 2, 4, 5, 6))
MARKS = (("o", DARK), ("s", ORANGE), ("^", GREEN), ("D", PINK), ("v", RED))
EXACT = 0.01
"""What is nearer to a bound, in per cent, is drawn at the edge of a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a growth picture."""

    name: str
    sizes: Sequence[float]
    seconds: Sequence[float]


def quality(figure: "Figure") -> None:
    """Draw what methods lose against the optimum or the bound."""
    figure.set_size_inches(10, 3.8)
    axes = figure.subplots(1, 3)
    ibatch, caramel = load("ibatch_quality"), load("caramel_quality")
    parts = (
        ("iBatch, pull: above the optimum", ibatch.table("pull / by profile")),
        ("iBatch, push: above the optimum", ibatch.table("push / by profile")),
        (
            "Caramel: above the bound",
            caramel.table("above the lower bound: geometric mean (worst)"),
        ),
    )
    for ax, (title, table) in zip(axes, parts, strict=True):
        names = table.columns[1:]
        for place, name in enumerate(names):
            mean, worst = table.cell("all", name)
            ax.hlines(place, max(mean, EXACT), max(worst, EXACT), color=DARK, lw=1.2)
            ax.plot(max(mean, EXACT), place, "o", color=DARK, label="mean" if not place else "")
            ax.plot(
                max(worst, EXACT),
                place,
                "|",
                color=DARK,
                ms=9,
                mew=2,
                label="worst" if not place else "",
            )
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xscale("log")
        ax.set_xlabel("%")
        ax.set_title(title, fontsize=10)
        ax.set_xlim(left=0.7 * max(EXACT, min(1.0, *(table.cell("all", one)[0] for one in names))))
        _percent_ticks(ax)
    _legend_above(figure, axes[0])


def growth(figure: "Figure") -> None:
    """Draw how the time of planning grows."""
    figure.set_size_inches(10, 7)
    axes = figure.subplots(2, 2).flat
    _curves(next(axes), "iBatch, exact", "layers", _growth_of_ibatch(load("ibatch_speed")))
    _curves(
        next(axes), "Caramel, order of gradients", "ops", _growth_of_caramel(load("caramel_order"))
    )
    _curves(
        next(axes), "Scaling out, best configuration", "machines", _growth_of_yan(load("yan_speed"))
    )
    _curves(next(axes), "BML, BCube(n, 2)", "servers", _growth_of_bml(load("bml_speed")))


def _growth_of_ibatch(results: Results) -> list[Curve]:
    return [
        _curve(name, results.table(f"Growth: {title}"), "layers", "solve")
        for name, title in (
            ("random, start-up 100", "random tables, start-up 100"),
            ("random, start-up 10,000", "random tables, start-up 10,000"),
            ("as many batches as layers", "as many batches as layers"),
        )
    ]


def _growth_of_caramel(results: Results) -> list[Curve]:
    titles = ("training", "training, gradients apart", "wide random graph")
    return [_curve(title, results.table(title), "ops", "order") for title in titles]


def _growth_of_yan(results: Results) -> list[Curve]:
    return [
        _curve(
            f"{says}, {grid}",
            results.table(f"Growth: {name}, {grid}, machines"),
            "machines",
            "time",
        )
        for name, says in (("mnist", "MNIST"), ("imagenet22k", "ImageNet-22K"))
        for grid in ("full grid", "powers of two")
    ]


def _growth_of_bml(results: Results) -> list[Curve]:
    table = results.table("Growth with the number of servers, k = 2")
    return [
        _curve(says, table, "servers", column, occurrence)
        for says, column, occurrence in (
            ("a server's schedule", "a server's schedule", 0),
            ("check", "check", 0),
            ("detour around a lost NIC", "detour", 0),
            ("detour around a lost switch", "switch lost: detour", 0),
        )
    ]


def executed(figure: "Figure") -> None:
    """Draw what plans are worth in executed steps."""
    figure.set_size_inches(11, 6.4)
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    gradients = load("runtime_caramel").table("`search` against the others")
    _ratios(left, gradients, ("DDP", "DDP, buckets scaled", "`mg_wfbp`", "`layer_by_layer`"))
    left.set_title("gradients (Caramel): over a step under search", fontsize=10)
    pulls = load("runtime_ibatch").table("`exact` against the others")
    _ratios(right, pulls, ("`one_batch`", "`greedy`", "`layer_by_layer`"))
    right.set_title("pulls, pushes (iBatch), ρ = 1: over exact", fontsize=10)


def executed_joint(figure: "Figure") -> None:
    """Draw what joint plans are worth in executed steps, and what each of their decisions is."""
    figure.set_size_inches(11, 5.6)
    left, right = figure.subplots(1, 2, sharey=True)
    results = load("runtime_joint")
    against = results.table("DDP against `joint`")
    _ratios(left, against, ("DDP", "DDP, buckets scaled", "best of DDP"))
    left.set_title("DDP: over a step under the joint plan", fontsize=10)
    worth = results.table("what each decision is worth")
    names = [name for name in ("algorithm", "order", "grouping", "mode") if any(worth.column(name))]
    _ratios(right, worth, names)
    right.invert_yaxis()  # shared, and turned round on the left
    right.set_title("the plan without its …: over a step under it", fontsize=10)


def failures(figure: "Figure") -> None:
    """Draw how far from the bound gradients are synchronised when parts of a BCube have failed."""
    figure.set_size_inches(9, 4.6)
    ax = figure.subplots()
    table = load("bml_faults").table("A large gradient, no start-up cost")
    kinds = list(dict.fromkeys(table.column("failed")))
    ways = (
        ("detour, one round", "D", BLUE),
        ("detour, pipelined", "s", ORANGE),
        ("trees, pipelined", "o", GREEN),
    )
    for shift, (name, mark, colour) in zip((-0.25, 0, 0.25), ways, strict=True):
        rows = zip(table.column("failed"), table.column(name), strict=True)
        points = [(value, kinds.index(kind) + shift) for kind, value in rows if value is not None]
        ax.plot(*zip(*points, strict=True), mark, color=colour, ms=5, alpha=0.75, label=name)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.invert_yaxis()
    ax.axvline(1, color=OUTLINE, lw=0.8)
    ax.set_xlabel("time over the bound; a mark is a network")
    ax.set_xscale("log")
    _ticks(ax, (1, 1.1, 1.2, 1.5, 2, 3, 4, 6, 8))
    _legend_above(figure, ax)


def caramel_utilisation(figure: "Figure") -> None:
    """Draw Figs. 9 and 12 of Caramel, as remade."""
    figure.set_size_inches(10, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    results = load("reproduction/caramel")
    _shares(left, results.table("Fig. 9"), "utilisation")
    left.axvline(70, color=OUTLINE, lw=0.8, ls=":")
    left.set_title("Fig. 9; dotted: at least 70 %, the paper's claim", fontsize=10)
    _shares(right, results.table("Fig. 12"), "utilisation, 8 workers")
    right.set_title("Fig. 12, 8 workers", fontsize=10)


def blind(figure: "Figure") -> None:
    """Draw how fast larger scales were, against what was predicted of them."""
    figure.set_size_inches(10, 4.8)
    table = load("blind").table("Every row")
    sources = load("blind").table("By source")
    kept = zip(sources.column("source"), sources.column("held out"), strict=True)
    held_out = {name for name, is_so in kept if is_so == "yes"}
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, (name, title) in zip(
        axes,
        (("error", "by the library"), ("affine, share", "by an affine cost, with the fixed share")),
        strict=True,
    ):
        columns = [table.column(one) for one in ("source", "linear", name)]
        rows = list(zip(*columns, strict=True))
        for says, mark, colour, is_so in (
            ("held out", "o", DARK, True),
            ("others", "^", ORANGE, False),
        ):
            points = [
                (100 + linear, 100 * (100 + linear) / (100 + error))
                for source, linear, error in rows
                if (source in held_out) is is_so
            ]
            ax.plot(*zip(*points, strict=True), mark, color=colour, ms=4, alpha=0.6, label=says)
        ends = [10, 125]
        for share, style in ((1, "-"), (0.9, ":"), (1.1, ":")):
            ax.plot(ends, [end / share for end in ends], style, color=OUTLINE, lw=0.8)
        ax.set_xlim(*ends)
        ax.set_ylim(*ends)
        ax.set_xlabel("measured: % of linear scaling")
        ax.set_title(title, fontsize=10)
    axes[0].set_ylabel("predicted: % of linear scaling")
    _legend_above(figure, axes[0])


PICTURES: dict[str, Callable[["Figure"], None]] = {
    "quality": quality,
    "growth": growth,
    "executed-ratios": executed,
    "executed-joint": executed_joint,
    "failures": failures,
    "blind": blind,
    "caramel-utilisation": caramel_utilisation,
}


def _percent_ticks(ax: "Axes") -> None:
    low, high = ax.get_xlim()
    ticks = [one for one in (EXACT, 0.1, 1, 10, 100, 1000) if low <= one <= high]
    _ticks(ax, ticks, [f"≤ {tick:g}" if tick == EXACT else f"{tick:g}" for tick in ticks])


def _ticks(ax: "Axes", ticks: Sequence[float], labels: Sequence[str] = ()) -> None:
    ax.set_xticks(ticks, labels or [f"{tick:g}" for tick in ticks], fontsize=9)
    ax.minorticks_off()
    ax.grid(axis="x", alpha=0.3)


def _legend_above(figure: "Figure", ax: "Axes") -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _curve(name: str, table: Table, size: str, time: str, occurrence: int = 0) -> Curve:
    return Curve(name, table.column(size), table.column(time, occurrence))


def _curves(ax: "Axes", title: str, size: str, curves: Sequence[Curve]) -> None:
    """Draw times against sizes, with a line that grows as the size does."""
    for curve, (mark, colour) in zip(curves, MARKS, strict=False):
        ax.plot(
            curve.sizes, curve.seconds, marker=mark, color=colour, ms=4, lw=1.2, label=curve.name
        )
    ends = [min(min(one.sizes) for one in curves), max(max(one.sizes) for one in curves)]
    least = min(min(one.seconds) for one in curves)
    ax.plot(
        ends, [least, least * ends[1] / ends[0]], "--", color=OUTLINE, lw=0.7, label="in proportion"
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.tick_params(which="minor", labelbottom=False)
    ax.set_xlabel(size)
    ax.set_ylabel("processor time, s")
    ax.set_title(title, fontsize=10)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, frameon=False)


def _ratios(ax: "Axes", table: Table, names: Sequence[str]) -> None:
    """Draw medians of ratios with their lowest and highest round, a row for each setting."""
    settings = table.column("setting")
    for place, (name, (mark, colour)) in enumerate(zip(names, MARKS, strict=False)):
        shift = 0.2 * (place - (len(names) - 1) / 2)
        ratios = {
            row + shift: cell for row, cell in enumerate(table.column(name)) if cell is not None
        }
        places = list(ratios)
        middle, low, high = zip(*ratios.values(), strict=True)
        ax.hlines(places, low, high, color=colour, lw=1.2)
        ax.plot(middle, places, mark, color=colour, ms=4.5, label=name.strip("`"))
    ax.axvline(1, color=OUTLINE, lw=0.8)
    same = len({setting.split(", ")[1] for setting in settings}) == 1
    labels = [setting.replace(", ρ = 1", "") if same else setting for setting in settings]
    ax.set_yticks(range(len(settings)), labels, fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("median, lowest to highest round")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False)


def _shares(ax: "Axes", table: Table, first: str) -> None:
    """Draw shares in per cent, a row for each network."""
    networks = table.column(first)
    for name, (mark, colour) in zip(table.columns[1:-1], MARKS, strict=False):
        ax.plot(table.column(name), range(len(networks)), mark, color=colour, ms=5, label=name)
    bound = table.columns[-1]
    ax.plot(
        table.column(bound), range(len(networks)), "|", color=OUTLINE, ms=13, mew=1.5, label=bound
    )
    ax.set_yticks(range(len(networks)), networks)
    ax.invert_yaxis()
    ax.set_xlim(0, 103)
    ax.set_xlabel("utilisation, %")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--folder", type=Path, default=IMAGES, help="default: docs/images")
    parser.add_argument("--suffix", default=".svg", help="default: .svg")
    options = parser.parse_args()
    for name in options.names or PICTURES:
        if name not in PICTURES:
            parser.error(f"expected one of {', '.join(PICTURES)}, got {name!r}")
        with figure_in(options.folder / f"{name}{options.suffix}") as figure:
            PICTURES[name](figure)


if __name__ == "__main__":
    main()
