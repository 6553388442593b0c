"""Figs. 4 to 6 of "BigDL and Drizzle on Apache Spark": one scheduler, fitted to one number a time.

Problem: the paper publishes no constant and three numbers (`FIG4`, `FIG5`, `FIG6`). What does each
say of the other two?

Method: o(g) = task_ns·m/g for m tasks in groups of g. Its one constant is fitted to one of the
numbers; the other two are predicted. An improvement is read as time saved, 1 - t(g)/t(1), and as
speed gained, t(1)/t(g) - 1. Computation is in units of Inception-v1's, as only ratios matter. That
of VGG is not published: each task is taken to compute as many samples of it, so that it is the
ratio of their multiply-adds (`multiply_adds`).

Guarantee: exact fractions.
Complexity: O(1) a number.
Source: Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark".
"""

from dataclasses import dataclass
from fractions import Fraction

from multiply_adds import inception_v1, vgg16_on_cifar10

from planner.families.drizzle import Measurement, Plan, Problem, calibrate, evaluate

UNIT = 10**12
"""One iteration's computation of Inception-v1, in steps of the model's clock."""

VGG = Fraction(vgg16_on_cifar10().multiply_adds, inception_v1().multiply_adds)
"""An iteration's computation of VGG, in units of Inception-v1's."""

SAVED, GAINED = "saved", "gained"


@dataclass(frozen=True, slots=True)
class Overhead:
    """A printed share of scheduling in computation, every iteration by itself."""

    tasks: int
    share: Fraction


@dataclass(frozen=True, slots=True)
class Improvement:
    """A printed improvement of groups over groups of one; `compute` of an iteration in units."""

    tasks: int
    size: int
    share: Fraction
    compute: Fraction = Fraction(1)


FIG4 = Overhead(300, Fraction(10, 100))
"""Inception-v1: "more than 10 % of average compute time" past 300 partitions."""

FIG5 = Improvement(32 * 4, 20, Fraction(15, 100), VGG)
"""VGG on CIFAR-10: 32 nodes of 4 cores, a task each."""

FIG6 = Improvement(64 * 4, 10, Fraction(10, 100))
"""Inception-v1: 64 nodes of 4 cores, a task each."""

NUMBERS: dict[int, Overhead | Improvement] = {4: FIG4, 5: FIG5, 6: FIG6}


@dataclass(frozen=True, slots=True)
class Fit:
    """A scheduler whose constant comes from one printed number.

    Attributes
    ----------
    figure : int
        The figure of the number.
    reading : str
        What an improvement is taken to be, ``saved`` or ``gained``; empty for Fig. 4.
    task_ns : Fraction
        The constant.
    """

    figure: int
    reading: str
    task_ns: Fraction

    @property
    def name(self) -> str:
        """Figure and reading."""
        return f"Fig. {self.figure}" + (f" ({self.reading})" if self.reading else "")


def overhead_behind(improvement: Fraction, size: int, reading: str) -> Fraction:
    """Return the o(1)/T of which groups of `size` leave such an improvement; o(g) is o(1)/g."""
    if reading == GAINED:
        return improvement / (1 - (1 + improvement) / size)
    return improvement / (1 - improvement - Fraction(1, size))


def fitted(tasks: int, share: Fraction, compute: Fraction = Fraction(1)) -> Fraction:
    """Return the constant at which scheduling takes a share of `compute`."""
    return calibrate([Measurement(tasks, 1, round(share * compute * UNIT))]).task_ns


def fits() -> list[Fit]:
    """Fit the constant five times, each time to one number in one reading."""
    found = [Fit(4, "", fitted(FIG4.tasks, FIG4.share))]
    for figure, one in ((5, FIG5), (6, FIG6)):
        for reading in (SAVED, GAINED):
            share = overhead_behind(one.share, one.size, reading)
            found.append(Fit(figure, reading, fitted(one.tasks, share, one.compute)))
    return found


def model(
    tasks: int, task_ns: Fraction, compute: Fraction = Fraction(1), limit: float = 0.5
) -> Problem:
    """Return the problem of an iteration with so many tasks."""
    return Problem(
        compute_ns=round(compute * UNIT), tasks=tasks, task_ns=task_ns, max_overhead=limit
    )


def improvement(problem: Problem, size: int, reading: str) -> Fraction:
    """Return what groups of `size` improve over groups of one."""
    speedup = evaluate(problem, Plan(size)).speedup
    return speedup - 1 if reading == GAINED else 1 - 1 / speedup


def predicted(fit: Fit, figure: int, reading: str) -> Fraction:
    """Return what a fit gives for the printed number of a figure."""
    one = NUMBERS[figure]
    if isinstance(one, Overhead):
        share = evaluate(model(one.tasks, fit.task_ns), Plan(1)).overhead_of_compute
        assert share is not None  # something is computed
        return share
    return improvement(model(one.tasks, fit.task_ns, one.compute), one.size, reading)
