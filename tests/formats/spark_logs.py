"""Event logs made by hand, as small as Spark's could be, and sums worked out in another way."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]

START = 1_700_000_000_000


def task(
    stage: int,
    index: int,
    launched: int,
    run: int,
    *,
    reason: str = "Success",
    speculative: bool = False,
    attempt: int = 0,
    partition: int | None = None,
) -> Event:
    """Return the end of a task that ran, and took 3 ms beside running."""
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": attempt,
        "Task End Reason": {"Reason": reason},
        "Task Info": {
            "Index": index,
            "Partition ID": index if partition is None else partition,
            "Launch Time": launched,
            "Finish Time": launched + run + 3,
            "Executor ID": "0",
            "Getting Result Time": 0,
            "Speculative": speculative,
        },
        "Task Metrics": {"Executor Run Time": run},
    }


def stage(number: int, tasks: int, parents: Sequence[int] = (), attempt: int = 0) -> Event:
    info = {
        "Stage ID": number,
        "Stage Attempt ID": attempt,
        "Stage Name": f"step {len(parents)}",
        "Number of Tasks": tasks,
        "Parent IDs": list(parents),
    }
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info}


def job_start(number: int, time: int, stages: Sequence[int], iterations: int = 0) -> Event:
    return {
        "Event": "SparkListenerJobStart",
        "Job ID": number,
        "Submission Time": time,
        "Stage IDs": list(stages),
        "Properties": {"planner.iterations": str(iterations)} if iterations else {},
    }


def job_end(number: int, time: int) -> Event:
    return {
        "Event": "SparkListenerJobEnd",
        "Job ID": number,
        "Completion Time": time,
        "Job Result": {"Result": "JobSucceeded"},
    }


def head() -> list[Event]:
    executor = {"Total Cores": 2}
    return [
        {"Event": "SparkListenerLogStart", "Spark Version": "3.5.1"},
        {"Event": "SparkListenerExecutorAdded", "Executor ID": "0", "Executor Info": executor},
        {"Event": "SparkListenerApplicationStart", "App Name": "by hand", "Timestamp": START},
    ]


END: Event = {"Event": "SparkListenerApplicationEnd", "Timestamp": START}


def iteration(number: int, time: int, tasks: int = 4) -> list[Event]:
    """Return one job of two stages on two cores: 100 ms from its start to its end."""
    first, second = 2 * number, 2 * number + 1
    return [
        job_start(number, time, (first, second)),
        stage(first, tasks),
        *(task(first, index, time, 80 // tasks) for index in range(tasks)),
        stage(second, 2, [first]),
        *(task(second, index, time + 50, 10) for index in range(2)),
        job_end(number, time + 100),
    ]


def loop(rounds: int, every: int = 120) -> list[Event]:
    """Return so many iterations, a new one every so many milliseconds."""
    bodies = (iteration(number, START + every * number) for number in range(rounds))
    return [*head(), *(event for body in bodies for event in body), END]


def text_of(events: Iterable[Event]) -> str:
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)


def written(path: Path, events: Iterable[Event]) -> Path:
    path.write_text(text_of(events), encoding="utf-8")
    return path
