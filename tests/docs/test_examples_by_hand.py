"""The examples by hand of the pages: the tables hold what the library answers to their requests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner

DOCS = Path(__file__).parents[2] / "docs"
SECTION = re.compile(r"^## An example by hand\n(.*?)^## ", re.DOTALL | re.MULTILINE)


def example(page: str) -> tuple[dict[str, Any], list[list[list[str]]]]:
    """Return the request of a page's example, and the rows of its tables."""
    found = SECTION.search((DOCS / page).read_text(encoding="utf-8"))
    assert found
    (request,) = re.findall(r"```json\n(.*?)```", found[1], re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", found[1], re.MULTILINE)
    rows = [[line.strip("|\n").split("|") for line in table.splitlines()[2:]] for table in tables]
    return json.loads(request), [[[cell.strip() for cell in row] for row in one] for one in rows]


def spans(text: str) -> list[tuple[int, int]]:
    """Return the intervals in a cell, such as 5–10."""
    return [(int(a), int(b)) for a, b in re.findall(r"(\d+)–(\d+)", text)]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_the_iteration_of_fsdp_adds_up() -> None:
    request, (steps, moments) = example("fsdp.md")
    answer: dict[str, Any] = planner.solve(request)
    assert (answer["status"], answer["objective_ns"], answer["exposed_ns"]) == ("optimal", 58, 20)
    for row, step in zip(steps, answer["steps"], strict=True):
        assert row[1] == f"{step['unit']}, {step['phase']}"
        shown = [int(row[place]) for place in (2, 4, 5)]
        assert shown == [step[name] for name in ("ready_ns", "start_ns", "end_ns")]
    for column, name in ((3, "gathers"), (6, "reduces")):
        sent = {one["step"]: one for one in answer[name]}
        for number, row in enumerate(steps):
            assert ("issued" in row[column]) == (number in sent)
            if number in sent:
                one = sent[number]
                assert f"issued at {one['issued_ns']}," in row[column]
                assert spans(row[column]) == [(one["start_ns"], one["end_ns"])]
    levels = {f"{one['step']}, `{one['stage']}`": one for one in answer["levels"]}
    for moment, *parts, whole in moments:
        level = levels[moment]
        held = [level[name] for name in ("parameters", "gradients", "activations", "buffers")]
        assert [sum(numbers(part)) for part in parts] == held
        assert int(whole) == sum(held) + answer["state_bytes"]
    assert max(int(row[-1]) for row in moments) == answer["peak_bytes"]
    for memory_bytes, expected in ((49, 48), (43, None)):
        other = planner.solve({**request, "memory_bytes": memory_bytes})
        assert other["objective_ns"] == expected


@pytest.mark.parametrize(
    ("change", "makespan", "exposed", "table"),
    [
        ({"method": "own_order"}, 33, 24, None),
        ({"method": "greedy"}, 26, 17, 0),
        ({}, 22, 13, 1),
        ({"memory_limit_bytes": 42}, 26, 17, None),
    ],
)
def test_overlap(change: dict[str, Any], makespan: int, exposed: int, table: int | None) -> None:
    request, tables = example("overlap.md")
    answer: dict[str, Any] = planner.solve({**request, **change})
    assert (answer["objective_ns"], answer["exposed_ns"]) == (makespan, exposed)
    if table is not None:
        rows = tables[table]
        sent = [(one["start_ns"], one["end_ns"]) for one in answer["transfers"]]
        assert [span for row in rows for span in spans(row[2])] == sent
        assert spans(rows[-1][1])[-1][1] == makespan
        assert max(numbers(row[3])[-1] for row in rows) == answer["peak_bytes"]
