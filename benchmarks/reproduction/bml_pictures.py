"""The picture of ``bml.py 6`` and ``7``: shorter jobs over all ratios, and the paper's ranges."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from bml_jobs import Printed, gain
from figures import figure_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"equal servers": "#0072B2", "whole tensors": "#D55E00"}
STYLES = {"none": "-", "backward": "--", "both": ":"}
PAPER = "#E4E4E4"
EXPONENTS = range(-30, 61)
"""Of the tenth root of two: ratios from 1/8 to 64."""


def draw(figures: Sequence[Printed], cases: Sequence[tuple[str, str]], path: Path) -> None:
    """Draw a panel for each figure."""
    with figure_in(path) as picture:
        picture.set_size_inches(11, 4.2)
        panels = picture.subplots(1, len(figures), sharey=True)
        for axes, figure in zip(panels, figures, strict=True):
            draw_panel(axes, figure, cases)
        panels[0].set_ylabel("jobs shorter with BML by (%)")
        panels[-1].legend(frameon=False, fontsize=8, title="servers: overlap", title_fontsize=8)


def draw_panel(axes: "Axes", figure: Printed, cases: Sequence[tuple[str, str]]) -> None:
    axes.axhspan(figure.least, figure.most, color=PAPER, zorder=0, label="printed in the paper")
    ratios = [Fraction(2 ** (exponent / 10)).limit_denominator(10**6) for exponent in EXPONENTS]
    for servers, overlap in cases:
        shares = [100 * float(gain(figure.job, ratio, servers, overlap)) for ratio in ratios]
        axes.plot(
            list(map(float, ratios)),
            shares,
            color=COLOURS[servers],
            linestyle=STYLES[overlap],
            label=f"{servers}: {overlap}",
        )
    axes.set_xscale("log", base=2)
    ticks = [2.0**power for power in range(-3, 7)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.set_xlabel("computation / communication of equal servers")
    axes.set_title(f"{figure.title}: nine servers, 40 Gb/s", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
