"""Requests that mean nothing, though each field by itself could: where, and what was expected.

`refused.json` holds the path of each error and a part of its message. What a schema says of single
fields is held by `test_every_problem`.
"""

import time
from typing import Any

import pytest

from tests.jsonio.asking import Request, error
from tests.jsonio.patches import patched
from tests.jsonio.requests import BASES, table


@pytest.mark.parametrize(("request_", "expected"), list(table("refused")), ids=str)
def test_what_fields_say_together(request_: Request, expected: list[str]) -> None:
    path, message = error(request_)
    assert path == expected[0]
    assert expected[1] in message


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2, "k": 24, "gradient_bytes": 3, "schedule": "all"},
        {"n": 2**20, "k": 2, "schedule": {"server": [0, 0]}},
        {"n": 2, "k": 40, "schedule": "all", "gradient_bytes": ..., "layer_bytes": [0] * 9 + [3]},
    ],
)
def test_more_transfers_than_are_looked_at_are_refused_before_there_is_a_plan(
    change: dict[str, Any],
) -> None:
    begin = time.process_time()
    path, message = error(patched(BASES["bml"], change))
    assert time.process_time() - begin < 1
    assert path == "schedule"
    assert "at most 1000000 transfers" in message
