"""What several tests of the command line read."""

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import PROFILE


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(PROFILE))
    return str(path)
