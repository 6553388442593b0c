"""What tests of the command line run, and the folder that they run it in."""

from math import inf
from pathlib import Path

import pytest

from tests.cli.documents import FILES, ROOT
from tests.cli.line import Line, write


@pytest.fixture
def line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Line:
    """Return the command line in a folder with `FILES`, and with all that is shipped in `data`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    Path("data").symlink_to(ROOT / "data")
    for name, document in FILES.items():
        write(name, document)
    return Line(capfd, monkeypatch, tmp_path)


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands say nothing of their progress, however long they take on a busy machine."""
    monkeypatch.setattr("planner.view.progress._LONG_S", inf)
