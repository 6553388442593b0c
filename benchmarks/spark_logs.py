"""Event logs of other people's Sparks: what is read of each, and whether sums are right.

    python benchmarks/spark_logs.py FOLDER

FOLDER has a folder for each project whose logs were copied there; files, and folders called
eventlog_v2_…, are logs. Of each one the sizes of the jobs' results are also added up from all of
its events at once, decoded one by one. Nothing of the logs is part of this project.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from tables import rows_below

from planner.families.drizzle.family import solve
from planner.families.drizzle.loops import Application, in_words, loops_of, main_loop, problem_of
from planner.families.drizzle.problem import MAX_GROUP_NS, MAX_OVERHEAD
from planner.formats.importers.spark_events import read_spark_log
from planner.formats.importers.spark_log import lines_of, parts_of
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
                rows.append(
                    (project.name, name, "?", packed, f"{size / 1e3:.0f}", *"––", str(error))
                )
                continue
            rows.append(
                (
                    project.name,
                    name,
                    application.version or "?",
                    packed,
                    f"{size / 1e3:.0f}",
                    len(application.jobs),
                    "equal" if sums_are_equal(log, application) else "differ",
                    "; ".join(application.warnings) or "–",
                )
            )
            loops += [(project.name, name, *told) for told in said(application)]
    print("## Logs\n")
    print(f"{len(rows)} logs of {len({row[0] for row in rows})} projects.\n")
    rows_below(
        ("project", "log", "Spark", "packed", "kB", "jobs", "result sizes", "what was told"), rows
    )
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


def sums_are_equal(log: Path, application: Application) -> bool:
    """Add up the results of calm jobs in another way: all events of all lines, decoded."""
    owner: dict[int, int] = {}
    sums: dict[int, int] = {}
    for part in parts_of(log)[0]:
        with part.open("rb") as source:
            for _, line in lines_of(source, "", lambda _: None):
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if event["Event"] == "SparkListenerJobStart":
                    for number in event["Stage IDs"]:
                        owner.setdefault(number, event["Job ID"])
                if event["Event"] == "SparkListenerTaskEnd":
                    job = owner.get(event["Stage ID"])
                    metrics = event.get("Task Metrics")
                    if (
                        job is not None
                        and metrics
                        and event["Task End Reason"]["Reason"] == "Success"
                    ):
                        sums[job] = sums.get(job, 0) + metrics["Result Size"]
    calm = [job for job in application.jobs if job.complete and not job.disturbed and job.shape]
    # A stage that several jobs name runs in one of them: only all together can be compared then.
    return sum(job.sent.result_bytes for job in calm) == sum(
        sums.get(job.number, 0) for job in calm
    )


if __name__ == "__main__":
    main()
