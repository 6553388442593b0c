"""Shells complete commands, options and choices: scripts are run where the shell is there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from planner.cli import main
from planner.cli.completion import SHELLS, commands_of, script
from planner.cli.main import parser
from planner.jsonio.files import shipped_clusters
from planner.targets import TARGET_NAMES

COMMANDS = tuple(commands_of(parser()))
CASES = [
    ("pl", {"plan"}),
    ("calibrate n", {"network"}),
    ("calibrate network --coll", {"--collective"}),
    ("calibrate network --collective all_", {"all_reduce", "all_gather"}),
    ("plan p.json --mode ", {"any", "fsdp", "replicated", "sharded"}),
    ("plan p.json --for ", {*TARGET_NAMES}),
    ("plan p.json --cluster ", {*shipped_clusters()}),
    ("plan p.json --verb", {"--verbose"}),
    ("plan --for plan --mo", {"--mode"}),
    ("export dd", {"ddp"}),
    ("completion f", {"fish"}),
]


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return found


def written(name: str, folder: Path) -> str:
    path = folder / f"planner.{name}"
    path.write_text(script(name, COMMANDS), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", SHELLS)
def test_scripts_are_printed_and_parse(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["completion", name]) == 0
    assert capfdbinary.readouterr().out.decode() == script(name, COMMANDS)
    subprocess.run([shell(name), "-n", written(name, tmp_path)], check=True)


def test_every_command_and_option_is_known() -> None:
    for name in SHELLS:
        text = script(name, COMMANDS)
        for command in COMMANDS:
            assert f"'{command.key}'" in text
            for option in command.options:
                long = option.names[-1]
                assert long in text or f"-l {long.removeprefix('--')} " in text
    assert {"", " plan", " calibrate network", " completion"} <= {one.key for one in COMMANDS}


def completed(line: str, path: str) -> list[str]:
    """Return what bash offers at the end of a line."""
    words = ["planner", *line.split(" ")]
    code = (
        f"source {path}; COMP_WORDS=({' '.join(repr(word) for word in words)}); "
        f"COMP_CWORD={len(words) - 1}; _planner; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        [shell("bash"), "--norc", "-c", code], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash(line: str, offered: set[str], tmp_path: Path) -> None:
    assert set(completed(line, written("bash", tmp_path))) == offered


def test_bash_offers_values_behind_an_equals_sign_and_files_elsewhere(tmp_path: Path) -> None:
    path = written("bash", tmp_path)
    assert completed("plan --mode = sh", path) == ["sharded"]
    assert completed("plan --picture ", path) == []
    assert completed("export --profile ", path) == []


@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish(line: str, offered: set[str], tmp_path: Path) -> None:
    path = written("fish", tmp_path)
    done = subprocess.run(
        [shell("fish"), "--no-config", "-c", f"source {path}; complete -C'planner {line}'"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    words = {each.split("\t")[0] for each in done.stdout.splitlines()}
    assert offered <= words
    assert words - offered <= {f"planner.{name}" for name in SHELLS} | {".config/", ".local/"}


def test_zsh(tmp_path: Path) -> None:
    """By what zsh has for the scripts of bash: its own words are put into bash's variables."""
    code = (
        "autoload -Uz compinit && compinit -u\n"
        f"source {written('zsh', tmp_path)}\n"
        "COMP_WORDS=(planner plan p.json --mode ''); COMP_CWORD=4\n"
        'emulate -L sh; setopt kshglob braceexpand ksharrays; _planner; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [shell("zsh"), "-f", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["any", "replicated", "sharded"], done.stderr
