"""Iterations as an engine's log shows them: which jobs repeat, and what each round of them took.

Problem: a log lists jobs one after the other; which of them are the iterations of a training loop,
how long does one compute, and what does the driver's scheduling add?

Method. Jobs are of one shape if their stages have the same names, tasks and links. From the left,
the longest stretch of jobs that repeats a pattern of up to 64 at least three times is a loop; the
shortest such pattern is its iteration. A round lasts until the next one begins; the last round,
whose end nobody sees, is left out, and so are rounds with failed, repeated, speculative or missing
tasks as long as others are left. A round computes for as long as its jobs do, its stages one after
the other where they read each other; the rest is overhead: waiting for tasks to be launched,
reading and writing them, and time between jobs, in which the driver's own code may also run.

A job may run a group of iterations. Then what computes an iteration is the slope of the groups'
computation over their sizes, if there are several sizes: what a group needs once, such as making
connections, is overhead too.

Guarantee: none of the loop being what its author calls an iteration. Medians, so few slow rounds,
such as the first, do not matter.

Complexity: O(jobs · 64). Source: own; the constants are those of `planner.drizzle.calibrate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import median, median_low

from planner.drizzle.calibration import Calibration, Measurement, calibrate
from planner.drizzle.observed import Job
from planner.drizzle.problem import Problem
from planner.drizzle.stages import Stage
from planner.errors import InvalidInputError
from planner.units import counted

__all__ = [
    "Loop",
    "Round",
    "in_words",
    "loops_of",
    "main_loop",
    "measurements_of",
    "problem_of",
]

MAX_PATTERN = 64
"""Most jobs of an iteration."""
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Round:
    """One pass through a loop: an iteration, or a group of them.

    Attributes
    ----------
    iterations : int
        How many iterations it is.
    wall_ns : int
        From its start to that of the next round.
    compute_ns : int
        How long its jobs computed.
    between_ns : int
        Time in which no job of it ran.
    disturbed : bool
        Whether something failed, was repeated, or is missing.
    """

    iterations: int
    wall_ns: int
    compute_ns: int
    between_ns: int
    disturbed: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """A stretch of jobs that repeats itself.

    Attributes
    ----------
    jobs : tuple of Job
        Those of its last round, which stand for all.
    rounds : tuple of Round
        All but the last.
    grouped : bool
        Whether jobs said how many iterations they ran.
    overlapping : bool
        Whether jobs ran side by side: then times between them mean little.
    """

    jobs: tuple[Job, ...]
    rounds: tuple[Round, ...]
    grouped: bool
    overlapping: bool

    @property
    def tasks(self) -> int:
        """Tasks m of an iteration."""
        return sum(job.tasks for job in self.jobs)

    @property
    def counted(self) -> tuple[Round, ...]:
        """The rounds that say something: the undisturbed ones, or all if there are none."""
        calm = tuple(row for row in self.rounds if not row.disturbed)
        return calm or self.rounds

    @property
    def iterations(self) -> int:
        """Iterations of all rounds together."""
        return sum(row.iterations for row in self.rounds)

    @property
    def compute_ns(self) -> int:
        """How long an iteration computes."""
        sizes = sorted({row.iterations for row in self.counted})
        if len(sizes) > 1:
            groups = [(size, self._median(size, "compute_ns")) for size in sizes]
            slopes = [
                Fraction(right - left, more - few)
                for place, (few, left) in enumerate(groups)
                for more, right in groups[place + 1 :]
            ]
            middle = median_low(slopes)
            if middle > 0:
                return round(middle)
        return round(median(Fraction(row.compute_ns, row.iterations) for row in self.counted))

    @property
    def wall_ns(self) -> int:
        """How long an iteration lasts."""
        return round(median(Fraction(row.wall_ns, row.iterations) for row in self.counted))

    @property
    def between_ns(self) -> int:
        """Time of an iteration between jobs."""
        return round(median(Fraction(row.between_ns, row.iterations) for row in self.counted))

    @property
    def overhead(self) -> Fraction:
        """The share of an iteration in which it does not compute."""
        wall = self.wall_ns
        return max(Fraction(wall - self.compute_ns, wall), Fraction(0)) if wall else Fraction(0)

    def _median(self, size: int, name: str) -> int:
        times: list[int] = [getattr(row, name) for row in self.counted if row.iterations == size]
        return round(median(times))

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the median overhead of each size of a group."""
        compute = self.compute_ns
        return tuple(
            Measurement(
                self.tasks,
                size,
                max(round(Fraction(self._median(size, "wall_ns"), size) - compute), 1),
            )
            for size in sorted({row.iterations for row in self.counted})
        )

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of an iteration as a problem has them, jobs one after the other."""
        stages: list[Stage] = []
        before: tuple[str, ...] = ()
        for job in self.jobs:
            names = [f"{len(stages) + place} {stage.name}" for place, stage in enumerate(job.shape)]
            for name, stage in zip(names, job.shape, strict=True):
                after = tuple(names[place] for place in stage.after)
                stages.append(Stage(name, stage.tasks, after or before))
            read = {place for stage in job.shape for place in stage.after}
            before = tuple(name for place, name in enumerate(names) if place not in read)
        return tuple(stages)


def loops_of(jobs: Sequence[Job]) -> tuple[Loop, ...]:
    """Return the loops among jobs in order, each of at least three rounds."""
    ran = [job for job in jobs if job.shape]
    numbers: dict[object, int] = {}
    shapes = [numbers.setdefault((job.shape, job.iterations > 0), len(numbers)) for job in ran]
    loops = []
    start = 0
    while start < len(ran):
        pattern, rounds = _longest(shapes, start)
        if rounds:
            loops.append(_loop(ran[start : start + pattern * rounds], pattern))
        start += max(pattern * rounds, 1)
    return tuple(loops)


def _longest(shapes: Sequence[int], start: int) -> tuple[int, int]:
    """Return the pattern that repeats over most jobs from a place on, and how often it does."""
    best, most = 0, 0
    for pattern in range(1, min(MAX_PATTERN, (len(shapes) - start) // REPEATS) + 1):
        end = start
        while end + pattern < len(shapes) and shapes[end] == shapes[end + pattern]:
            end += 1
        rounds = (end - start) // pattern + 1
        if rounds >= REPEATS and pattern * rounds > best * most:
            best, most = pattern, rounds
    return best, most


def _loop(jobs: Sequence[Job], pattern: int) -> Loop:
    rounds = [jobs[place : place + pattern] for place in range(0, len(jobs), pattern)]
    overlapping = any(after.start_ns < before.end_ns for before, after in pairwise(jobs))
    return Loop(
        tuple(rounds[-1]),
        tuple(_round(these, those[0].start_ns) for these, those in pairwise(rounds)),
        grouped=jobs[0].iterations > 0,
        overlapping=overlapping,
    )


def _round(jobs: Sequence[Job], end_ns: int) -> Round:
    wall = max(end_ns - jobs[0].start_ns, 0)
    ran = sum(job.end_ns - job.start_ns for job in jobs)
    return Round(
        iterations=max(sum(job.iterations for job in jobs), 1),
        wall_ns=wall,
        compute_ns=min(sum(job.compute_ns for job in jobs), wall),
        between_ns=max(wall - ran, 0),
        disturbed=any(job.disturbed or not job.complete for job in jobs),
    )


def main_loop(loops: Sequence[Loop]) -> Loop:
    """Return the loop in which most time passed, of groups if there are such."""
    grouped = [loop for loop in loops if loop.grouped]
    return max(grouped or loops, key=lambda loop: sum(row.wall_ns for row in loop.rounds))


def measurements_of(loops: Sequence[Loop]) -> tuple[Measurement, ...]:
    """Return the overheads of all loops of the main one's kind, each number of tasks and size once.

    Of several loops alike the one with most rounds counts.
    """
    kind = main_loop(loops).grouped
    best: dict[tuple[int, int], tuple[int, Measurement]] = {}
    for loop in loops:
        if loop.grouped != kind:
            continue
        for row in loop.measurements():
            rounds = sum(group.iterations == row.group_size for group in loop.counted)
            key = row.tasks, row.group_size
            if key not in best or rounds > best[key][0]:
                best[key] = rounds, row
    return tuple(row for _, (_, row) in sorted(best.items()))


def problem_of(
    loops: Sequence[Loop], *, max_overhead: Fraction | float, max_group_ns: int | None
) -> tuple[Problem, Calibration]:
    """Return how many iterations of the main loop to schedule at once, and how the constants fit.

    Parameters
    ----------
    loops : sequence of Loop
        Of one log or several, at least one.
    max_overhead, max_group_ns
        The limits, as a `Problem` has them.

    Raises
    ------
    InvalidInputError
        If there is no loop, or a limit cannot mean anything.
    """
    if not loops:
        raise InvalidInputError(
            "", f"no jobs that repeat at least {REPEATS} times one after the other: no iterations"
        )
    main = main_loop(loops)
    fitted = calibrate(measurements_of(loops))
    problem = Problem(
        compute_ns=main.compute_ns,
        tasks=main.tasks,
        group_ns=fitted.group_ns,
        task_ns=fitted.task_ns,
        constant_task_ns=fitted.constant_task_ns,
        max_overhead=max_overhead,
        max_group_ns=max_group_ns,
        stages=() if main.grouped else main.stages(),
    )
    return problem, fitted


def in_words(loop: Loop, group_size: int | None, max_overhead: Fraction) -> str:
    """Return in one sentence what scheduling takes, and what groups would change."""
    share = float(loop.overhead)
    sizes = {row.iterations for row in loop.counted}
    groups = f" in groups of {min(sizes)} to {max(sizes)}" if len(sizes) > 1 else ""
    if len(sizes) == 1 and loop.grouped:
        groups = f" in groups of {min(sizes)}"
    spent = f"your driver spends {100 * share:.0f} % of each iteration scheduling{groups}"
    between = loop.between_ns / loop.wall_ns if loop.wall_ns else 0
    if between > share / 4 and not loop.overlapping:
        spent += (
            f" ({100 * between:.0f} % between jobs, where your own code on the driver counts too)"
        )
    limit = f"{100 * float(max_overhead):.3g} %"
    if group_size is None and loop.overhead <= max_overhead:
        return f"{spent}, which is below {limit} already"
    if group_size is None:
        return f"{spent}; no group within the limits brings it below {limit}"
    if group_size == 1:
        return f"{spent}; single iterations keep it below {limit}"
    return f"{spent}; groups of {counted(group_size, 'iteration')} bring it below {limit}"
