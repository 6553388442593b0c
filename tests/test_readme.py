"""The README's examples run. What it shows as printed, `tests/docs/test_figures.py` compares."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_the_python_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    tuned, example = blocks("python")
    compile(tuned, "README.md", "exec")  # examples/with_tune.py runs these lines
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("status       optimal\n")


def test_the_json_example() -> None:
    (example,) = [block for block in blocks("sh") if block.startswith("echo")]
    request = re.search(r"'(\{.*\})'", example)
    assert request
    done = subprocess.run(
        [sys.executable, "-m", "planner", "solve"],
        input=request[1].encode(),
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["status"] == "optimal"


def test_the_measured_sentence_is_that_of_the_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (figures,) = re.findall(r"^\| executed, four emulated hosts.*", page, flags=re.MULTILINE)
    (said,) = re.findall(r"([\d.]+ to [\d.]+×) as fast as under DDP", README.replace("\n", " "))
    assert f"| {said}; " in figures
