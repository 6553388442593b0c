"""What a page of the documentation shows of a script's tables."""

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"


def missing(report: str, page: str) -> list[str]:
    """Return the tables of a report that a page does not hold as they are."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = re.findall(r"(?:^\|.*\n?)+", report, flags=re.MULTILINE)
    assert found
    return [table for table in found if table.strip() not in text]
