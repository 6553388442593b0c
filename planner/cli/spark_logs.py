"""Spark's event logs, as several commands take them: ``import``, ``calibrate`` and ``compare``."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from planner.cli.common import in_file, readable, warn, write_json
from planner.cli.progress import Progress
from planner.cli.telling import tell
from planner.drizzle.calibration import Calibration, Measurement
from planner.drizzle.family import solve
from planner.drizzle.loops import (
    Loop,
    in_words,
    loops_of,
    main_loop,
    measurements_of,
    problem_of,
)
from planner.drizzle.observed import Application
from planner.drizzle.problem import Problem
from planner.errors import InvalidInputError
from planner.formats.spark_events import read_spark_log
from planner.formats.spark_log import parts_of
from planner.iteration.scheduling import MAX_OVERHEAD
from planner.jsonio.spark import encode_spark
from planner.units import counted, format_ns

__all__ = ["FORMAT", "SparkLogs", "import_spark", "read_logs"]

FORMAT = "spark-events"
_MB = 10**6


class SparkLogs(NamedTuple):
    """What some event logs say together.

    Attributes
    ----------
    applications : tuple of Application
        One a log.
    loops : tuple of Loop
        Those of all.
    problem : Problem
        How many iterations of the main loop to schedule at once.
    fitted : Calibration
        How well its constants fit.
    measurements : tuple of Measurement
        What they are fitted to.
    warnings : tuple of str
        Why the numbers may be off.
    """

    applications: tuple[Application, ...]
    loops: tuple[Loop, ...]
    problem: Problem
    fitted: Calibration
    measurements: tuple[Measurement, ...]
    warnings: tuple[str, ...]

    @property
    def main(self) -> Loop:
        """The loop of which everything is said."""
        return main_loop(self.loops)

    def about(self) -> str:
        """Return a line that says what was seen."""
        loop = self.main
        jobs = "" if len(loop.jobs) == 1 else f" of {counted(len(loop.jobs), 'job')}"
        return (
            f"{counted(loop.iterations, 'iteration')}{jobs}, {counted(loop.tasks, 'task')} each: "
            f"{format_ns(loop.wall_ns)} an iteration, {format_ns(loop.compute_ns)} of it to compute"
        )

    def sentence(self, group_size: int | None) -> str:
        """Return what scheduling takes, and what groups would change, in plain words."""
        return in_words(self.main, group_size, Fraction(self.problem.max_overhead))


def read_logs(
    paths: Sequence[str],
    *,
    max_overhead: Fraction = MAX_OVERHEAD,
    max_group_ns: int | None = None,
    quiet: bool = False,
) -> SparkLogs:
    """Read event logs, with progress on standard error.

    Raises
    ------
    PlannerError
        If one of them is none, or they show no iterations.
    """
    progress = Progress(quiet=quiet)
    applications, doubts = [], []
    for path in paths:
        if path == "-":
            raise InvalidInputError("FILE", "event logs are files or folders, not standard input")
        tell(f"reading {path}")
        name = readable(Path(path).name)
        with in_file(path):
            size = sum(part.stat().st_size for part in parts_of(Path(path))[0])
            application = read_spark_log(
                Path(path),
                lambda done, name=name, size=size: progress(  # type: ignore[misc]
                    f"{name}: MB read:", done // _MB, max(size, done) // _MB
                ),
            )
        progress.done()
        applications.append(application)
        prefix = f"{name}: " if len(paths) > 1 else ""
        doubts += [f"{prefix}{text}" for text in application.warnings]
    loops = tuple(loop for application in applications for loop in loops_of(application.jobs))
    with in_file(paths[0]):
        problem, fitted = problem_of(loops, max_overhead=max_overhead, max_group_ns=max_group_ns)
    main = main_loop(loops)
    disturbed = sum(row.disturbed for row in main.rounds)
    if disturbed == len(main.rounds):
        doubts.append("every round has failed, repeated, raced or missing tasks: none is left out")
    elif disturbed:
        doubts.append(
            f"{disturbed} of {counted(len(main.rounds), 'round')} left out: tasks failed, were "
            "repeated, raced others or are missing"
        )
    if main.overlapping:
        doubts.append("jobs ran side by side: times between them are no overhead of one loop")
    if fitted.confounded:
        names = " and ".join(fitted.confounded)
        doubts.append(
            f"{names} cannot be told apart: it is assumed that larger groups save all that they "
            "can; a log with groups of another size says what they save"
        )
    measured = measurements_of(loops)
    return SparkLogs(tuple(applications), loops, problem, fitted, measured, tuple(doubts))


def import_spark(paths: Sequence[str], output: str | None, *, quiet: bool) -> None:
    """Write what event logs say, with a sentence about it and warnings on standard error."""
    logs = read_logs(paths, quiet=quiet)
    names = [readable(Path(path).name) for path in paths]
    text = encode_spark(
        logs.applications,
        logs.loops,
        logs.problem,
        logs.fitted,
        logs.measurements,
        names,
        logs.warnings,
    )
    write_json(text, output)
    plan = solve(logs.problem).plan
    warn(f"warning: {text}" for text in logs.warnings)
    warn([logs.about(), logs.sentence(None if plan is None else plan.group_size)])
