"""The picture of ``drizzle.py``: three remade figures, and the online rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from figures import figure_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
BAND = "#D5E8F3"
OUTLINE = "#333333"


@dataclass(frozen=True, slots=True)
class Line:
    """What the model says."""

    label: str
    points: Sequence[tuple[int, float]]
    colour: int
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure: the model's lines, and the one point the paper's text gives."""

    title: str
    labels: tuple[str, str]
    lines: Sequence[Line]
    paper: tuple[int, float]
    ticks: Sequence[int] = ()


def draw(panels: Sequence[Panel], replay: Sequence[tuple[int, int, int, int]], path: Path) -> None:
    with figure_in(path) as figure:
        figure.set_size_inches(11, 7.4)
        *others, last = figure.subplots(2, 2).flat
        for axes, panel in zip(others, panels, strict=True):
            draw_panel(axes, panel)
        draw_replay(last, replay)
        for axes in (*others, last):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
            axes.set_axisbelow(True)


def draw_panel(axes: "Axes", panel: Panel) -> None:
    for line in panel.lines:
        axes.plot(
            *zip(*line.points, strict=True),
            color=COLOURS[line.colour],
            linestyle="--" if line.dashed else "-",
            label=line.label,
        )
    axes.plot(
        *panel.paper,
        linestyle="",
        marker="*",
        markersize=13,
        color="white",
        markeredgecolor=OUTLINE,
        zorder=5,
        label="said in the paper",
    )
    if panel.ticks:
        axes.set_xscale("log")
        axes.set_xticks(panel.ticks, [str(tick) for tick in panel.ticks])
        axes.minorticks_off()
    axes.set_xlabel(panel.labels[0])
    axes.set_ylabel(panel.labels[1])
    axes.set_ylim(0)
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def draw_replay(axes: "Axes", rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Draw for each group its size among those in the band, and where the tasks change."""
    place = range(len(rows))
    axes.fill_between(
        place,
        [first for _, _, first, _ in rows],
        [last for *_, last in rows],
        step="post",
        color=BAND,
        linewidth=0,
        label="sizes in the band",
    )
    sizes = [size for _, size, _, _ in rows]
    axes.step(place, sizes, where="post", color=COLOURS[0], label="size")
    for group in place:
        tasks = rows[group][0]
        if group == 0 or tasks != rows[group - 1][0]:
            axes.annotate(
                f"{tasks} tasks",
                (group, 1),
                (3, -10),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                fontsize=8.5,
            )
            axes.axvline(group, color="#9A9A9A", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1.2 * max(last for *_, last in rows))
    axes.set_xlabel("groups so far")
    axes.set_ylabel("group size")
    axes.set_title("the online rule, overhead within 0.5 to 1 %", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="center left")
