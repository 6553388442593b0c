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

@pytest.mark.drawn(3)
@pytest.mark.parametrize("number", range(16))
def test_long(number):
    assert number < 16
"""

AGAIN = "again with --hypothesis-seed="


def run(folder: Path, *options: str) -> tuple[list[list[str]], str]:
    """Return what each of the tests saw, and what pytest said."""
    (folder / "seen").write_text("")
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
    return [[value for it, value in rows if it == str(one)] for one in range(16)], done.stdout


@pytest.mark.slow
def test_a_seed_brings_its_examples_back_and_another_one_others(tmp_path: Path) -> None:
    first, told = run(tmp_path)
    again, _ = run(tmp_path, f"--hypothesis-seed={told.partition(AGAIN)[2].split()[0]}")
    assert again == first
    other, told = run(tmp_path, "--hypothesis-seed=2")
    differ = sum(one != two for one, two in zip(first, other, strict=True))
    assert 0 < differ < len(first)  # most tests see the same in every run
    failures = told.partition("FAILURES")[2]
    assert 0 < failures.count(f"this test's are drawn: {AGAIN}2") < len(first)
    assert {len(values) for values in first} == {8}


@pytest.mark.slow
def test_a_run_has_few_examples_unless_told(tmp_path: Path) -> None:
    thorough, quick = "--hypothesis-profile=thorough", ("-m", "not slow")
    for options, count in (((thorough,), 60), (quick, 8), ((*quick, thorough), 60)):
        seen, _ = run(tmp_path, "-k", "anything", *options)
        assert {len(values) for values in seen} == {count}


@pytest.mark.slow
def test_a_run_of_all_tests_has_some_cases_of_long_ones(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")

    def cases(*options: str) -> set[str]:
        _, told = run(tmp_path, "-k", "long", "--collect-only", "-q", *options)
        return {line for line in told.splitlines() if "::test_long" in line}

    first = cases("--hypothesis-seed=1")
    assert len(first) == 6  # one in three, rounded up
    assert cases("--hypothesis-seed=1") == first
    assert cases("--hypothesis-seed=2") != first
    for everything in ("test_properties.py", "--hypothesis-profile=thorough"):
        assert cases(everything) == {
            f"test_properties.py::test_long[{number}]" for number in range(16)
        }
