"""The help of ``planner compare``: short, of one problem at a time, with examples that run."""

import re
import shlex
from itertools import chain
from pathlib import Path

import pytest

from planner.cli import main
from planner.cli.compare import PROFILED
from planner.cli.compare_options import OPTIONS
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


OWN = {name: {option.name for option in family.options} for name, family in PROFILED.items()}


def test_the_short_help_names_every_problem_and_no_method(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = helped(capsys, "--help")
    assert len(text.splitlines()) < 60
    for name, family in FAMILIES.items():
        assert f"  {name}: {family.asks}\n    {family.example}\n" in text
    assert not options_of(text) & set(chain(*OWN.values(), OPTIONS))
    assert "greedy_backward" not in text


@pytest.mark.parametrize("name", PROFILED)
@pytest.mark.parametrize("form", ["{} --help", "--help {}", "x.json {} -h", "-h {}"])
def test_the_help_of_a_problem_has_its_options_and_methods(
    name: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (f"--problem {name}", f"--problem={name}"):
        text = helped(capsys, *form.format(asked).split())
        own = OWN[name] | set(OPTIONS)
        others = set(chain(*OWN.values(), OPTIONS))
        assert own <= options_of(text)
        assert not options_of(text) & (others - own)
        listed = text.partition("methods:\n")[2].partition("\n\n")[0]
        assert re.split(r",\s+", listed.strip()) == list(FAMILIES[name].names())


@pytest.mark.parametrize("given", ["--problem", "--problem nobody"])
def test_help_of_no_problem_is_the_short_one_or_an_error(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "problems, with an example of each:" in helped(capsys, "--help", *given.split())


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
    said = capsys.readouterr().err
    assert "invalid choice: 'nobody'" in said
    assert len(said.splitlines()) == 1
