"""Workers of pytest-xdist take tests from both ends, each test once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")

PLUGINS = ("-p", "xdist.plugin", "-p", "no:cacheprovider")
WORKERS = ("[gw0]", "[gw1]")

TESTS = "import time\nimport pytest\n" + "".join(
    f"{'@pytest.mark.slow' if number > 5 else ''}\ndef test_{number}(): time.sleep(0.02)\n"
    for number in range(8)
)


@pytest.mark.slow
def test_jobs_are_taken_from_the_front_and_others_from_the_back(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    for folder in ("tests", "tests/runtime", "tests/yan"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    for name in ("pyproject.toml", "tests/conftest.py", "tests/scheduling.py"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    for folder in ("runtime", "yan"):
        (tmp_path / "tests" / folder / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", "2", *PLUGINS],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = [line.split() for line in done.stdout.splitlines() if " PASSED " in line]
    ran = {worker: [words[-1] for words in lines if words[0] == worker] for worker in WORKERS}
    assert sorted(ran["[gw0]"] + ran["[gw1]"]) == sorted(
        f"tests/{folder}/test_it.py::test_{number}"
        for folder in ("runtime", "yan")
        for number in range(8)
    )
    # Nobody is so slow that the other one has taken everything.
    assert ran["[gw0]"][:2] == [f"tests/runtime/test_it.py::test_{number}" for number in (6, 7)]
    assert ran["[gw1]"][:2] == [f"tests/yan/test_it.py::test_{number}" for number in (7, 6)]
