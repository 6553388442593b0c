"""Requests that are asked as others ask them, and those that tests begin with."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import planner
from planner.jsonio import reply
from tests import schemas
from tests.cli.printed import check_answer

Request = dict[str, Any]

ROOT = Path(__file__).parents[2]


DEPTHS = {"4": {"startup_ns": 40, "ns_per_byte": 0.04}}
CARAMEL: dict[str, Any] = {
    "problem": "caramel",
    "ops": [
        {"name": "f1", "ns": 40, "pass": "forward"},
        {"name": "f2", "ns": 50, "pass": "forward", "after": ["f1"]},
        {"name": "b2", "ns": 60, "pass": "backward", "after": ["f2"]},
        {"name": "b1", "ns": 70, "pass": "backward", "after": ["b2"]},
    ],
    "parameters": [
        {"name": "one.weight", "bytes": 400, "updated_by": "b1", "read_by": "f1"},
        {"name": "one.bias", "bytes": 40, "updated_by": "b1", "read_by": "f1"},
        {"name": "two.weight", "bytes": 4000, "updated_by": "b2", "read_by": "f2"},
    ],
    "network": {"startup_ns": 30, "ns_per_byte": 0.05, "depths": DEPTHS},
    "element_bytes": 4,
}


@cache
def examples(page: str) -> dict[str, tuple[str, ...]]:
    """Return the JSON blocks of a page by the title of their section, up to a colon."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## ([^:\n]*)[^\n]*\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return {
        title: tuple(re.findall(r"```json\n(.*?)```", body, re.DOTALL)) for title, body in sections
    }


def contract(problem: str) -> Request:
    """Return the request that the page on JSON shows for a problem."""
    request: Request = json.loads(examples("json")[f"`{problem}`"][0])
    return request


def ask(request: Any) -> dict[str, Any]:
    """Ask as JSON text."""
    answer: dict[str, Any] = json.loads(reply(json.dumps(request).encode()).data)
    return answer


def ask_both(request: Any) -> dict[str, Any]:
    """Ask as JSON text; the library call must answer the same."""
    answer, called = ask(request), planner.solve(request)
    if answer.get("status") == "time_limit":  # how far a search came is the clock's to say
        assert called.keys() == answer.keys()
    else:
        assert told(json.loads(json.dumps(called))) == told(answer)
    return answer


def told(answer: dict[str, Any], *others: str) -> dict[str, Any]:
    """Return an answer without what differs from run to run, and without other fields."""
    return {name: value for name, value in answer.items() if name not in {"runtime_s", *others}}


def error(request: Any) -> tuple[str, str]:
    """Return the path and the message of the error that a request is answered with."""
    answer = ask_both(request)
    assert list(answer) == ["error"], answer
    assert answer["error"]["code"] == "invalid_request"
    return answer["error"]["path"], answer["error"]["message"]


def answered(
    request: Request, asking: Callable[[Any], dict[str, Any]] = ask, **more: Any
) -> dict[str, Any]:
    """Ask, and hold the request and its answer against their schemas."""
    asked = {**request, **more}
    schemas.validate(asked, asked["problem"], "request")
    answer = asking(asked)
    assert "error" not in answer, answer
    check_answer(answer)
    return answer


Steps = tuple[str | int, ...]


def patched(document: Any, changes: dict[str, Any]) -> Any:
    """Return a document with values at places such as ``a.b[0].c``; `...` leaves one out."""
    new = deepcopy(document)
    for place, value in changes.items():
        put(new, steps_of(place), deepcopy(value))
    return new


def put(document: Any, steps: Steps, value: Any) -> None:
    """Set the value at a place, or leave it out if the value is `...`."""
    *outer, last = steps
    for step in outer:
        document = document[step]
    if value is ...:
        del document[last]
    else:
        document[last] = value


def steps_of(place: str) -> Steps:
    """Return the keys and numbers that a place consists of."""
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", place)
    return tuple(name or int(number) for name, number in found)


def text_of(steps: Steps) -> str:
    """Return a place as errors name it."""
    text = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps)
    return text.removeprefix(".")


def places(value: Any, steps: Steps = (), most: int | None = None) -> Iterator[Steps]:
    """Yield the place of everything in a document; of long lists the first `most` rows."""
    if steps:
        yield steps
    items = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value[:most]) if isinstance(value, list) else items:
        yield from places(item, (*steps, key), most)


NIC = {"nics": [[[0, 1], 0]]}
STAGES: list[dict[str, Any]] = [
    {"name": "gradients", "tasks": 256},
    {"name": "aggregation", "tasks": 64, "after": ["gradients"]},
]
HERE = Path(__file__).parent
BASES: dict[str, Request] = {
    **json.loads((HERE / "requests.json").read_text("utf-8")),
    **{problem: contract(problem) for problem in ("bml", "bigdl", "drizzle", "yan")},
    "one": contract("caramel"),
    "idle": patched(contract("caramel"), {"ops[0].ns": 0, "ops[1].ns": 0}),
    "target": {**CARAMEL, "target": "ddp"},
    "untargeted": CARAMEL,
}
ITERATION, CHAIN, CONTRACT = BASES["iteration"], BASES["caramel"], BASES["one"]
SMALL = {
    **BASES["yan"],
    "machines": 3,
    "layers": [
        {"name": "a", "kind": "full", "neurons": 4, "connections": 12, "weights": 12},
        {"name": "b", "kind": "full", "neurons": 2, "connections": 8, "weights": 10},
    ],
}
CHOICES = [
    {"partitions": 1, "threads": 1, "copies": 2},
    {"partitions": 2, "threads": 2, "copies": 1},
]
TRIPLE = {"parameter_servers": 1, "replicas": 1, "workers_per_replica": 2}
BASES |= {
    "small": SMALL,
    "fixed": {**SMALL, "fixed": [TRIPLE, {**TRIPLE, "layers": CHOICES}]},
    "targeted": {**ITERATION, "target": "ddp"},
}


def table(path: Path, bases: Mapping[str, Request] = BASES) -> Iterator[tuple[Request, Any]]:
    """Yield changed requests, and what a table says of each.

    The table has, by the name of the request, rows of what is changed, "-" leaving a field out, and
    of what is expected; a text between rows is a remark.
    """
    for base, rows in json.loads(path.read_text("utf-8")).items():
        for change, *expected in (row for row in rows if not isinstance(row, str)):
            new = {place: ... if value == "-" else value for place, value in change.items()}
            yield patched(bases[base], new), expected
