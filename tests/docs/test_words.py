"""No docstring, comment or page uses a word of `docs/words.toml`."""

import re
import tomllib

import prose
import pytest
from prose import comments, docstrings, page_sentences, spoken

BANNED = tomllib.loads((prose.ROOT / "docs" / "words.toml").read_text(encoding="utf-8"))["banned"]


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    written = (*docstrings(), *comments(), *page_sentences())
    return [(where, spoken(text)) for where, text in written]


@pytest.mark.parametrize("row", BANNED, ids=lambda row: row["word"])
def test_banned_words_are_not_used(row: dict[str, str], texts: list[tuple[str, str]]) -> None:
    assert row["instead"]
    assert row["why"]
    word = re.compile(rf"\b(?:{row['word']})\b", re.IGNORECASE)
    found = [f"{where}: {match[0]}" for where, text in texts for match in word.finditer(text)]
    assert not found, f"{row['why']}; write: {row['instead']}"


def test_words_are_looked_for_in_prose_alone(texts: list[tuple[str, str]]) -> None:
    assert len(texts) > 5000
    assert spoken("a `startup` and\n    optimizer : Optimizer\nthe rest") == "a   and\nthe rest"
