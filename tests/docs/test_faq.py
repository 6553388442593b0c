"""What the questions and answers quote is what the commands beside them print."""

import re
from pathlib import Path

import pytest

from planner.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))


def printed(
    section: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.chdir(ROOT)
    command = re.search(r"```sh\nplanner (.*?)\n```", SECTIONS[section], flags=re.DOTALL)
    assert command
    main(command[1].split())
    output = capsys.readouterr()
    return output.out + output.err


def test_bucket_sizes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    section = "Which bucket size should I use?"
    rows = {
        line.split()[0]: " ".join(line.split())
        for line in printed(section, monkeypatch, capsys).splitlines()
        if line.strip()
    }
    text = " ".join(SECTIONS[section].split())
    for method, shown in (
        ("ddp", r"DDP's (\d+) buckets take ([\d.]+ s)"),
        ("layer_by_layer", r"\((\d+) of them\) ([\d.]+ s)"),
        ("search", r"best plan, (\d+) transfers of other sizes in another order, ([\d.]+ s)"),
    ):
        quoted = re.search(shown, text)
        assert quoted, method
        assert rows[method].startswith(f"{method} {quoted[1]} {quoted[2]} ")


def test_a_cap_that_no_plan_keeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = printed("Why was my cap not honoured?", monkeypatch, capsys)
    assert "infeasible" in output
    assert "the smallest cap that fits every layer" in output
