"""Makes the page that says what becomes of every field of a plan, from `plan_fields.toml`."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FIELDS = Path(__file__).parent / "plan_fields.toml"

_OPENING = """# Every field of a plan

What a plan decides is done, or the plan is refused:

- *executed*: `attach`, `collective_of` and the exports that carry it do so;
- *checked*: refused if it does not agree with other fields, or with the job;
- *reported*: for people, pictures and other programs; not followed;
- *not executable*: the same, of what a plan decides.

A field stands for all fields in it; `[]` is each element of a list, `*` each key of an object;
`all` are the plans that have it.

| plan of | field | | how |
| --- | --- | --- | --- |
"""


class Row(NamedTuple):
    """What becomes of some fields.

    Attributes
    ----------
    family : str
        The problem whose plans these are, or "all".
    names : tuple of str
        The fields.
    word : str
        "executed", "checked", "reported" or "not executable".
    how : str
        In words.
    """

    family: str
    names: tuple[str, ...]
    word: str
    how: str


def rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    for family, listed in tomllib.loads(FIELDS.read_text(encoding="utf-8")).items():
        for names, fate in listed.items():
            ((word, how),) = fate.items()
            yield Row(family, tuple(names.split(", ")), word.replace("_", " "), how)


def page() -> str:
    """Return the page."""
    return _OPENING + "".join(_line(row) for row in rows())


def _line(row: Row) -> str:
    family = row.family if row.family == "all" else f"`{row.family}`"
    names = ", ".join(f"`{name}`" for name in row.names)
    return f"| {family} | {names} | {row.word} | {row.how} |\n"
