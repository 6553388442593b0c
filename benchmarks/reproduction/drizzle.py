"""Remakes Figs. 4 to 6 of "Accelerating Deep Learning Training with BigDL and Drizzle".

    python benchmarks/reproduction/drizzle.py [4 | 5 | 6 | online] [--picture FILE]

Fig. 4 is overhead against partitions, Fig. 5 VGG in groups of 20, Fig. 6 Inception-v1 in groups of
10; `online` is the rule that finds group sizes. Without a name all are printed.

Each figure is scored with a constant that was fitted to one number of another one
(`drizzle_model`); the picture holds all three, whichever figure is asked for.
"""

import argparse
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import drizzle_online
import drizzle_pictures
from drizzle_model import (
    FIG4,
    FIG5,
    FIG6,
    GAINED,
    NUMBERS,
    SAVED,
    UNIT,
    Fit,
    Improvement,
    fits,
    improvement,
    model,
    predicted,
)
from drizzle_pictures import Line, Panel
from grids import grid, percent, sections
from table import Row, numbers

from planner.families.drizzle import Plan, evaluate

SIZES = (1, 2, 5, 10, 20, 50, 100)
PARTITIONS = (32, 64, 128, 200, 256, 300, 400, 500, 600)

TITLES = {
    4: "Fig. 4: Inception-v1, scheduling over computation, every iteration by itself",
    5: "Fig. 5: VGG on CIFAR-10, 32 nodes (128 tasks), groups of 20 over groups of one",
    6: "Fig. 6: Inception-v1, 64 nodes (256 tasks), groups of 10 over groups of one",
}


def others(figure: int) -> list[Fit]:
    """Return the fits to numbers of other figures."""
    return [fit for fit in fits() if fit.figure != figure]


def scored(figure: int) -> list[Row]:
    """Return the printed number of a figure and what fits to the others say of it."""
    one = NUMBERS[figure]
    rows = []
    for fit in others(figure):
        # A fit that reads its own improvement in one way reads the other in the same.
        readings = (fit.reading,) if fit.reading else (SAVED, GAINED)
        if not isinstance(one, Improvement):
            name, readings = f"at {one.tasks} partitions", (SAVED,)
        else:
            name = f"groups of {one.size}"
        for reading in readings:
            read = f", {reading}" if isinstance(one, Improvement) and not fit.reading else ""
            ours = 100 * float(predicted(fit, figure, reading))
            rows.append(
                Row(f"{name}{read}; fitted to {fit.name}", 100 * float(one.share), ours, "%")
            )
    return rows


def against_partitions() -> str:
    """Return the curve of Fig. 4 by every fit."""
    found = fits()
    rows = [
        (
            str(count),
            *(
                percent(evaluate(model(count, one.task_ns), Plan(1)).overhead_of_compute)
                for one in found
            ),
        )
        for count in PARTITIONS
    ]
    rows.append(("10 % at", *(f"{float(UNIT * FIG4.share / one.task_ns):.0f}" for one in found)))
    return grid(("partitions", *(one.name for one in found)), rows)


def against_sizes(figure: Improvement) -> str:
    """Return the curve of Fig. 5 or 6 by every fit, in both readings."""
    found = fits()
    problems = [model(figure.tasks, one.task_ns, figure.compute) for one in found]
    rows = [
        (
            f"{size:,}" if size <= SIZES[-1] else "no end",
            *(
                f"{percent(improvement(problem, size, SAVED))} / "
                f"{percent(improvement(problem, size, GAINED))}"
                for problem in problems
            ),
        )
        for size in (*SIZES, 10**15)
    ]
    return grid(("group size", *(one.name for one in found)), rows)


def report(figure: int) -> str:
    """Return the tables of a figure."""
    one = NUMBERS[figure]
    parts = [(TITLES[figure], numbers(scored(figure)))]
    if isinstance(one, Improvement):
        about = "The whole curve by every fit, time saved / speed gained"
        parts.append((about, against_sizes(one)))
    else:
        parts.append(("The whole curve by every fit", against_partitions()))
    if figure == 5:
        rows = [
            (fit.name, reading, f"{float(needed(fit, reading)):.3f}")
            for fit in others(5)
            for reading in ((fit.reading,) if fit.reading else (SAVED, GAINED))
        ]
        about = (
            "VGG's computation over Inception-v1's that would give the printed number; "
            f"{float(FIG5.compute):.3f} by multiply-adds"
        )
        parts.append((about, grid(("fitted to", "15 % are", "computation"), rows)))
    return sections(parts)


def needed(fit: Fit, reading: str) -> Fraction:
    """Return the computation of VGG that makes Fig. 5 what it is, with the same scheduler."""
    (own,) = (one for one in fits() if (one.figure, one.reading) == (5, reading))
    return FIG5.compute * fit.task_ns / own.task_ns


def curves(figure: Improvement, shown: Sequence[Fit]) -> list[Line]:
    """Return the improvement by group size, in both readings."""
    sizes = range(1, SIZES[-1] + 1)
    return [
        Line(
            f"fitted to {fit.name}" + ("" if fit.reading else f": {reading}"),
            [
                (
                    size,
                    100
                    * float(
                        improvement(model(figure.tasks, fit.task_ns, figure.compute), size, reading)
                    ),
                )
                for size in sizes
            ],
            colour,
            dashed=reading == GAINED,
        )
        for colour, fit in enumerate(shown)
        for reading in (SAVED, GAINED)
        if fit.reading in ("", reading)
    ]


def panels() -> list[Panel]:
    """Return the three figures, each by the fits to the others."""
    shares = [
        Line(
            f"fitted to {fit.name}",
            [(count, 100 * count * float(fit.task_ns / UNIT)) for count in PARTITIONS],
            colour,
        )
        for colour, fit in enumerate(others(4))
    ]
    labels = ("group size", "improvement over groups of one (%)")
    sized = [
        Panel(
            TITLES[number].rpartition(",")[0],
            labels,
            curves(figure, others(number)),
            (figure.size, 100 * float(figure.share)),
            ticks=SIZES,
        )
        for number, figure in ((6, FIG6), (5, FIG5))
    ]
    return [
        Panel(
            "Fig. 4: Inception-v1, every iteration by itself",
            ("partitions (tasks of an iteration)", "scheduling / computation (%)"),
            shares,
            (FIG4.tasks, 100 * float(FIG4.share)),
        ),
        *sized,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="remake a figure of BigDL and Drizzle")
    tables: dict[str, tuple[str, Callable[[], str]]] = {
        f"{number}": (f"Fig. {number}", partial(report, number)) for number in NUMBERS
    }
    tables["online"] = ("Group sizes that follow", drizzle_online.report)
    parser.add_argument("what", nargs="?", choices=tuple(tables), help="default: all")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    options = parser.parse_args()
    for title, table in (tables[options.what],) if options.what else tables.values():
        print(f"## {title}\n\n{table()}\n")
    if options.picture:
        drizzle_pictures.draw(panels(), drizzle_online.replay(fits()[0].task_ns), options.picture)


if __name__ == "__main__":
    main()
