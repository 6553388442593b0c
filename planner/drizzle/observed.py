"""What an engine's log says of its jobs, whatever the log looks like.

Source: the nouns are Apache Spark's.
"""

from dataclasses import dataclass

__all__ = ["GROUP_PROPERTY", "Application", "Job", "Spent", "StageShape"]

GROUP_PROPERTY = "planner.iterations"
"""The property of a job that says how many iterations it runs at once."""


@dataclass(frozen=True, slots=True)
class StageShape:
    """A stage of a job.

    Attributes
    ----------
    name : str
        What the engine calls it: the call that made it, and where that stands.
    tasks : int
        Its tasks.
    after : tuple of int
        Places of the stages of this job whose results it reads.
    """

    name: str
    tasks: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What the tasks of a job spent and moved, added up.

    Attributes
    ----------
    run_ns, scheduler_delay_ns, deserialise_ns, serialise_ns, getting_result_ns : int
        Where the time from a task's launch to its end went: running, waiting for the driver,
        reading the task, writing its result, fetching a large result.
    fetch_wait_ns : int
        Of running: waiting for shuffled data.
    read_bytes, remote_bytes, written_bytes, result_bytes : int
        Shuffled data that was read, of it from other machines, and written; results to the driver.
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
    """A job that has ended.

    Attributes
    ----------
    number : int
        The engine's.
    start_ns, end_ns : int
        When the driver took it up, and when it ended.
    iterations : int
        Iterations it ran at once; 0 if it does not say so, which is one.
    shape : tuple of StageShape
        The stages that ran.
    compute_ns : int
        How long they computed: along the longest chain of stages.
    complete : bool
        Whether it succeeded, and every task's end was seen.
    disturbed : int
        Attempts that failed, were repeated, or raced others.
    spent : Spent
        Sums over its tasks.
    """

    number: int
    start_ns: int
    end_ns: int
    iterations: int
    shape: tuple[StageShape, ...]
    compute_ns: int
    complete: bool
    disturbed: int
    spent: Spent

    @property
    def tasks(self) -> int:
        """Tasks of its stages."""
        return sum(stage.tasks for stage in self.shape)


@dataclass(frozen=True, slots=True)
class Application:
    """What a log says of an application.

    Attributes
    ----------
    name, version : str
        Its name, and the engine's version.
    jobs : tuple of Job
        Those that ended, in the order in which they were submitted.
    executors : int
        Executors that ran tasks.
    slots : int
        Tasks that may run at the same time, as far as the log says.
    warnings : tuple of str
        What was damaged or missing.
    """

    name: str
    version: str
    jobs: tuple[Job, ...]
    executors: int
    slots: int
    warnings: tuple[str, ...]
