"""Jobs as an engine's log records them, independent of the log's format; the terms are Spark's."""

from dataclasses import dataclass

GROUP_PROPERTY = "planner.iterations"
"""The job property that states how many iterations the job runs at once."""


@dataclass(frozen=True, slots=True)
class StageShape:
    """A stage of a job."""

    name: str
    tasks: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """Times and bytes of a job's tasks, summed.

    `run_ns` to `getting_result_ns` divide the time from a task's launch to its end: running,
    waiting for the driver, deserialising the task, serialising its result, fetching a large result.
    `fetch_wait_ns` is the part of `run_ns` spent waiting for shuffled data. Bytes are shuffle data
    read, the part of it read from other machines, shuffle data written, and results sent to the
    driver.
    """

    run_ns: int = 0
    scheduler_delay_ns: int = 0
    deserialise_ns: int = 0
    serialise_ns: int = 0
    getting_result_ns: int = 0
    fetch_wait_ns: int = 0
    read_bytes: int = 0
    remote_bytes: int = 0
    written_bytes: int = 0
    result_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has ended."""

    number: int  # the engine's
    start_ns: int
    end_ns: int
    iterations: int  # iterations run at once; 0 if the job does not say, which counts as 1
    shape: tuple[StageShape, ...]
    compute_ns: int  # along the longest chain of its stages
    complete: bool  # whether it succeeded and the log shows the end of every task
    disturbed: int  # attempts that failed, were repeated, or were speculative
    spent: Spent

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
