"""Asks, also with plans to start from, and says what is wrong with the answer."""

import json
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

import planner
from planner.jsonio import PROBLEMS, decode_answer, reply
from planner.jsonio.workers import Limits, OverLimitError, Worker, WorkerFaultError
from planner.model.errors import InvalidInputError
from tests import schemas
from tests.fuzzing.oddities import (
    by_schema,
    damaged,
    enriched,
    mutated,
    unwritten,
    whole,
    written,
)
from tests.fuzzing.valid import MAKERS, limit, shipped
from tests.jsonio.requests import told

MADE = 16
"""Requests of each problem whose plans are kept."""

LENGTH = 4000
"""Bytes of a request whose plan is kept: a large one would slow every request with its plan."""


@cache
def planned(problem: str) -> tuple[tuple[str, str], ...]:
    """Return small requests with a plan of each, as JSON text."""
    found = []
    with Worker(_served, Limits(seconds=20)) as worker:  # its first request loads all it needs
        for number in range(MADE):
            draw = Random(f"planned {problem} {number}")
            request = {**MAKERS[problem](draw), "with_plan": True, "time_limit_s": 0.02}
            text = json.dumps(request)
            if len(text) > LENGTH:
                continue
            try:
                status, data = worker.ask(b"J" + text.encode())
            except (OverLimitError, WorkerFaultError):
                continue
            plan = None if status else json.loads(data.partition(b" ")[2]).get("plan")
            if plan is not None and len(data) < LENGTH:
                found.append((text, json.dumps(plan)))
    return tuple(found)


def start_plan(problem: str, draw: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a request, and a plan that is its own or another's, changed in every second case."""
    request, plan = map(json.loads, draw.choice(planned(problem)))
    kind = draw.random()
    if kind < 0.45:
        plan = json.loads(draw.choice(planned(problem))[1])
    elif kind < 0.5:
        plan = json.loads(draw.choice(planned(draw.choice(list(PROBLEMS))))[1])
    for _ in range(draw.choice([0, 0, 1, 1, 2])):
        mutated(plan["plan"], draw)
    return request, plan


class Fault(NamedTuple):
    """What kind of thing is wrong, what exactly, and where: faults alike in this are one."""

    kind: str
    detail: str
    where: str


def wrong(problem: str, data: bytes, *, thorough: bool) -> Fault | None:
    """Return what is wrong with an answer or an error by itself, None if nothing is.

    `thorough` says whether to read it again too.
    """
    error = data.startswith(b'{"error"')
    value = json.loads(data)
    faults = list(schemas.validator(problem, "error" if error else "answer").iter_errors(value))
    if faults:
        first = min(faults, key=lambda fault: len(fault.instance_path))
        place = ".".join("" if isinstance(one, int) else one for one in first.instance_path)
        return Fault("schema", f"{place}: {first.message[:200]}", place)
    if error:
        return None
    contradiction = _contradiction(value)
    if contradiction:
        return Fault("contradiction", contradiction, contradiction.partition(" (")[0])
    if thorough and value["objective_ns"] is not None and len(data) < 2**18:
        try:
            decode_answer(data)
        except InvalidInputError as fault:
            return Fault("read again", str(fault)[:300], fault.path.partition("[")[0])
    return None


def _contradiction(answer: dict[str, Any]) -> str:
    status, objective, bound = answer["status"], answer["objective_ns"], answer["lower_bound_ns"]
    if objective is not None and bound is not None and bound > objective:
        return f"bound above objective ({bound}, {objective})"
    if (status == "optimal") != (objective is not None and objective == bound):
        return f"{status} ({objective=}, {bound=})"
    if status == "infeasible" and (objective is not None or not answer.get("reason", " ")):
        return "infeasible without a reason, or with a plan"
    prospect = answer.get("prospect")
    if prospect and prospect["lower_bound_ns"] > prospect["value_ns"] * (1 + 1e-12):
        return f"bound above the prospect ({prospect})"
    return ""


SLACK_S = 1.0
"""Processor time an answer may take beyond its time limit, or after it was cancelled."""

ASKED_WHEN_LATE = 3
"""Times a late request is asked: what else a machine does can double processor time."""

CALLED = 5
"""One of so many requests is made as a library call too; as many are asked and read again."""

CALL_MEMORY = 2
"""Times the memory of a request that a library call may take: a million transfers as plain values,
and as JSON text beside them, are more than 1 GiB."""


SLOW = "slow"
"""Kind of what takes very long without a limit: told, but no fault."""


class Asked(NamedTuple):
    """One request: its number, as JSON text, as plain values, and a seed for what else is drawn.

    With `cancel_s` it is cancelled so many seconds after it was asked.
    """

    number: int
    data: bytes
    value: Any
    dice: int
    cancel_s: float | None = None

    @property
    def end_s(self) -> float | None:
        """When its search has to end, if that is said."""
        if self.cancel_s is not None:
            return self.cancel_s
        given = self.value.get("time_limit_s") if isinstance(self.value, dict) else None
        if isinstance(given, bool) or not isinstance(given, int | float):
            return None
        return given if 0 < given <= 1 else None


class Finding(NamedTuple):
    """What is wrong with the answer to a request."""

    asked: Asked
    fault: Fault


def requests(problem: str, count: int, seed: int, start: int = 0) -> Iterator[Asked]:
    """Yield requests, each of which depends on its number, the seed and kept plans alone."""
    for number in range(start, start + count):
        draw = Random(f"{problem} {seed} {number}")
        kind = draw.random()
        if kind < 0.1 and shipped(problem):
            request = json.loads(draw.choice(shipped(problem)))
            request.setdefault("time_limit_s", draw.choice([limit(draw), 0.5]))
        elif kind < 0.13:
            request = by_schema(problem, whole(problem), draw)
            request.setdefault("time_limit_s", limit(draw))
        else:
            request = MAKERS[problem](draw)
        if draw.random() < 0.6:
            given = enriched(request, problem, draw)
            if "start_plan" in given and planned(problem):
                another, request["start_plan"] = start_plan(problem, draw)
                if draw.random() < 0.7:
                    request = {**another, "start_plan": request["start_plan"]}
                if draw.random() < 0.5:
                    request["method"] = "replan"
                if draw.random() < 0.5:
                    request["time_limit_s"] = limit(draw)
        cancel_s = None
        if draw.random() < 0.08:
            request.pop("time_limit_s", None)
            cancel_s = draw.choice([0.0, 0.001, 0.1 * draw.random()])
        elif draw.random() < 0.1:
            request["time_limit_s"] = limit(draw)
        for _ in range(draw.choice([0] * 8 + [1, 1, 2, 3])):
            damaged(request, problem, draw)
        given_s = request.get("time_limit_s")
        if type(given_s) in (int, float) and 1 < given_s <= 10**9:  # nobody waits for it
            request["time_limit_s"] = limit(draw)
        yield Asked(number, written(request, draw), request, draw.randrange(2**32), cancel_s)


def findings(
    problem: str, count: int, seed: int, limits: Limits, start: int = 0
) -> Iterator[Finding]:
    """Yield what is wrong with answers to requests, which are asked in processes of their own."""
    planned(problem)  # before processes are forked, which need them too
    roomy = replace(limits, memory_bytes=limits.memory_bytes and CALL_MEMORY * limits.memory_bytes)
    with Worker(_served, limits) as worker, Worker(_served, roomy) as caller:
        for asked in requests(problem, count, seed, start):
            fault = _fault(problem, worker, asked, b"J" + asked.data)
            if fault is None and asked.dice % CALLED == 0 and asked.cancel_s is None:
                call = b"P" + json.dumps([problem, seed, asked.number]).encode()
                fault = _fault(problem, caller, asked, call)
            if fault is not None:
                yield Finding(asked, fault)


def _fault(problem: str, worker: Worker, asked: Asked, message: bytes) -> Fault | None:
    """Return what is wrong with the answer to a message."""

    def ask() -> tuple[int, float, bytes]:
        """Return the exit status, the processor time and the answer."""
        cancel = None
        if asked.cancel_s is not None:
            over = time.monotonic() + asked.cancel_s
            cancel = SimpleNamespace(is_set=lambda: time.monotonic() >= over)
        status, answer = worker.ask(message, None, cancel)
        used, _, data = answer.partition(b" ")
        return status, float(used), data

    end = asked.end_s
    try:
        status, used_s, data = ask()
        if status == 1:
            detail = data.decode()
            return Fault("internal", detail, detail.rpartition("\n")[2])
        answered = not data.startswith(b'{"error"')
        if answered and end is not None:
            for _ in range(ASKED_WHEN_LATE - 1):
                if used_s > end + SLACK_S:
                    used_s = min(used_s, ask()[1])
            if used_s > end + SLACK_S:
                return Fault("time", f"{used_s:.2f} s of {end} s", "")
        again = asked.dice % CALLED == 1
        found = wrong(problem, data, thorough=again)
        if found is None and answered and again and end is None:
            _, _, other = ask()
            if told(json.loads(other)) != told(json.loads(data)):
                found = Fault("another answer", other[:300].decode(), "")
    except OverLimitError as error:
        kinds = {"seconds": SLOW if end is None else "time"}
        return Fault(kinds.get(error.limit, error.limit), f"{error.limit}, limit {end}", "")
    except WorkerFaultError as error:
        return Fault("death", str(error), str(error))
    return found


def _served(message: bytes, *others: Any) -> tuple[int, bytes]:
    """Answer a request as JSON text, or as a library call; the time it took goes before."""
    before = sum(os.times()[:4])
    status, data = _answered(message, *others)
    return status, b"%r %s" % (sum(os.times()[:4]) - before, data)


def _answered(message: bytes, *others: Any) -> tuple[int, bytes]:
    if message.startswith(b"J"):
        one = reply(message[1:], others[1] if len(others) > 1 else None)
        if isinstance(one.fault, MemoryError):
            raise one.fault
        return one.exit_status, _place(one.fault) if one.fault else one.data
    problem, seed, number = json.loads(message[1:])
    (asked,) = requests(problem, 1, seed, number)
    try:
        answer = planner.solve(unwritten(asked.value, Random(asked.dice)))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - any is a finding
        return 1, _place(error)
    return 0, msgspec.json.encode(answer)


def _place(fault: Exception) -> bytes:
    """Return a fault, and in a line of its own where in planner it was raised."""
    own = [one for one in traceback.extract_tb(fault.__traceback__) if "/planner/" in one.filename]
    places = [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in own[-3:]]
    return f"{fault!r:.300}\n{type(fault).__name__} {' > '.join(places)}".encode()
