"""The page on testing: its methods are what it says, right and wrong."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.pages
def test_the_wrong_method_is_caught_and_the_right_one_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, right, parametrised = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (told,) = re.findall(r"```text\n(.*?)\n```", PAGE, flags=re.DOTALL)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "halves_at_first.py").write_text(wrong)
    with pytest.raises(AssertionError) as caught:
        import_module("halves_at_first")
    said = f"AssertionError: {caught.value}"
    assert said[:50] == told[:50]  # the end depends on what was drawn
    assert told.splitlines()[1] in "".join(caught.value.__notes__)
    defined = wrong.rpartition("check_method(")[0]
    (tmp_path / "halves_mended.py").write_text(f"{defined}\n{right}\n{parametrised}")
    import_module("halves_mended").test_every_method("greedy")
