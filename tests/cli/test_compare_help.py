"""The help of ``planner compare``: every problem, with an example that runs."""

import re
import shlex
from pathlib import Path

import pytest

from planner.cli import main
from planner.cli.compare_options import OPTIONS, PROFILED
from planner.jsonio.interfaces import families

FAMILIES = families()

ROOT = Path(__file__).parents[2]


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def options_of(text: str) -> set[str]:
    """Return the options that a help lists, which begin a line."""
    return set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[\w-]+)", text, flags=re.MULTILINE))


def test_the_help_names_every_problem_its_options_and_its_methods(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = helped(capsys, "--help")
    own = {option.name for family in PROFILED.values() for option in family.options}
    assert {*own, *OPTIONS} <= options_of(text)
    for name, family in FAMILIES.items():
        about = text.partition(f"\n  {name}: {family.asks}\n")[2].partition("\n  planner")[0]
        methods = about.partition(f"    {family.example}\n")[0]
        assert re.split(r",\s+", methods.strip()) == list(family.names())
    assert "--ignore-memory       yan, fsdp, iteration: " in text


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_examples_run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(FAMILIES[name].example)
    assert words.pop(0) == "planner"
    assert main([*words, "--time-limit", "0.5"]) == 0
    assert "\n-----" in capsys.readouterr().out


def test_a_problem_that_nobody_knows_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "x.json", "--problem", "nobody"])
    assert ended.value.code == 2
    assert "invalid choice: 'nobody'" in capsys.readouterr().err
