"""Constants measured on this machine: sensible, no process left over, errors with a place."""

import subprocess
import sys
from fractions import Fraction
from math import isfinite
from time import monotonic_ns
from typing import Any

import pytest

from planner.families.yan.calibration import compute, measure_computation, worker
from planner.families.yan.calibration.worker import kernels, timed
from planner.families.yan.problem import Constants
from planner.model.errors import MeasurementError
from tests.formats.refused import refused


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_this_machine_can_be_measured(cores: int) -> None:
    if len(compute.available_processors()) < cores:
        pytest.skip("needs more processors")
    seen: list[tuple[int, int]] = []
    found = measure_computation(
        cores, repetitions=2, source="a test", progress=lambda done, of: seen.append((done, of))
    )
    assert seen == [(1, 2), (2, 2)]
    assert len(found.interference) == cores
    assert found.interference[0] == 1
    assert all(factor >= 1 and isfinite(factor) for factor in found.interference)
    constants = Constants(
        muladd_ns=found.muladd_ns,
        activation_ns=found.activation_ns,
        error_ns=found.error_ns,
        latency_ns=[Fraction(1)] * cores,
        nic_bits_per_s=Fraction(1),
        interference=found.interference,
    )
    # Any processor adds faster than it computes an exponential function.
    assert 0 < constants.muladd_ns < constants.activation_ns < 10**6
    assert 0 < constants.error_ns < 10**6
    assert found.provenance.kind == "measured"
    assert found.provenance.source == "a test"
    assert {"numpy", "blas", "python"} <= set(found.provenance.versions)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    processes: list[subprocess.Popen[str]] = []

    class Remembered(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Remembered)
    return processes


def test_no_process_is_left_over(started: list[subprocess.Popen[str]]) -> None:
    def interrupted(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_computation(1, repetitions=100, progress=interrupted)
    assert len(started) == 1
    assert all(one.returncode is not None for one in started)


def test_a_process_that_fails_is_reported(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[str]]
) -> None:
    monkeypatch.setattr(worker, "__file__", "/nowhere/worker.py")
    with pytest.raises(MeasurementError, match=r"nowhere/worker\.py"):
        measure_computation(1, repetitions=1)
    assert all(one.returncode is not None for one in started)


def test_a_process_ends_with_its_input() -> None:
    command = [sys.executable, "-P", str(worker.__file__)]
    (processor, *_) = compute.available_processors()
    done = subprocess.run(
        [*command, str(processor)], input="muladd 0 1\n", capture_output=True, text=True, check=True
    )
    versions, answer = done.stdout.splitlines()
    assert "numpy" in versions
    assert float(answer) > 0


def test_a_window_that_is_over_still_gives_a_time() -> None:
    calls: list[int] = []
    assert timed(lambda: calls.append(1), 0, 0) >= 0
    assert len(calls) == 1
    stop = monotonic_ns() + 1_000_000
    timed(lambda: calls.append(1), 0, stop)
    assert monotonic_ns() >= stop
    assert len(calls) > 1


def test_every_constant_has_a_kernel() -> None:
    known = kernels()
    assert set(known) == {"muladd", "activation", "error", "layer"}
    for call, operations in known.values():
        call()
        assert operations >= 1


@pytest.mark.parametrize(
    ("arguments", "path"),
    [({"cores": 0}, "cores"), ({"cores": 2**20}, "cores"), ({"repetitions": 0}, "repetitions")],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], path: str) -> None:
    with refused(path, ""):
        measure_computation(**arguments)
