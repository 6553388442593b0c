"""No docstring, comment or page uses a word of `docs/words.toml`."""

import re
import tomllib

import prose
import pytest
from prose import comments, docstrings, page_sentences, spoken

BANNED = tomllib.loads((prose.ROOT / "docs" / "words.toml").read_text(encoding="utf-8"))["banned"]


@pytest.mark.slow
def test_banned_words_are_not_used() -> None:
    """One test for all words: reading all texts takes longer than looking for a word."""
    written = (*docstrings(), *comments(), *page_sentences())
    texts = [(where, spoken(text)) for where, text in written]
    assert len(texts) > 5000
    found = []
    for row in BANNED:
        assert row["instead"], row
        assert row["why"], row
        word = re.compile(rf"\b(?:{row['word']})\b", re.IGNORECASE)
        found += [
            f"{where}: {match[0]}: {row['why']}; write: {row['instead']}"
            for where, text in texts
            for match in word.finditer(text)
        ]
    assert not found, "\n".join(found)


def test_words_are_looked_for_in_prose_alone() -> None:
    assert spoken("a `startup` and\n    optimizer : Optimizer\nthe rest") == "a   and\nthe rest"
