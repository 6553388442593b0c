"""Two versions compared by their answers: what is asked, and that a difference is told."""

from pathlib import Path

import pytest
from same_answers import answers, differences, documented, main, requests_in

ROOT = Path(__file__).parents[1]


def test_requests_are_found_in_pages() -> None:
    text = 'echo \'{"problem": "x", "n": [1]}\' | cat {"problem": "y", "status": "optimal"}'
    text += ' {"problem": …}'
    assert list(requests_in(text)) == [{"problem": "x", "n": [1]}]


def test_all_families_are_asked_and_answer() -> None:
    named = [document for document in documented(ROOT, ()) if document[1]["problem"] != "iteration"]
    families = {"ibatch", "caramel", "yan", "bml", "bigdl", "drizzle", "fsdp", "overlap"}
    assert {one["problem"] for _, one in named} == families
    small = [one for _, one in named if one["problem"] in ("ibatch", "drizzle")]
    found = list(answers(ROOT, small))
    assert len(found) == len(small)
    assert all("status" in one for one in found)


def test_differences_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert differences({"a": 1, "runtime_s": 1}, {"a": 1, "runtime_s": 2}) == []
    assert differences({"a": 1}, {"b": 1}) == ["a"]
    for folder, objective in (("old", 1), ("new", 2)):
        (tmp_path / folder / "planner").mkdir(parents=True)
        code = f"def solve(request): return {{'objective_ns': {objective}}}"
        (tmp_path / folder / "planner" / "__init__.py").write_text(code)
        (tmp_path / folder / "README.md").write_text('{"problem": "x"}')
    assert main([str(tmp_path / "old"), str(tmp_path / "old")]) == 0
    assert main([str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    assert "objective_ns: 1 → 2" in capsys.readouterr().out
