"""Remakes Figs. 5, 6 and 7 of the BML paper (Wang et al., NeurIPS 2018).

    python benchmarks/reproduction/bml.py [5 | 6 | 7] [--picture FILE]

All three if none is named; `--picture` draws Fig. 5, or Figs. 6 (LeNet-5) and 7 (VGG-19).

Fig. 5 is the time of one synchronisation in units of T_F, the time of one gradient over one link:
closed forms, nothing fitted (`bml_times`).

Figs. 6 and 7 are times of jobs on nine servers with two GPUs each, over four batch sizes. What
their GPUs compute in which time is not printed, so everything is shown over the ratio of
computation to communication (`bml_jobs`); then that ratio is fitted to the gain the paper prints
for one end of the axis, and the gain at the other end, which nothing was fitted to, is scored.
Computation is taken as proportional to the batch.
"""

import argparse
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import bml_pictures
import bml_times
from bml_jobs import BASELINES, OVERLAPS, Printed, gain, lasting, ratio_at, windows_of
from grids import grid, percent, sections
from table import Row, numbers

RATIOS = tuple(Fraction(2) ** power for power in range(-3, 7))

CASES = tuple(product(BASELINES, OVERLAPS))
"""What servers hold, and what overlaps."""

ITERATIONS = 1000


FIGURES = {
    6: Printed("lenet5", "LeNet-5", (128, 256, 512, 1024), 18.7, 56.4, 150),
    7: Printed("vgg19", "VGG-19", (4, 16, 32, 64), 29.2, 52.1, 4400),
}


def share(per_cent: float) -> Fraction:
    """Return a printed number of per cent as a share."""
    return Fraction(str(per_cent)) / 100


def fitted(figure: Printed, target: float, baseline: str, overlap: str) -> Fraction | None:
    """Return the ratio of computation to communication at which the gain is `target` per cent."""
    return known_ratio(figure.name, target, baseline, overlap)


@cache
def known_ratio(name: str, target: float, baseline: str, overlap: str) -> Fraction | None:
    """Return the same by the name of a profile, once."""
    job = windows_of(name)
    return ratio_at(share(target), lambda ratio: gain(job, ratio, baseline, overlap))


def speed(figure: Printed, baseline: str, overlap: str) -> Fraction | None:
    """Return their time of a sample over ours, fitted to the gain at the largest batch."""
    ratio = fitted(figure, figure.least, baseline, overlap)
    job = figure.job
    return ratio and ratio / job.measured_ratio * job.batch / figure.batches[-1]


def whole_range(figure: Printed) -> str:
    """Return the gain at every ratio, under every assumption."""
    job = figure.job
    rows = [
        [
            f"{float(ratio):g}",
            *(f"{100 * float(gain(job, ratio, *case)):.1f}" for case in CASES),
        ]
        for ratio in RATIOS
    ]
    return grid(("computation / communication", *(": ".join(case) for case in CASES)), rows)


def other_end(figure: Printed) -> list[Row]:
    """Return what the ratio fitted to the largest batch says of the smallest one."""
    rows = []
    for case in CASES:
        ratio = fitted(figure, figure.least, *case)
        found = None if ratio is None else gain(figure.job, ratio / figure.span, *case)
        rows.append(
            Row(
                f"batch {figure.batches[0]}, {': '.join(case)}",
                figure.most,
                None if found is None else 100 * float(found),
                "%",
            )
        )
    return rows


def highest_bars(figure: Printed) -> list[Row]:
    """Return how long the longest job is by the same fit, and where the paper's axis ends."""
    rows = []
    for case in CASES:
        ratio = fitted(figure, figure.least, *case)
        time = ratio and lasting(figure.job, ratio, *case) * ITERATIONS / 10**9
        rows.append(
            Row(
                f"job at batch {figure.batches[-1]}, {': '.join(case)}",
                figure.axis_s,
                None if time is None else float(time),
                "s",
                limit="≤",
            )
        )
    return rows


def implied(figure: Printed) -> str:
    """Return by how much computation must grow from end to end to explain both gains."""
    rows = []
    for case in CASES:
        few, many = (fitted(figure, target, *case) for target in (figure.most, figure.least))
        grows = "–" if few is None or many is None else f"{float(many / few):.2f}×"
        rows.append((": ".join(case), grows, f"{float(figure.span):g}×"))
    return grid(("servers: overlap", "computation grows", "batch grows"), rows)


def from_the_other(figure: Printed, other: Printed) -> list[Row]:
    """Return the gain at both ends with the speed of their GPUs fitted to the other figure."""
    rows = []
    job = figure.job
    for case in CASES:
        factor = speed(other, *case)
        for batch, paper in ((figure.batches[-1], figure.least), (figure.batches[0], figure.most)):
            ratio = factor and factor * job.measured_ratio * batch / job.batch
            found = None if ratio is None else gain(job, ratio, *case)
            ours = None if found is None else 100 * float(found)
            rows.append(Row(f"batch {batch}, {': '.join(case)}", paper, ours, "%"))
    return rows


def jobs(number: int) -> str:
    """Return all tables of Fig. 6 or 7."""
    figure, job = FIGURES[number], FIGURES[number].job
    (other_number,) = set(FIGURES) - {number}
    other = FIGURES[other_number]
    first, last = figure.batches[0], figure.batches[-1]
    low, high = (float(job.measured_ratio * batch / job.batch) for batch in (first, last))
    factors = [
        (": ".join(case), *(percent(speed(one, *case)) for one in FIGURES.values()))
        for case in CASES
    ]
    named = ("servers: overlap", *(one.title for one in FIGURES.values()))
    about = (
        f"Fig. {number}: {figure.title}, nine servers, 40 Gb/s; the paper prints that jobs are\n"
        f"shorter with BML by {figure.least} % (batch {last}) to {figure.most} % (batch {first}).\n"
        "By how many per cent in the model, under each assumption (servers: overlap).\n"
        f"Communication: {float(job.communication_ns) / 1e6:.4g} ms, what servers of equal load "
        f"take; with the profile's own times\nthe ratio is {low:.3g} (batch {first}) to {high:.3g} "
        f"(batch {last})."
    )
    both = "Computation at the largest batch over that at the smallest, fitted to both gains"
    across = (
        f"Time of a sample on their GPUs over the profile's, fitted to Fig. {other_number} "
        f"({other.least} % at batch {other.batches[-1]}); scored here"
    )
    same = f"The same fit, {ITERATIONS:,} iterations with servers; the paper's axis ends at"
    return sections(
        [
            (about, whole_range(figure)),
            (
                f"Ratio fitted to {figure.least} % at batch {last}; scored at batch {first}",
                numbers(other_end(figure)),
            ),
            (same, numbers(highest_bars(figure))),
            (both, implied(figure)),
            (across, numbers(from_the_other(figure, other))),
            (
                "That time over the profile's, as fitted to each figure's largest batch",
                grid(named, factors),
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="remake a figure of the BML paper")
    parser.add_argument("figure", nargs="?", type=int, choices=(5, 6, 7), help="default: all")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    options = parser.parse_args()
    for number in (options.figure,) if options.figure else (5, 6, 7):
        report = bml_times.report() if number == 5 else jobs(number)
        print(f"## Fig. {number}\n\n{report}\n")
    if options.picture and options.figure == 5:
        bml_times.save(options.picture)
    elif options.picture:
        bml_pictures.draw(list(FIGURES.values()), CASES, options.picture)


if __name__ == "__main__":
    main()
