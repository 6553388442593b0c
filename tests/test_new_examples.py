"""Some property tests have new examples in each run, which its seed brings back."""

import subprocess
import sys
from pathlib import Path
from shutil import copyfile

PROPERTIES = """
from pathlib import Path
import pytest
from hypothesis import given, settings, strategies as st

@pytest.mark.parametrize("number", range(16))
@settings(max_examples=5)
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
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    rows = [line.split() for line in (folder / "seen").read_text().splitlines()]
    seen = [" ".join(value for one, value in rows if one == str(number)) for number in range(16)]
    return seen, done.stdout


def test_a_seed_brings_its_examples_back_and_another_one_others(tmp_path: Path) -> None:
    copyfile(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    (tmp_path / "test_properties.py").write_text(PROPERTIES)
    first, said = run(tmp_path)
    seed = said.partition(AGAIN)[2].split()[0]
    again, _ = run(tmp_path, f"--hypothesis-seed={seed}")
    assert again == first
    runs = [run(tmp_path, f"--hypothesis-seed={one}") for one in (2, 3)]
    differ = sum(one != two for one, two in zip(runs[0][0], runs[1][0], strict=True))
    assert 0 < differ < len(first)  # most tests see the same in every run
    failures = runs[0][1].partition("FAILURES")[2]
    assert 0 < failures.count(f"this test's are drawn: {AGAIN}2") < len(first)
