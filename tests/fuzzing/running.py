"""Asks, and says what is wrong with the answer."""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import msgspec
from jsonschema_rs import Draft202012Validator

import planner
from planner.jsonio import reply, schema
from planner.workers import Limits, OverLimitError, Worker, WorkerFaultError
from tests import schemas
from tests.fuzzing.oddities import by_schema, damaged, unwritten, written
from tests.fuzzing.valid import MAKERS, shipped

__all__ = ["Asked", "Finding", "findings", "requests"]

SLACK_S = 0.5
"""Processor time an answer may take beyond its time limit."""

ASKED_WHEN_LATE = 3
"""Times a late request is asked: what else a machine does can double processor time."""

CALLED = 5
"""One of so many requests is made as a library call too."""

CALL_MEMORY = 2
"""Times the memory of a request that a library call may take: a million transfers as plain values,
and as JSON text beside them, are more than 1 GiB."""


class Asked(NamedTuple):
    """One request: its number, as JSON text, as plain values, and a seed for what else is drawn."""

    number: int
    data: bytes
    value: Any
    dice: int


class Finding(NamedTuple):
    """What is wrong with the answer to a request: what kind of thing, and what exactly."""

    asked: Asked
    kind: str
    detail: str


def requests(problem: str, count: int, seed: int, start: int = 0) -> Iterator[Asked]:
    """Yield requests, each of which depends on its number and the seed alone."""
    for number in range(start, start + count):
        draw = Random(f"{problem} {seed} {number}")
        kind = draw.random()
        if kind < 0.15 and shipped(problem):
            request = json.loads(draw.choice(shipped(problem)))
            request.setdefault("time_limit_s", draw.choice([0.01, 0.1, 0.3]))
        elif kind < 0.25:
            request = by_schema(problem, schema(problem)["request"], draw)
            request.setdefault("time_limit_s", 0.1)
        else:
            request = MAKERS[problem](draw)
        for _ in range(draw.choice([0, 0, 0, 1, 1, 1, 1, 2, 3])):
            damaged(request, problem, draw)
        yield Asked(number, written(request, draw), request, draw.randrange(2**32))


def findings(
    problem: str, count: int, seed: int, limits: Limits, start: int = 0
) -> Iterator[Finding | None]:
    """Yield what is wrong with the answer to each request, None if nothing is."""
    roomy = limits.memory_bytes and CALL_MEMORY * limits.memory_bytes
    called = replace(limits, memory_bytes=roomy)
    with Worker(_served, limits) as worker, Worker(_served, called) as caller:
        for asked in requests(problem, count, seed, start):
            found = _judged(worker, b"J" + asked.data, asked, problem)
            if found is None and asked.dice % CALLED == 0:
                call = b"P" + json.dumps([problem, seed, asked.number]).encode()
                found = _judged(caller, call, asked, problem)
            yield None if found is None else Finding(asked, *found)


def _judged(worker: Worker, message: bytes, asked: Asked, problem: str) -> tuple[str, str] | None:
    where = "" if message.startswith(b"J") else "library call: "
    try:
        status, data = worker.ask(message)
    except OverLimitError as error:
        seconds, size = worker.usage
        return "limit", f"{where}{error.limit}, {seconds:.1f} s, {size / 2**20:.0f} MiB"
    except WorkerFaultError as error:
        return "death", f"{where}{error}"
    if status == 1:
        return "internal", where + data.decode()
    kind = "error" if data.startswith(b'{"error"') else "answer"
    wrong = _against_schema(data, schemas.validator(problem, kind))
    if wrong:
        return "schema", f"{where}{wrong}"
    limit = asked.value.get("time_limit_s")
    if kind == "answer" and limit is not None:
        used = [worker.usage.seconds]
        while min(used) > limit + SLACK_S and len(used) < ASKED_WHEN_LATE:
            worker.ask(message)
            used.append(worker.usage.seconds)
        if min(used) > limit + SLACK_S:
            return "time", f"{where}{min(used):.2f} s of {limit} s"
    return None


def _against_schema(data: bytes, validator: Draft202012Validator) -> str:
    """Return how an answer breaks its schema, the outermost of its faults."""
    faults = list(validator.iter_errors(json.loads(data)))
    if not faults:
        return ""
    wrong = min(faults, key=lambda fault: len(fault.instance_path))
    return f"{'.'.join(map(str, wrong.instance_path))}: {wrong.message[:200]}"


def _served(message: bytes, *_: object) -> tuple[int, bytes]:
    if message.startswith(b"J"):
        one = reply(message[1:])
        if isinstance(one.fault, MemoryError):
            raise one.fault
        return one.exit_status, one.data
    problem, seed, number = json.loads(message[1:])
    (asked,) = requests(problem, 1, seed, number)
    try:
        answer = planner.solve(unwritten(asked.value, Random(asked.dice)))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - any is a finding
        return 1, repr(error).encode()
    return 0, msgspec.json.encode(answer)
