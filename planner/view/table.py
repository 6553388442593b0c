"""Plain-text tables."""

from collections.abc import Sequence

from planner.model.units import printable

_MAX_ROWS = 40


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table: the first column aligned left, the others right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = []
    for cells in (header, ["-" * width for width in widths], *rows):
        first, *others = (
            cell.ljust(width) if position == 0 else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def cut(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows, without the middle ones if there are too many."""
    if len(rows) <= _MAX_ROWS:
        return rows
    left_out = [f"… {len(rows) - _MAX_ROWS} more …"] + [""] * (len(rows[0]) - 1)
    return [*rows[: _MAX_ROWS // 2], left_out, *rows[-_MAX_ROWS // 2 :]]
