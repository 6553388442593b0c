"""Tables in Markdown, as the benchmarks print them."""

from collections.abc import Iterable, Sequence


def row(cells: Iterable[object]) -> None:
    """Print a row, as soon as it is known."""
    print(_line(cells), flush=True)


def head(columns: Sequence[str]) -> None:
    """Print the headings of a table."""
    print(as_text(columns, ()), flush=True)


def rows_below(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table, row by row, and an empty line after it."""
    head(columns)
    for cells in rows:
        row(cells)
    print(flush=True)


def as_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table."""
    return "\n".join(map(_line, (columns, ["---"] * len(columns), *rows)))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
