"""What is missing is said at once, in words: PySpark, Java, the master, a cluster."""

import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from planner.bigdl import Driver, Exchange
from planner.errors import EngineError, InvalidInputError, InvalidPlanError, MissingExtraError
from planner.runtime import spark
from planner.runtime.spark.__main__ import main
from planner.runtime.spark.connecting import first_line, java
from planner.runtime.spark.jobs import _check_driver, _check_slices
from planner.runtime.spark.standalone import StandaloneCluster
from planner.runtime.spark.training import Reached, checked, sgd


def test_no_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EngineError, match="Spark needs Java, and none is on PATH: install Java 17"):
        java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=r"JAVA_HOME is .*, and has none"):
        StandaloneCluster.start(folder=tmp_path)
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(EngineError, match="does not start"):
        java()


def test_no_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"planner\[spark\]"):
        spark.connect("local[1]")


def test_a_spark_that_cannot_be_reached_is_told(spark_needed: None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EngineError, match=rf"nobody answers at spark://127.0.0.1:{port}.*running"):
        spark.connect(f"spark://127.0.0.1:{port}")
    with pytest.raises(EngineError, match="expected spark://host:port"):
        spark.connect("spark://nowhere")


def test_stopping_what_does_not_run_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stop", "--folder", str(tmp_path)]) == 2
    assert "no cluster was started in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (Exchange(9, 3), "elements: planned for 9, the weights have 10"),
        (Exchange(10, 3, "same"), "order: Spark asks for shuffled blocks in an order of chance"),
        (Driver((8,)), "torrent: Spark's broadcasts are torrents"),
        (Driver((8, 5), torrent=True), "levels: expected"),
    ],
)
def test_plans_that_spark_would_not_run_are_refused(plan: Exchange | Driver, problem: str) -> None:
    reached = Reached.start(np.zeros(10))

    def check() -> None:
        if isinstance(plan, Exchange):
            _check_slices(plan, reached)
        else:
            _check_driver(plan, 8)

    with pytest.raises(InvalidPlanError, match=problem):
        check()


def test_weights_and_gradients_are_vectors_of_floats() -> None:
    with pytest.raises(InvalidInputError, match="expected a vector of float32 or float64"):
        Reached.start(np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match="expected a vector"):
        Reached.start(np.zeros(3, int))
    with pytest.raises(InvalidInputError, match="as many elements as weights"):
        checked(np.zeros(4), np.zeros(3))


def test_momentum_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    weights, state, update = np.ones(5), np.zeros((1, 5)), sgd(0.1, momentum=0.9)
    parameter = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    for step in range(4):
        gradient = np.arange(5.0) + step
        update(weights, gradient, state)
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    np.testing.assert_allclose(weights, parameter.detach().numpy(), atol=1e-12)


def test_of_an_error_of_spark_the_line_of_python_is_told() -> None:
    text = (
        'org.apache.spark.SparkException: Job aborted\n  File "a.py", line 1\n'
        "ValueError: no such column\n SQLSTATE: 38000\n\tat org.apache.spark.Error: x"
    )
    assert first_line(RuntimeError(text)) == "ValueError: no such column"
    assert first_line(RuntimeError("Job aborted\n at x")) == "Job aborted"
