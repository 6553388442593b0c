"""The pages stay short enough to be read, and each begins by saying what it is about."""

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = {"_build", "_generated"}
PAGES = sorted(
    page
    for page in chain(
        (ROOT / "README.md", ROOT / "CONTRIBUTING.md"), (ROOT / "docs").glob("**/*.md")
    )
    if not MADE & set(page.relative_to(ROOT).parts) and page.name != "changelog.md"
)


def words(text: str) -> int:
    """Count what has a letter or a digit."""
    return sum(any(character.isalnum() for character in word) for word in text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paragraph_comes_first(page: Path) -> None:
    title, opening, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert not re.match(r"[-*|#>!<]|```|\d+\. ", opening)
    assert words(opening) >= 10
