"""Figures 4 to 6 of "BigDL and Drizzle on Apache Spark", remade from as few of their numbers.

    python benchmarks/drizzle_figures.py [--picture FILE]

No constant is published; three numbers are:

    Fig. 4  Inception-v1: scheduling is 10 % of the average computation at 300 partitions (the text
            says: above 10 % past 300)
    Fig. 5  VGG on CIFAR-10, 32 nodes of 4 cores, a task each: "15 % improvement" in groups of 20
    Fig. 6  Inception-v1, 64 nodes of 4 cores: "10 % improvement" in groups of 10

The scheduler is o(g) = task_ns·m/g, its one constant fitted to one of them; everything else is
predicted. An improvement is read both as time saved, 1 - t(g)/t(1), and as speed gained,
t(1)/t(g) - 1. Times are in units of one iteration's computation: only ratios matter. At the end,
the rule that finds group sizes online is replayed on the same model.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from drizzle_pictures import Line, Panel, draw

from planner.draw import format_table
from planner.drizzle import (
    Band,
    Measurement,
    Plan,
    Problem,
    State,
    adjusted,
    calibrate,
    evaluate,
    solve,
)

UNIT = 10**12
"""One iteration's computation of Inception-v1, in steps of the model's clock."""
SIZES = (1, 2, 5, 10, 20, 50, 100)
PARTITIONS = (32, 64, 128, 200, 256, 300, 400, 500, 600)

FIG4 = (300, Fraction(1, 10))
FIG5 = (128, 20, Fraction(15, 100))
FIG6 = (256, 10, Fraction(10, 100))
"""Partitions and overhead; tasks, group size and improvement (twice)."""


def saved(problem: Problem, size: int) -> Fraction:
    return 1 - 1 / evaluate(problem, Plan(size)).speedup


def gained(problem: Problem, size: int) -> Fraction:
    return evaluate(problem, Plan(size)).speedup - 1


def overhead_behind(improvement: Fraction, size: int, *, as_speed: bool) -> Fraction:
    """Return the o(1)/T of which groups of `size` leave such an improvement; o(g) is o(1)/g."""
    if as_speed:
        return improvement / (1 - (1 + improvement) / size)
    return improvement / (1 - improvement - Fraction(1, size))


def model(tasks: int, task_ns: Fraction, compute: int = UNIT, limit: float = 0.5) -> Problem:
    return Problem(compute_ns=compute, tasks=tasks, task_ns=task_ns, max_overhead=limit)


@dataclass(frozen=True, slots=True)
class Fit:
    """A scheduler whose constant comes from one published number."""

    source: str
    task_ns: Fraction


def fits() -> list[Fit]:
    """Fit the constant three times, each time to one number."""
    partitions, share = FIG4
    found = [("Fig. 4", partitions, share)]
    tasks, size, improvement = FIG6
    found += [
        (f"Fig. 6, {name}", tasks, overhead_behind(improvement, size, as_speed=as_speed))
        for name, as_speed in (("saved", False), ("gained", True))
    ]
    return [
        Fit(name, calibrate([Measurement(count, 1, round(share * UNIT))]).task_ns)
        for name, count, share in found
    ]


def computation_of_vgg(fit: Fit, *, as_speed: bool) -> int:
    """Return the computation of VGG that makes Fig. 5 what it is, with the same scheduler."""
    tasks, size, improvement = FIG5
    return round(tasks * fit.task_ns / overhead_behind(improvement, size, as_speed=as_speed))


def percent(value: Fraction | None) -> str:
    return "" if value is None else f"{float(value):.1%}"


def figure4(found: Sequence[Fit]) -> str:
    rows = [
        (
            str(count),
            *(
                percent(evaluate(model(count, one.task_ns), Plan(1)).overhead_of_compute)
                for one in found
            ),
            percent(evaluate(model(count, found[0].task_ns), Plan(1)).overhead),
            "above 10 % from here on" if count == FIG4[0] else "",
        )
        for count in PARTITIONS
    ]
    rows.append(
        (
            "10 % at",
            *(f"{float(UNIT / 10 / one.task_ns):.0f}" for one in found),
            f"{float(Fraction(UNIT, 9) / found[0].task_ns):.0f}",
            "300",
        )
    )
    header = ("partitions", *(f"o/T: {one.source}" for one in found), "o/(T+o): Fig. 4", "paper")
    return format_table(header, rows)


def improvements(problems: Sequence[tuple[str, Problem]], published: tuple[int, Fraction]) -> str:
    rows = []
    for size in SIZES:
        cells = [
            f"{percent(saved(problem, size))} / {percent(gained(problem, size))}"
            for _, problem in problems
        ]
        rows.append((str(size), *cells, percent(published[1]) if size == published[0] else ""))
    rows.append(
        (
            "no end",
            *(
                f"{percent(1 - 1 / one)} / {percent(one - 1)}"
                for one in (evaluate(problem, Plan(10**15)).speedup for _, problem in problems)
            ),
            "",
        )
    )
    return format_table(("group size", *(name for name, _ in problems), "paper"), rows)


def choices(found: Sequence[Fit]) -> str:
    rows = []
    for limit in (0.05, 0.02, 0.01, 0.005):
        plans = [solve(model(FIG6[0], one.task_ns, limit=limit)).plan for one in found]
        rows.append(
            (f"{limit:.1%}", *("" if one is None else str(one.group_size) for one in plans))
        )
    return format_table(("overhead at most", *(one.source for one in found)), rows)


BAND = Band(low=Fraction(5, 1000), high=Fraction(10, 1000))
CHANGES = ((256, 10), (64, 16), (512, 14))
"""Tasks of an iteration, and for how many groups."""


def replay(task_ns: Fraction) -> list[tuple[int, int, int, int]]:
    """Return for each group its tasks, its size and the sizes in the band."""
    state, rows = State(), []
    for tasks, groups in CHANGES:
        problem = model(tasks, task_ns)
        first = within(lambda share: share > BAND.high, problem)
        last = within(lambda share: share >= BAND.low, problem) - 1
        for _ in range(groups):
            rows.append((tasks, state.group_size, first, last))
            state = adjusted(BAND, state, evaluate(problem, Plan(state.group_size)).overhead)
    return rows


def within(above: Callable[[Fraction], bool], problem: Problem) -> int:
    """Return the first size whose overhead is not above."""
    return next(g for g in range(1, 10**6) if not above(evaluate(problem, Plan(g)).overhead))


def settling(rows: Sequence[tuple[int, int, int, int]]) -> str:
    table = []
    place = 0
    for tasks, groups in CHANGES:
        part = rows[place : place + groups]
        steps = next(i for i, (_, size, low, high) in enumerate(part) if low <= size <= high)
        _, start, low, high = part[0]
        table.append(
            (str(tasks), str(start), f"{low} to {high}", str(part[-1][1]), f"{steps} groups")
        )
        place += groups
    return format_table(("tasks", "starts at", "in the band", "settles at", "after"), table)


def curves(problems: Sequence[tuple[str, Problem]]) -> list[Line]:
    """Return the improvement by group size, in both readings."""
    sizes = range(1, SIZES[-1] + 1)
    return [
        Line(
            f"{name}: {'time saved' if reading is saved else 'speed gained'}",
            [(size, 100 * float(reading(problem, size))) for size in sizes],
            colour,
            dashed=reading is gained,
        )
        for colour, (name, problem) in enumerate(problems)
        for reading in (saved, gained)
    ]


def panels(found: Sequence[Fit]) -> list[Panel]:
    shares = [
        Line(
            f"fitted to {one.source}",
            [(count, 100 * count * float(one.task_ns / UNIT)) for count in PARTITIONS],
            colour,
        )
        for colour, one in enumerate(found)
    ]
    return [
        Panel(
            "Fig. 4: Inception-v1, every iteration by itself",
            ("partitions (tasks of an iteration)", "scheduling / computation (%)"),
            shares,
            (FIG4[0], 100 * float(FIG4[1])),
        ),
        Panel(
            "Fig. 6: Inception-v1, 64 nodes (256 tasks)",
            ("group size", "improvement over groups of one (%)"),
            curves([(one.source, model(FIG6[0], one.task_ns)) for one in found]),
            (FIG6[1], 100 * float(FIG6[2])),
            ticks=SIZES,
        ),
        Panel(
            "Fig. 5: VGG on CIFAR-10, 32 nodes (128 tasks)",
            ("group size", "improvement over groups of one (%)"),
            curves(vgg(found[0])),
            (FIG5[1], 100 * float(FIG5[2])),
            ticks=SIZES,
        ),
    ]


def vgg(fit: Fit) -> list[tuple[str, Problem]]:
    return [
        (name, model(FIG5[0], fit.task_ns, computation_of_vgg(fit, as_speed=as_speed)))
        for name, as_speed in (("if 15 % is saved", False), ("if 15 % is gained", True))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", metavar="FILE", help="draw the figures (.svg, .png, .pdf)")
    options = parser.parse_args()
    found = fits()
    print("Fig. 4: scheduling of Inception-v1 against partitions, every iteration by itself;")
    print("columns by the number the constant is fitted to\n")
    print(figure4(found), end="\n\n")
    tasks, size, improvement = FIG6
    print("Fig. 6: Inception-v1, 256 tasks: time saved / speed gained over groups of one\n")
    print(
        improvements(
            [(one.source, model(tasks, one.task_ns)) for one in found], (size, improvement)
        ),
        end="\n\n",
    )
    print("Fig. 5: VGG, 128 tasks: the same, with the scheduler of Fig. 4; its computation, which")
    print("is not published, is fitted to the 15 %\n")
    _, size, improvement = FIG5
    problems = vgg(found[0])
    print(improvements(problems, (size, improvement)))
    for name, problem in problems:
        print(f"{name}: computation {problem.compute_ns / UNIT:.3f} of Inception-v1's")
    print("\nsmallest groups for Inception-v1, 256 tasks\n")
    print(choices(found), end="\n\n")
    print("the online rule, overhead within 0.5 to 1 %, times 2 above, minus 1 below\n")
    print(settling(replay(found[0].task_ns)))
    if options.picture:
        draw(panels(found), replay(found[0].task_ns), Path(options.picture))


if __name__ == "__main__":
    main()
