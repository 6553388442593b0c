"""The table of what becomes of every field of a plan has all fields, and is true of each."""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from tests.docs.plan_fields import FAMILIES, fates, fields, followed_samples, samples

DOCS = Path(__file__).parents[2] / "docs"

LOOSELY = {"all lower_bound_ns", "all objective_ns"}
"""Checked, but as far as an answer holds the costs: those of bml and bigdl do not."""

ROW_BY_ROW = {
    "bml rounds",
    *(f"caramel groups[].{time}" for time in ("ready_ns", "start_ns", "end_ns")),
    *(f"iteration transfers[].{time}" for time in ("ready_ns", "start_ns", "end_ns")),
    *(
        f"iteration synchronisation.{way}program.failed.{what}"
        for way in ("", "others[].")
        for what in ("servers", "nics", "links", "switches")
    ),
}
"""Executed, but where transfers say it row by row, their order in time stays the same, or the same
part fails twice."""


TABLE = run_path(str(DOCS / "plan_table.py"))
ROWS = list(TABLE["rows"]())


def covers(name: str, path: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}[]"))


def row_of(family: str, path: str) -> Any:
    """Return the only row about a field."""
    about = [
        row
        for row in ROWS
        if row.family in (family, "all") and any(covers(name, path) for name in row.names)
    ]
    assert len(about) == 1, (family, path, about)
    return about[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_stands_in_one_row(family: str) -> None:
    for path in fields(family):
        assert row_of(family, path).word in ("executed", "checked", "reported", "not executable")


def test_every_row_is_about_fields_that_there_are() -> None:
    for row in ROWS:
        for family in FAMILIES if row.family == "all" else (row.family,):
            for name in row.names:
                known = any(covers(name, path) for path in fields(family))
                assert known or row.family == "all", (row.family, name)


def test_the_page_shows_every_row() -> None:
    lines = TABLE["page"]().splitlines()
    assert len(lines) - lines.index("| --- | --- | --- | --- |") - 1 == len(ROWS)
    for row in ROWS:
        assert any(row.how in line and all(name in line for name in row.names) for line in lines)


def test_a_field_that_is_not_in_the_table_is_noticed() -> None:
    with pytest.raises(AssertionError):
        row_of("caramel", "groups[].colour")


def values(answer: Any, path: str) -> str:
    """Return what an answer says in a field, wherever it does."""
    places = [answer]
    for name in path.replace("[]", ".[]").split("."):
        if name in ("[]", "*"):
            places = [one for place in places for one in place]
        else:
            places = [place[name] for place in places if name in place]
    return json.dumps(places)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_is_true(family: str) -> None:
    """Each field is changed in plans that have it, and what is followed is looked at."""
    for path in fields(family):
        row = row_of(family, path)
        what = fates(family, path)
        where = family, path, row.word, what
        assert what, where
        if row.word == "executed":
            assert "ignored" not in what or f"{family} {path}" in ROW_BY_ROW, where
            if "followed" not in what:  # by itself it contradicts others: plans that differ in it
                known = list(zip(samples(family), followed_samples(family), strict=True))
                assert any(
                    values(one, path) != values(other, path) and done != otherwise
                    for one, done in known
                    for other, otherwise in known
                ), where
        elif row.word == "checked":
            assert what == {"refused"} or f"{row.family} {path}" in LOOSELY, where
        else:
            assert "followed" not in what, where
            assert row.word == "reported" or "because" in row.how, where
