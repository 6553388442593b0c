"""Plans to start from: of the request at hand, of others of its problem, and mutations of both."""

import json
from functools import cache
from random import Random
from typing import Any

from planner.jsonio import PROBLEMS, reply
from planner.jsonio.workers import Limits, OverLimitError, Worker, WorkerFaultError
from tests.fuzzing.oddities import mutated
from tests.fuzzing.valid import MAKERS

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
                status, data = worker.ask(text.encode())
            except (OverLimitError, WorkerFaultError):
                continue
            plan = json.loads(data).get("plan")
            if status == 0 and plan is not None and len(data) < LENGTH:
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


def _served(message: bytes, *_: object) -> tuple[int, bytes]:
    one = reply(message)
    return one.exit_status, one.data
