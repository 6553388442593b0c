"""Event logs of other people's Sparks: what is read of each.

    python benchmarks/spark_logs.py FOLDER

FOLDER has a folder for each project whose logs were copied there; files, and folders called
eventlog_v2_…, are logs. Nothing of the logs is part of this project.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tables import rows_below

from planner.families.drizzle.family import solve
from planner.families.drizzle.loops import Application, in_words, loops_of, main_loop, problem_of
from planner.families.drizzle.problem import MAX_GROUP_NS, MAX_OVERHEAD
from planner.formats.importers.spark_events import read_spark_log
from planner.formats.importers.spark_log import parts_of
from planner.model.errors import PlannerError

MAGIC = {b"\x28\xb5\x2f\xfd": "zstd"}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    rows, loops = [], []
    for project in sorted(path for path in folder.iterdir() if path.is_dir()):
        for log in sorted(logs_in(project)):
            name = log.relative_to(project).as_posix()
            size = sum(part.stat().st_size for part in parts_of(log)[0])
            packed = packing(parts_of(log)[0][0])
            try:
                application = read_spark_log(log)
            except PlannerError as error:
                rows.append((project.name, name, "?", packed, f"{size / 1e3:.0f}", "–", str(error)))
                continue
            rows.append(
                (
                    project.name,
                    name,
                    application.version or "?",
                    packed,
                    f"{size / 1e3:.0f}",
                    str(len(application.jobs)),
                    "; ".join(application.warnings) or "–",
                )
            )
            loops += [(project.name, name, *told) for told in said(application)]
    print("## Logs\n")
    print(f"{len(rows)} logs of {len({row[0] for row in rows})} projects.\n")
    rows_below(("project", "log", "Spark", "packed", "kB", "jobs", "what was told"), rows)
    print("## Loops in them\n")
    rows_below(
        ("project", "log", "jobs a round", "rounds", "tasks", "what is said of the main one"), loops
    )


def logs_in(folder: Path) -> Iterator[Path]:
    """Yield files, and folders of rolling logs."""
    for path in folder.iterdir():
        if path.is_dir() and not path.name.startswith("eventlog_v2_"):
            yield from logs_in(path)
        else:
            yield path


def packing(part: Path) -> str:
    """Return what packs a file."""
    with part.open("rb") as file:
        start = file.read(8)
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), "plain")


def said(application: Application) -> Iterator[tuple[object, ...]]:
    """Yield what is said of each loop."""
    loops = loops_of(application.jobs)
    for loop in loops:
        text = "–"
        if loop == main_loop(loops):
            problem, _ = problem_of([loop], max_overhead=MAX_OVERHEAD, max_group_ns=MAX_GROUP_NS)
            plan = solve(problem).plan
            text = in_words(loop, None if plan is None else plan.group_size, MAX_OVERHEAD)
        yield len(loop.jobs), len(loop.rounds), loop.tasks, text


if __name__ == "__main__":
    main()
