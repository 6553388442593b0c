"""The page on testing: its methods are what it says, right and wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wrong_method_is_caught_and_the_right_one_passes() -> None:
    wrong, right, parametrised = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (told,) = re.findall(r"```text\n(.*?)\n```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    with pytest.raises(AssertionError) as caught:
        exec(wrong, names)
    kind, _, said = told.partition(": ")
    assert kind == "AssertionError"
    assert str(caught.value).splitlines()[0].partition(":")[0] == said.partition(":")[0]
    assert "Failing test case" in "".join(caught.value.__notes__)
    exec(right, names)
    exec(parametrised, names)
    names["test_every_method"]("greedy")
