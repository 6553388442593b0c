"""Spark's event logs for ``planner import``, ``calibrate`` and ``compare``."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from planner.cli.common import file_name, in_file, warn, write_json
from planner.families.drizzle.calibration import Calibration, Measurement
from planner.families.drizzle.family import solve
from planner.families.drizzle.loops import (
    Application,
    Loop,
    in_words,
    loops_of,
    main_loop,
    measurements_of,
    problem_of,
)
from planner.families.drizzle.problem import MAX_OVERHEAD, Problem
from planner.formats.importers.spark_events import read_spark_log
from planner.jsonio.spark import encode_spark
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.view.progress import Progress


class SparkLogs(NamedTuple):
    """The main loop of event logs, its problem, and the fitted constants.

    There is one application per log; `measurements` are the data of the fit; `warnings` tell why
    the numbers may be off.
    """

    applications: tuple[Application, ...]
    main: Loop  # which the texts describe
    problem: Problem
    fitted: Calibration
    measurements: tuple[Measurement, ...]
    warnings: tuple[str, ...]

    def about(self) -> str:
        """Return a line about the main loop."""
        loop = self.main
        jobs = "" if len(loop.jobs) == 1 else f" of {counted(len(loop.jobs), 'job')}"
        return (
            f"{counted(loop.iterations, 'iteration')}{jobs}, {counted(loop.tasks, 'task')} each: "
            f"{format_ns(loop.wall_ns)} an iteration, {format_ns(loop.compute_ns)} of it to compute"
        )

    def sentence(self, group_size: int | None) -> str:
        """Return a sentence on the overhead of scheduling and the gain of groups."""
        return in_words(self.main, group_size, Fraction(self.problem.max_overhead))


def read_logs(
    paths: Sequence[str],
    *,
    max_overhead: Fraction = MAX_OVERHEAD,
    max_group_ns: int | None = None,
    quiet: bool = False,
) -> SparkLogs:
    """Read event logs, with progress on standard error."""
    progress = Progress(quiet=quiet)
    applications, caveats = [], []
    for path in paths:
        if path == "-":
            raise InvalidInputError("FILE", "event logs are files or folders, not standard input")
        name = file_name(path)
        progress(f"reading {name}")
        with in_file(path):
            application = read_spark_log(Path(path))
        progress.done()
        applications.append(application)
        prefix = f"{name}: " if len(paths) > 1 else ""
        caveats += [f"{prefix}{text}" for text in application.warnings]
    loops = tuple(loop for application in applications for loop in loops_of(application.jobs))
    with in_file(paths[0]):
        problem, fitted = problem_of(loops, max_overhead=max_overhead, max_group_ns=max_group_ns)
    main = main_loop(loops)
    disturbed = sum(row.disturbed for row in main.rounds)
    if disturbed == len(main.rounds):
        caveats.append("every round has failed, repeated, raced or missing tasks: none is left out")
    elif disturbed:
        caveats.append(
            f"{disturbed} of {counted(len(main.rounds), 'round')} left out: tasks failed, were "
            "repeated, raced others or are missing"
        )
    if main.overlapping:
        caveats.append("jobs ran side by side: times between them are no overhead of one loop")
    if fitted.confounded:
        names = " and ".join(fitted.confounded)
        caveats.append(
            f"{names} cannot be told apart: it is assumed that larger groups save all that they "
            "can; a log with groups of another size says what they save"
        )
    measured = measurements_of(loops)
    return SparkLogs(tuple(applications), main, problem, fitted, measured, tuple(caveats))


def import_spark(paths: Sequence[str], output: str | None, *, quiet: bool) -> None:
    """Write the contents of event logs; print a summary and warnings on standard error."""
    logs = read_logs(paths, quiet=quiet)
    names = list(map(file_name, paths))
    text = encode_spark(
        logs.applications,
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
