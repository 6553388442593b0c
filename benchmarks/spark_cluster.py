"""A Spark of this machine for benchmarks, and tasks that wait in the place of computing.

Two cores cannot compute for sixteen tasks, but wait for them they can: what is measured beside the
waiting is Spark's.
"""

import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import EngineError
from planner.runtime.spark.connecting import java

ROOT = Path(__file__).parents[1]

MS = 10**6


class Waiting:
    """A gradient whose computation is waiting, for so many milliseconds."""

    def __init__(self, wait_ms: float) -> None:
        self.wait_ms = wait_ms

    def __call__(
        self, weights: NDArray[Any], _rows: Sequence[Any], _iteration: int, partition: int
    ) -> NDArray[Any]:
        """Wait, and return something."""
        time.sleep(self.wait_ms / 1000)
        return np.full_like(weights, 1e-6 * (partition + 1))


def descend(weights: NDArray[Any], gradient: NDArray[Any], _state: NDArray[Any]) -> None:
    """Update weights in the simplest way."""
    weights -= gradient


def missing() -> str:
    """Say what is missing to run Spark here; nothing if all is there."""
    if importlib.util.find_spec("pyspark") is None:
        return "skipped: PySpark is not installed (pip install '.[spark]')"
    try:
        java()
    except EngineError as error:
        return f"skipped: {error}"
    return ""


@contextmanager
def cluster(workers: int, cores: int, memory: str = "2g") -> Iterator[tuple[str, Path]]:
    """Give a master's address and a folder for event logs, of a cluster with so many slots."""
    from planner.runtime.spark import StandaloneCluster

    folder = Path(tempfile.mkdtemp(prefix="planner-spark-"))
    paths = [str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    try:
        with StandaloneCluster.start(workers, cores, memory, folder, timeout_s=120) as running:
            yield running.url, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def application(
    url: str, folder: Path, name: str, slots: int, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, Path]]:
    """Give a context, and the folder of its event log, which is complete afterwards."""
    from planner.runtime.spark import connect

    events = folder / f"events-{name}"
    events.mkdir()
    chosen = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.cores.max": str(slots),
        **(settings or {}),
    }
    context = connect(url, name, chosen, slots=slots, timeout_s=120)
    context.setLogLevel("OFF")
    try:
        yield context, events
    finally:
        context.stop()
