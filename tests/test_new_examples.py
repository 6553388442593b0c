"""How many examples property tests have, and cases long ones; which are new, and brought back."""

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
@settings(max_examples=120)
@given(value=st.integers())
def test_anything(number, value):
    with Path("seen").open("a") as file:
        print(number, value, file=file)

@pytest.mark.parametrize("number", range(16))
@settings(max_examples=1)
@given(value=st.just(0))
def test_fails(number, value):
    assert False

@pytest.mark.drawn(3)
@pytest.mark.parametrize("number", range(48))
def test_long(number):
    with Path("long").open("a") as file:
        print(number, file=file)
"""

AGAIN = "again with --hypothesis-seed="


def run(folder: Path, *options: str) -> tuple[list[list[str]], str, set[str]]:
    """Run pytest; return the examples of each test, its output, and the long test's cases."""
    for name in ("seen", "long"):
        (folder / name).write_text("")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    copyfile(Path(__file__).with_name("conftest.py"), folder / "conftest.py")
    (folder / "test_properties.py").write_text(PROPERTIES)
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
    seen = [[value for it, value in rows if it == str(one)] for one in range(16)]
    return seen, done.stdout, {*(folder / "long").read_text().split()}


@pytest.mark.slow
def test_a_seed_brings_its_examples_and_cases_back_and_another_one_others(tmp_path: Path) -> None:
    first, told, long = run(tmp_path)
    again = run(tmp_path, f"--hypothesis-seed={told.partition(AGAIN)[2].split()[0]}")
    assert (again[0], again[2]) == (first, long)
    other, told, others = run(tmp_path, "--hypothesis-seed=2")
    differ = sum(one != two for one, two in zip(first, other, strict=True))
    assert 0 < differ < len(first)  # most tests see the same in every run
    failures = told.partition("FAILURES")[2]
    assert 0 < failures.count(f"this test's are drawn: {AGAIN}2") < len(first)
    assert {len(values) for values in first} == {10}  # one in twelve
    assert len(long) == len(others) == 16  # one in three
    assert long != others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "count"),
    [(["test_properties.py"], 8), (["--hypothesis-profile=thorough"], 120)],
    ids=["one file", "thorough"],
)
def test_a_first_look_has_few_examples_and_all_cases_where_they_are_asked_for(
    options: list[str], count: int, tmp_path: Path
) -> None:
    some = "long or (anything and 15)"
    seen, _, long = run(tmp_path, "-m", "not slow", "-k", some, *options)
    assert len(seen[15]) == count
    assert len(long) == 48
