"""The page on the command line lists every exit status and every variable there is in the code."""

import re
from pathlib import Path

from planner import __main__ as starting
from planner.cli.interrupting import Exit
from tests.cli.commands import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "planner").rglob("*.py")]
COMMANDS = [path.read_text(encoding="utf-8") for path in (ROOT / "planner" / "cli").glob("*.py")]


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_exit_status_is_listed_and_commands_end_with_no_other() -> None:
    listed = re.findall(r"^\| (\d+) \|", section("Exit status"), flags=re.MULTILINE)
    assert [int(status) for status in listed] == sorted(Exit)
    assert starting._INTERRUPTED == Exit.INTERRUPTED
    numbers = re.findall(r"^ +return (\d+)$", "\n".join(COMMANDS), flags=re.MULTILINE)
    assert len(numbers) > 10
    assert {*map(int, numbers)} <= set(Exit)


def test_every_variable_of_the_code_is_listed() -> None:
    read = r'environ(?:\.get\(|\[)\s*"(\w+)"'
    named = r'"((?:PLANNER|TORCHELASTIC|GLOO|MASTER|WORLD|LOCAL_WORLD)_\w+|RANK)"'
    used = {name for source in SOURCES for name in re.findall(f"{read}|{named}", source)}
    variables = {one for pair in used for one in pair if one}
    variables |= set(re.findall(r"PLANNER_[A-Z]+", "\n".join(SOURCES)))
    listed = set(re.findall(r"`([A-Z_]+)`", section("Environment")))
    assert variables == listed


def test_what_the_page_names_is_there() -> None:
    known = {name for command in commands() for name in command.options}
    assert {"--quiet", "--version", "--problem", "--help"} <= known
    assert set(re.findall(r"--[a-z]+", PAGE)) <= known
