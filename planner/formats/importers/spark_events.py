"""Aggregates a Spark event log into one row per job.

Problem: a log of gigabytes has events for every task; only a few sums per job are needed. Method:
lines are classified by their first bytes, and only needed events are decoded. A finished task is
added to its stage, a complete stage to its job, and a finished job becomes a row
(`planner.families.drizzle.loops.Job`). Of several attempts at a stage the last one's successful
tasks count. Scheduler delay is what Spark's own page shows: task time besides running,
(de)serialisation and sending the result. A stage computes as long as its busiest executor: the
tasks' running times over its cores, or the longest of them. Guarantee: the same rows as from
decoding everything. Unreadable lines are counted and skipped; jobs that lack something because of
them are not complete, and say so. O(bytes); memory: running jobs, and under 1 kB per other job.
Source: JsonProtocol (3 and 4); AppStatusUtils for scheduler delay.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from planner.families.drizzle.loops import GROUP_PROPERTY, Application, Job, StageShape
from planner.formats.importers.spark_log import (
    DECODERS,
    About,
    JobEnd,
    JobStart,
    StageInfo,
    StageSubmitted,
    TaskEnd,
    lines_of,
    parts_of,
)
from planner.model.errors import InvalidInputError
from planner.model.units import counted

_MS = 10**6
_MAX_NS = 2**62

_EVENT = re.compile(rb'\s*\{\s*"Event"\s*:\s*"(?:[^"]*\.)?([^".]*)"')
"""The beginning of a line of Spark's, and the event's name without its package."""


@dataclass(slots=True)
class _Stage:
    """Sums over one attempt at a stage (ms)."""

    info: StageInfo
    done: set[tuple[int, int]] = field(default_factory=set)
    busy: dict[str, list[int]] = field(default_factory=dict)  # executor: sum, longest
    disturbed: int = 0


@dataclass(slots=True)
class _Running:
    """A job that has not ended yet."""

    start: JobStart
    group: int
    attempts: dict[int, _Stage] = field(default_factory=dict)
    again: int = 0


class _Reader:
    """State of reading a log."""

    def __init__(self) -> None:
        self.name = self.version = ""
        self.cores: dict[str, int] = {}
        self.per_task = 1
        self.running: dict[int, _Running] = {}
        self.stages: dict[int, _Stage] = {}
        self.jobs: list[Job] = []
        self.shapes: dict[tuple[StageShape, ...], tuple[StageShape, ...]] = {}
        self.used: set[str] = set()
        self.ended = False
        self.unreadable: list[str] = []
        self.why = ""  # the first unreadable event, and the reason
        self.events = self.tasks = self.started = 0

    def take(self, where: str, text: bytes) -> None:
        """Process the line at a place."""
        begin = _EVENT.match(text)
        if begin is None:
            if text.strip():
                self._not_read(where)
            return
        self.events += 1
        if begin[1] not in DECODERS:
            return
        try:
            event = DECODERS[begin[1]].decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.why = self.why or f" ({where}: {error})"
            self._not_read(where)
        else:
            self._follow(event)
            self.ended = self.ended or begin[1].endswith(b"ApplicationEnd")

    def _not_read(self, where: str) -> None:
        if not self.events:
            raise InvalidInputError(
                where,
                "expected an event of Spark's, plain or packed by zstd, such as "
                '{"Event":"SparkListenerLogStart"',
            )
        self.unreadable.append(where)

    def _follow(self, event: Any) -> None:
        match event:
            case TaskEnd():
                self._task(event)
            case StageSubmitted(info):
                self._submitted(info)
            case JobStart():
                self.started += 1
                self.running[event.number] = _Running(event, _group(event.properties))
            case JobEnd():
                self._ended(event)
            case About():
                self.name, self.version = event.name or self.name, event.version or self.version
                if event.executor:
                    self.cores[event.executor] = event.info.cores
                if event.properties:
                    self.per_task = _positive(event.properties.get("spark.task.cpus"))

    def _submitted(self, info: StageInfo) -> None:
        # A stage of several jobs runs in the first job that needs it.
        owner = next(
            (job for job in self.running.values() if info.number in job.start.stages), None
        )
        if owner is None:
            return
        stage, before = _Stage(info), owner.attempts.get(info.number)
        if before is not None:
            owner.again += 1
            if info.attempt and info.tasks < before.info.tasks:
                stage = before  # only tasks whose output was lost run again; the others count
        owner.attempts[info.number] = self.stages[info.number] = stage

    def _task(self, event: TaskEnd) -> None:
        self.tasks += 1
        stage = self.stages.get(event.stage)
        if stage is None:
            return
        info, metrics = event.info, event.metrics
        if event.reason.get("Reason") != "Success" or info.speculative:
            stage.disturbed += 1
        if event.reason.get("Reason") != "Success" or metrics is None:
            return
        # An attempt at only some tasks of a stage numbers these from 0 again.
        task = (info.partition, 0) if info.partition >= 0 else (info.index, event.attempt)
        if task in stage.done or event.attempt < stage.info.attempt:
            return
        stage.done.add(task)
        self.used.add(info.executor)
        fetched = max(info.finished - info.getting_result, 0) if info.getting_result else 0
        busy = stage.busy.setdefault(info.executor, [0, 0])
        useful = max(metrics.run, 0) + fetched
        busy[0] += useful
        busy[1] = max(busy[1], useful)

    def _ended(self, event: JobEnd) -> None:
        job = self.running.pop(event.number, None)
        if job is None:
            return
        for number in job.attempts:
            self.stages.pop(number, None)
        stages = tuple(stage for _, stage in sorted(job.attempts.items()))
        complete = event.result.get("Result") == "JobSucceeded" and all(
            len(stage.done) >= stage.info.tasks for stage in stages
        )
        start, end = job.start.time * _MS, event.time * _MS
        if not 0 <= start <= end <= _MAX_NS:
            start, end, complete = 0, 0, False
        self.jobs.append(
            Job(
                number=event.number,
                start_ns=start,
                end_ns=end,
                iterations=job.group,
                shape=self._shape(stages),
                compute_ns=self._computed(stages),
                complete=complete,
                disturbed=job.again + sum(stage.disturbed for stage in stages),
            )
        )

    def _shape(self, stages: tuple[_Stage, ...]) -> tuple[StageShape, ...]:
        """Return the shape of a job; equal shapes are one object."""
        places = {stage.info.number: place for place, stage in enumerate(stages)}
        shape = tuple(
            StageShape(
                stage.info.name,
                stage.info.tasks,
                tuple(places[parent] for parent in stage.info.parents if parent in places),
            )
            for stage in stages
        )
        return self.shapes.setdefault(shape, shape)

    def _computed(self, stages: tuple[_Stage, ...]) -> int:
        """Return the computation time of the longest chain of stages (ns)."""
        ends: dict[int, int] = {}
        for stage in stages:  # a stage has a higher number than those it reads
            before = max((ends.get(parent, 0) for parent in stage.info.parents), default=0)
            ends[stage.info.number] = before + self._busiest(stage)
        return max(ends.values(), default=0) * _MS

    def _busiest(self, stage: _Stage) -> int:
        """Return the computation time of a stage's busiest executor (ms)."""
        longest = 0
        for executor, (together, single) in stage.busy.items():
            slots = max(self.cores.get(executor, 0) // self.per_task, 1)
            if executor not in self.cores:
                slots = max(len(stage.done), 1)
            longest = max(longest, single, -(-together // slots))
        return longest


def read_spark_log(path: Path) -> Application:
    """Read an event log: a file, or the directory of a rolling one.

    A codec whose package is not installed is a `MissingExtraError`.
    """
    parts, caveats = parts_of(path)
    reader = _Reader()
    for part in parts:
        with part.open("rb") as source:
            for where, line in lines_of(
                source, part.name if len(parts) > 1 else "", caveats.append
            ):
                reader.take(where, line)
    if not reader.events:
        raise InvalidInputError("", "expected events of Spark's, got an empty file")
    for what, count in (
        ("JobStart", reader.started),
        ("TaskEnd", reader.tasks),
        ("JobEnd", len(reader.jobs)),
    ):
        if not count:
            raise InvalidInputError(
                "",
                f"no SparkListener{what} that can be used in {counted(reader.events, 'event')}"
                f"{reader.why}: nothing to measure",
            )
    if not reader.ended:
        caveats.append("without an end: the application still runs, or the log was cut")
    if reader.unreadable:
        first = ", ".join(reader.unreadable[:3])
        caveats.append(
            f"{counted(len(reader.unreadable), 'line')} that cannot be read ({first}"
            f"{', …' if len(reader.unreadable) > 3 else ''}): what needs them is left out"
        )
    unknown = reader.used - set(reader.cores)
    if unknown:
        caveats.append(
            f"no SparkListenerExecutorAdded of {counted(len(unknown), 'executor')}: each is taken "
            "to run all its tasks at once"
        )
    used = reader.used & set(reader.cores)
    return Application(
        reader.name,
        reader.version,
        tuple(sorted(reader.jobs, key=lambda job: (job.start_ns, job.number))),
        len(reader.used),
        sum(reader.cores[executor] // reader.per_task for executor in used),
        tuple(caveats),
    )


def _group(properties: dict[str, Any] | None) -> int:
    """Return the number of iterations that a job says it runs; 0 if unknown."""
    own = (properties or {}).get(GROUP_PROPERTY)
    return 0 if own is None else _positive(own)


def _positive(text: object) -> int:
    """Return a property's number; 1 if it is none."""
    word = str(text)
    return max(int(word), 1) if word.isdecimal() and len(word) < 10 else 1
