"""Requests that are asked as others ask them, and those that tests begin with."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import planner
from planner.jsonio import reply
from tests import schemas

Request = dict[str, Any]

ROOT = Path(__file__).parents[2]


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
    """Ask as JSON text; the library call must answer the same."""
    answer: dict[str, Any] = json.loads(reply(json.dumps(request).encode()).data)
    if isinstance(request, dict):
        called = planner.solve(request)
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
    answer = ask(request)
    assert list(answer) == ["error"], answer
    assert answer["error"]["code"] == "invalid_request"
    return answer["error"]["path"], answer["error"]["message"]


def answered(request: Request, **more: Any) -> dict[str, Any]:
    """Ask, and hold the request and its answer against their schemas."""
    asked = {**request, **more}
    schemas.validate(asked, asked["problem"], "request")
    answer = ask(asked)
    assert "error" not in answer, answer
    schemas.validate(answer, asked["problem"], "answer")
    return answer
