"""How many examples property tests have, and which are new: those their seed brings back."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copyfile

import pytest

PROPERTIES = """
from pathlib import Path
import pytest
from hypothesis import given, settings, strategies as st

@pytest.mark.parametrize("number", range(16))
@settings(max_examples=60)
@given(value=st.integers())
def test_anything(number, value):
    with Path("seen").open("a") as file:
        print(number, value, file=file)

@pytest.mark.parametrize("number", range(16))
@settings(max_examples=1)
@given(value=st.just(0))
def test_fails(number, value):
    assert False
"""

AGAIN = "again with --hypothesis-seed="


def run(folder: Path, *options: str) -> tuple[list[str], str]:
    """Return what each of the tests saw, and what pytest said."""
    (folder / "seen").unlink(missing_ok=True)
    plugins = ["-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    rows = [line.split() for line in (folder / "seen").read_text().splitlines()]
    seen = [" ".join(value for one, value in rows if one == str(number)) for number in range(16)]
    return seen, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copyfile(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    (tmp_path / "test_properties.py").write_text(PROPERTIES)
    return tmp_path


@pytest.mark.slow
def test_a_seed_brings_its_examples_back_and_another_one_others(folder: Path) -> None:
    first, said = run(folder)
    seed = said.partition(AGAIN)[2].split()[0]
    again, _ = run(folder, f"--hypothesis-seed={seed}")
    assert again == first
    other, said = run(folder, "--hypothesis-seed=2")
    differ = sum(one != two for one, two in zip(first, other, strict=True))
    assert 0 < differ < len(first)  # most tests see the same in every run
    failures = said.partition("FAILURES")[2]
    assert 0 < failures.count(f"this test's are drawn: {AGAIN}2") < len(first)
    assert {len(values.split()) for values in first} == {8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--hypothesis-profile=thorough"], 60),
        (["-m", "not slow"], 8),
        (["-m", "not slow", "--hypothesis-profile=thorough"], 60),
    ],
)
def test_a_run_has_few_examples_unless_told(folder: Path, options: list[str], count: int) -> None:
    seen, _ = run(folder, "-k", "anything", *options)
    assert {len(values.split()) for values in seen} == {count}
