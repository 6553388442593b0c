"""Generated pages: none is stale, when they are written, what those of measurements show."""

from pathlib import Path

import generated
import measured
import pytest
from results import FOLDER, load, markdown


def test_only_what_is_stale_is_written_and_old_pages_go(tmp_path: Path) -> None:
    generated.write(tmp_path, {"same": "1", "deeper/changed": "2", "old/page": "3"})
    same = (tmp_path / "same.md").stat().st_mtime_ns
    wanted = {"same": "1", "deeper/changed": "4", "missing": "5"}
    assert generated.stale(tmp_path, wanted) == ["deeper/changed", "missing", "old/page"]
    generated.write(tmp_path, wanted)
    assert generated.stale(tmp_path, wanted) == []
    assert (tmp_path / "same.md").stat().st_mtime_ns == same
    assert (tmp_path / "deeper" / "changed.md").read_text() == "4"


@pytest.mark.slow
def test_no_committed_page_is_stale() -> None:
    names = generated.stale(generated.FOLDER, generated.pages())
    assert not names, "`python docs/generated.py` writes these anew; commit them"


def test_every_results_file_has_a_page_with_all_its_tables() -> None:
    pages = measured.pages()
    names = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.json")}
    assert set(pages) == {"index", *names}
    for name in names:
        results = load(name)
        assert f"[{name}]({name}.md)" in pages["index"]
        assert results.command in pages[name]
        assert results.date in pages[name]
        for section in results.sections:
            assert all(markdown(table) in pages[name] for table in section.tables), name
