"""Tables that hold what a paper prints against what the model gives.

The scripts beside this file remake one figure each. They share two tables in Markdown: `numbers`
for what a paper prints as a number, `claims` for what it only says.

    print(numbers([Row("VGG19, 30 nodes", paper=23, ours=22.5, unit="×")]))
    print(claims([Claim("overlap is zero", ours="0 %", holds=True)]))

A value in per cent differs by points, any other by per cent of the paper's value. A value that
constants were fitted to is no result, and its row says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from grids import grid


@dataclass(frozen=True, slots=True)
class Row:
    """One number.

    Attributes
    ----------
    name : str
        What it is the number of.
    paper : float or None
        What the paper prints; None if it prints nothing to compare with.
    ours : float or None
        What the model gives, in the same unit; None if it gives nothing.
    unit : str
        Printed behind both: "×", "s", …. With "%" the values are in per cent: 68 is 68 %.
    decimals : int
        Digits behind the point of our value, and of the paper's where it is no whole number.
    limit : str
        "≥" or "≤" if the paper prints only a limit; then the difference is 0 where it is kept.
    fitted : bool
        Whether a constant was fitted to this very number.
    """

    name: str
    paper: float | None
    ours: float | None
    unit: str = ""
    decimals: int = 1
    limit: str = ""
    fitted: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of a paper that has no number.

    Attributes
    ----------
    says : str
        What the paper says.
    ours : str
        What the model gives.
    holds : bool
        Whether the sentence is true of the model.
    """

    says: str
    ours: str
    holds: bool


def difference(row: Row) -> float | None:
    """Return ours - paper: in points for values in per cent, otherwise in per cent of the paper's.

    None where either value is missing, or the paper's is 0 and not in per cent. 0 where the paper
    prints a limit that our value keeps.
    """
    if row.paper is None or row.ours is None:
        return None
    if row.limit and (row.ours >= row.paper if row.limit == "≥" else row.ours <= row.paper):
        return 0.0
    if row.unit == "%":
        return row.ours - row.paper
    return 100 * (row.ours - row.paper) / row.paper if row.paper else None


def numbers(rows: Iterable[Row]) -> str:
    """Return the table of `rows` in Markdown."""
    cells = ((row.name, _paper(row), _ours(row), _difference(row)) for row in rows)
    return grid(("", "paper", "ours", "difference"), cells)


def claims(sentences: Iterable[Claim]) -> str:
    """Return the table of `sentences` in Markdown."""
    cells = (
        (sentence.says, sentence.ours, "holds" if sentence.holds else "does not hold")
        for sentence in sentences
    )
    return grid(("the paper says", "ours", ""), cells)


def _paper(row: Row) -> str:
    if row.paper is None:
        return "not printed"
    decimals = 0 if row.paper == int(row.paper) else row.decimals
    return f"{row.limit} {row.paper:,.{decimals}f}{_unit(row)}".lstrip()


def _ours(row: Row) -> str:
    return "none" if row.ours is None else f"{row.ours:,.{row.decimals}f}{_unit(row)}"


def _unit(row: Row) -> str:
    return row.unit if row.unit in {"", "×"} else f" {row.unit}"


def _difference(row: Row) -> str:
    value = difference(row)
    if value is None:
        return ""
    if row.fitted:
        return "fitted"
    if row.limit and value == 0:
        return "kept"
    return f"{value:+.1f} {'points' if row.unit == '%' else '%'}"
