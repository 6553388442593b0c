"""The requests that tests of requests and answers change, by name, and tables of changes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.jsonio.asking import Request, contract
from tests.jsonio.patches import patched
from tests.test_programs import CARAMEL

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
ITERATION = BASES["iteration"]
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
