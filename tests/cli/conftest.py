"""What several tests of the command line read."""

import json
from math import inf
from pathlib import Path

import pytest

from tests.cli.test_cli import PROFILE


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(PROFILE))
    return str(path)


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands say nothing of their progress, however long they take on a busy machine."""
    monkeypatch.setattr("planner.view.progress._LONG_S", inf)
