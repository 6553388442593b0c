"""Plain tables in Markdown, for what is not one paper's number beside one of ours."""

from collections.abc import Iterable, Sequence
from fractions import Fraction


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(value: float | Fraction | None) -> str:
    """Return a share in per cent; a dash if there is none."""
    return "–" if value is None else f"{100 * float(value):.1f} %"


def sections(parts: Iterable[tuple[str, str]]) -> str:
    """Return texts, each with a table below it."""
    return "\n\n".join(f"{text}\n\n{table}" for text, table in parts)
