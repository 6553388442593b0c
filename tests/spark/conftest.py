"""One run on the real Spark, of which all tests read what came out."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import EngineError
from planner.runtime.spark.connecting import java

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class SparkRun:
    """What came out of `tests.spark.session`."""

    weights: dict[str, Any]
    facts: dict[str, Any]
    log: Path


@pytest.fixture(scope="session")
def spark_needed() -> None:
    """Skip, with the reason, where Spark cannot run."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (extra spark)")
    try:
        java()
    except EngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark_run(spark_needed: None, tmp_path_factory: pytest.TempPathFactory) -> SparkRun:
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.session", str(folder)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    (log,) = (folder / "events").iterdir()
    with np.load(folder / "weights.npz") as kept:
        weights = {name: kept[name] for name in kept.files}
    return SparkRun(weights, json.loads((folder / "facts.json").read_text()), log)
