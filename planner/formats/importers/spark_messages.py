"""The types of the Spark events that are decoded, with the fields that are needed.

Source: Spark's JsonProtocol, versions 3 and 4.
"""

from typing import Any

import msgspec


def _named(name: str, default: Any) -> Any:
    return msgspec.field(default=default, name=name)


class StageInfo(msgspec.Struct, frozen=True, gc=False):
    """An attempt at a stage."""

    number: int = msgspec.field(name="Stage ID")
    attempt: int = _named("Stage Attempt ID", 0)
    name: str = _named("Stage Name", "")
    tasks: int = _named("Number of Tasks", 0)
    parents: tuple[int, ...] | None = _named("Parent IDs", None)  # not before Spark 1.5
    submitted: int | None = _named("Submission Time", None)
    completed: int | None = _named("Completion Time", None)


class JobStart(msgspec.Struct, frozen=True, gc=False):
    """A job was submitted."""

    number: int = msgspec.field(name="Job ID")
    time: int | None = _named("Submission Time", None)  # not before Spark 1.3
    stages: tuple[int, ...] = _named("Stage IDs", ())
    properties: dict[str, Any] | None = _named("Properties", None)


class JobEnd(msgspec.Struct, frozen=True, gc=False):
    """A job has ended."""

    number: int = msgspec.field(name="Job ID")
    time: int | None = _named("Completion Time", None)  # not before Spark 1.3
    result: dict[str, Any] = _named("Job Result", {})


class StageEvent(msgspec.Struct, frozen=True, gc=False):
    """A stage was submitted, or is complete."""

    info: StageInfo = msgspec.field(name="Stage Info")


class TaskInfo(msgspec.Struct, frozen=True, gc=False):
    """Place and times of an attempt at a task."""

    launched: int = msgspec.field(name="Launch Time")
    finished: int = msgspec.field(name="Finish Time")
    index: int = _named("Index", 0)
    partition: int = _named("Partition ID", -1)  # not before Spark 3.2
    executor: str = _named("Executor ID", "")
    getting_result: int = _named("Getting Result Time", 0)
    speculative: bool = _named("Speculative", default=False)


class ShuffleRead(msgspec.Struct, frozen=True, gc=False):
    """What a task fetched (bytes and ms)."""

    remote: int = _named("Remote Bytes Read", 0)
    local: int = _named("Local Bytes Read", 0)
    waited: int = _named("Fetch Wait Time", 0)


class ShuffleWrite(msgspec.Struct, frozen=True, gc=False):
    """What a task wrote for others (bytes and ns)."""

    written: int = _named("Shuffle Bytes Written", 0)
    time_ns: int = _named("Shuffle Write Time", 0)


class Metrics(msgspec.Struct, frozen=True, gc=False):
    """What a task spent (ms and bytes)."""

    deserialise: int = _named("Executor Deserialize Time", 0)
    run: int = _named("Executor Run Time", 0)
    serialise: int = _named("Result Serialization Time", 0)
    result: int = _named("Result Size", 0)
    read: ShuffleRead | None = _named("Shuffle Read Metrics", None)
    write: ShuffleWrite | None = _named("Shuffle Write Metrics", None)


class TaskEnd(msgspec.Struct, frozen=True, gc=False):
    """An attempt at a task has ended."""

    stage: int = msgspec.field(name="Stage ID")
    info: TaskInfo = msgspec.field(name="Task Info")
    attempt: int = _named("Stage Attempt ID", 0)
    reason: dict[str, Any] = _named("Task End Reason", {})
    metrics: Metrics | None = _named("Task Metrics", None)


class ExecutorInfo(msgspec.Struct, frozen=True, gc=False):
    """The cores and the host of an executor."""

    cores: int = _named("Total Cores", 0)
    host: str = _named("Host", "")


class ExecutorAdded(msgspec.Struct, frozen=True, gc=False):
    """An executor has registered."""

    executor: str = msgspec.field(name="Executor ID")
    info: ExecutorInfo = msgspec.field(name="Executor Info")


class Environment(msgspec.Struct, frozen=True, gc=False):
    """The configuration of the application."""

    properties: dict[str, Any] = _named("Spark Properties", {})


class LogStart(msgspec.Struct, frozen=True, gc=False):
    """The version of Spark."""

    version: str = _named("Spark Version", "")


class AppStart(msgspec.Struct, frozen=True, gc=False):
    """The name of the application."""

    name: str = _named("App Name", "")


class AppEnd(msgspec.Struct, frozen=True, gc=False):
    """The log is complete."""


_KINDS: dict[bytes, type[msgspec.Struct]] = {
    b"SparkListenerLogStart": LogStart,
    b"SparkListenerApplicationStart": AppStart,
    b"SparkListenerApplicationEnd": AppEnd,
    b"SparkListenerEnvironmentUpdate": Environment,
    b"SparkListenerExecutorAdded": ExecutorAdded,
    b"SparkListenerJobStart": JobStart,
    b"SparkListenerJobEnd": JobEnd,
    b"SparkListenerStageSubmitted": StageEvent,
    b"SparkListenerStageCompleted": StageEvent,
    b"SparkListenerTaskEnd": TaskEnd,
}
DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}
"""The decoder of each event, by its name."""
