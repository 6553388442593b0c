"""Training loops in an engine's log: jobs that repeat, their rounds, and measured times.

Problem: given the jobs of a log in order, find the iterations of a training loop, their
computation, and the driver's overhead. Method: docs/spark.md, "How loops are found".

Guarantee: none that a round is what the author of the job calls an iteration. Times are medians, so
a few slow rounds, such as the first, do not matter.
Complexity: O(jobs · 64). Source: own; the constants are those of `planner.drizzle.calibrate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import median, median_low

from planner.families.drizzle.calibration import Calibration, Measurement, calibrate
from planner.families.drizzle.problem import Problem, Stage
from planner.model.errors import InvalidInputError
from planner.model.units import counted

# ---
# Jobs as an engine's log records them, independent of the log's format; the terms are Spark's.

GROUP_PROPERTY = "planner.iterations"
"""The job property that states how many iterations the job runs at once."""


@dataclass(frozen=True, slots=True)
class StageShape:
    """A stage of a job."""

    name: str
    tasks: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has ended."""

    number: int  # as the engine counts jobs
    start_ns: int
    end_ns: int
    iterations: int  # iterations run at once; 0 if the job does not say, which counts as 1
    shape: tuple[StageShape, ...]
    compute_ns: int  # along the longest chain of its stages
    complete: bool  # whether it succeeded and the log shows the end of every task
    disturbed: int  # attempts that failed, were repeated, or were speculative

    @property
    def tasks(self) -> int:
        """Tasks of its stages."""
        return sum(stage.tasks for stage in self.shape)


@dataclass(frozen=True, slots=True)
class Application:
    """An application as a log records it."""

    name: str
    version: str  # of the engine
    jobs: tuple[Job, ...]  # that ended, in order of submission
    executors: int  # that ran tasks
    slots: int  # tasks that may run at the same time, as far as the log says
    warnings: tuple[str, ...]  # on damaged or missing parts of the log


MAX_PATTERN = 64
"""Largest number of jobs in an iteration."""
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Round:
    """One pass through a loop: an iteration, or a group of iterations."""

    iterations: int
    wall_ns: int  # from its start to the start of the next round
    compute_ns: int
    between_ns: int  # time in which none of its jobs ran
    disturbed: bool  # whether a task failed, was repeated, or is missing


@dataclass(frozen=True, slots=True)
class Loop:
    """A sequence of jobs that repeats."""

    jobs: tuple[Job, ...]  # of the last round, as an example of all
    rounds: tuple[Round, ...]  # without the last, whose end is unknown
    grouped: bool  # whether jobs state how many iterations they run
    overlapping: bool  # whether jobs overlap; then `between_ns` means little

    @property
    def tasks(self) -> int:
        """Tasks m of an iteration."""
        return sum(job.tasks for job in self.jobs)

    @property
    def counted(self) -> tuple[Round, ...]:
        """The undisturbed rounds, or all rounds if none is undisturbed."""
        calm = tuple(row for row in self.rounds if not row.disturbed)
        return calm or self.rounds

    @property
    def iterations(self) -> int:
        """Iterations of all rounds together."""
        return sum(row.iterations for row in self.rounds)

    @property
    def compute_ns(self) -> int:
        """Computation time of an iteration."""
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
        """Duration of an iteration."""
        return round(median(Fraction(row.wall_ns, row.iterations) for row in self.counted))

    @property
    def between_ns(self) -> int:
        """Time of an iteration between jobs."""
        return round(median(Fraction(row.between_ns, row.iterations) for row in self.counted))

    @property
    def overhead(self) -> Fraction:
        """Share of an iteration that is not computation."""
        wall = self.wall_ns
        return max(Fraction(wall - self.compute_ns, wall), Fraction(0)) if wall else Fraction(0)

    def _median(self, size: int, name: str) -> int:
        times: list[int] = [getattr(row, name) for row in self.counted if row.iterations == size]
        return round(median(times))

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the median overhead for each group size."""
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
        """Return the stages of an iteration, its jobs executed sequentially."""
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
    """Return the loops in a list of jobs, in order, each of at least three rounds."""
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
    """Return the length of the pattern from `start` that covers most jobs, and its rounds."""
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
    """Return the loop that took most time, among loops of groups if there are any."""
    grouped = [loop for loop in loops if loop.grouped]
    return max(grouped or loops, key=lambda loop: sum(row.wall_ns for row in loop.rounds))


def measurements_of(loops: Sequence[Loop]) -> tuple[Measurement, ...]:
    """Return one overhead per number of tasks and group size, of loops of the main loop's kind.

    Of several loops with the same key the loop with most rounds counts.
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
    """Return the problem of scheduling the main loop, and the fit of its constants.

    InvalidInputError if there is no loop, or a limit is invalid.
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
    """Return one sentence on the cost of scheduling, and on what groups would change."""
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
