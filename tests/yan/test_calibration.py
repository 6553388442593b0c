"""Constants fitted to epochs, and how good they are said to be; and those of this machine."""

import math
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import isfinite
from pathlib import Path
from time import monotonic_ns
from typing import Any
from unittest.mock import Mock

import pytest

from planner.families.yan.calibration import Fit, MeasuredEpoch, compute, fit, worker
from planner.families.yan.calibration.compute import measure_computation
from planner.families.yan.calibration.fit import FITTED, correlations, errors, regret
from planner.families.yan.configuration import Configuration, Fixed
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import estimate
from planner.families.yan.problem import Constants, Problem
from planner.jsonio import decode_request
from planner.jsonio.yan import problem_of
from planner.model.errors import MeasurementError
from tests.formats.refused import refused
from tests.yan.yan_strategies import alike, mapped

NETWORK = (
    NeuronLayer("conv", "conv", 5760, 144_000, 260, (10, 24, 24), 5, 1, 2),
    NeuronLayer("wide", "full", 400, 576_000, 576_000),
    NeuronLayer("out", "full", 10, 4000, 4010),
)
SLOWER = {"interference": (1, 1.05)}
TRUE = alike(0.5, 2, 1e10, activation_ns=20, error_ns=30, latency_ns=(100_000, 120_000), **SLOWER)
START = alike(0.2, 2, 4e9, activation_ns=35, error_ns=12, latency_ns=(3e5, 3.6e5), **SLOWER)


def job(constants: Constants, layers: tuple[NeuronLayer, ...] = NETWORK, **more: Any) -> Problem:
    return Problem(16, 2, layers, constants, **{"samples": 60_000, "read_every": 100, **more})


def configurations(
    count: int, seed: int, layers: tuple[NeuronLayer, ...] = NETWORK
) -> list[Configuration]:
    draw, found = random.Random(seed), []
    for _ in range(count):
        workers = draw.randint(1, 6)
        replicas = draw.randint(1, 15 // workers)
        choices = []
        for layer in layers:
            partitions = draw.randint(1, min(workers, layer.cuts))
            choices.append((partitions, draw.randint(1, workers // partitions)))
        layers_cut = [replace(one, threads=draw.randint(1, 2)) for one in mapped(choices, workers)]
        servers = draw.randint(1, 16 - replicas * workers)
        found.append(Configuration(servers, replicas, workers, tuple(layers_cut)))
    return found


def measured(
    truth: Problem, chosen: list[Configuration], noise: Callable[[], float] = lambda: 1.0
) -> list[MeasuredEpoch]:
    return [
        MeasuredEpoch(one, round(estimate(truth, one).epoch_ns * Fraction(noise())))
        for one in chosen
    ]


def numbers(constants: Constants) -> list[float]:
    """Return what is fitted, as times."""
    times = (constants.muladd_ns, constants.activation_ns, constants.error_ns)
    return [*map(float, (*times, constants.latency_ns[0], 1 / constants.nic_bits_per_s))]


def assert_recovered(found: Fit) -> None:
    """Check that the constants are those of `TRUE`, or add up to them.

    A slowest segment computes as many error terms as activations. Often it is the same forward and
    backward in all that was measured, and only their sum can be told.
    """
    muladd, activation, error, latency, per_bit = numbers(found.constants)
    wanted = numbers(TRUE)
    assert [muladd, latency, per_bit] == pytest.approx([wanted[0], *wanted[3:]], rel=1e-6)
    assert activation + error == pytest.approx(wanted[1] + wanted[2], rel=1e-6)
    if found.held:
        assert found.held in (("activation_ns",), ("error_ns",))
    else:
        assert [activation, error] == pytest.approx(wanted[1:3], rel=1e-4)
    assert found.at_floor == ()
    assert found.fitted.largest < 1e-7


@pytest.mark.slow
def test_exact_epochs_give_the_constants_back() -> None:
    found = fit(job(START), measured(job(TRUE), configurations(12, 0)))
    assert_recovered(found)
    ratio = found.constants.latency_ns[1] / found.constants.latency_ns[0]
    assert float(ratio) == pytest.approx(1.2)
    assert found.constants.interference == TRUE.interference
    assert found.held_out.largest < 1e-4
    assert [found.kendall, found.spearman] == pytest.approx([1, 1])
    assert found.regret == 0
    # Of more epochs, here of machines that differ, activations and error terms can be told apart.
    speeds = tuple(Fraction(2 + place % 3, 3) for place in range(16))
    start, truth = (job(constants, machine_speeds=speeds) for constants in (START, TRUE))
    chosen = [
        replace(one, machines=tuple(random.Random(place).sample(range(16), one.machines_used)))
        for place, one in enumerate(configurations(40, 0))
    ]
    found = fit(start, measured(truth, chosen), folds=2)
    assert found.held == ()
    assert_recovered(found)


RUNS = {
    (1, 1, 1): [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)],
    (2, 4, 1): [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)],
    (2, 2, 2): [(1, 2), (1, 2), (2, 1), (2, 1), (1, 2)],
    (4, 1, 4): [(1, 4), (1, 4), (2, 2), (4, 1), (1, 4)],
    (4, 4, 4): [(1, 4), (1, 4), (4, 1), (4, 1), (2, 2)],
    (4, 2, 8): [(1, 8), (1, 8), (8, 1), (8, 1), (2, 4)],
    (4, 8, 2): [(1, 2), (1, 2), (2, 1), (2, 1), (2, 1)],
    (4, 16, 1): [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)],
    (4, 1, 16): [(1, 16), (1, 16), (8, 2), (16, 1), (2, 8)],
    (3, 3, 3): [(1, 3), (1, 3), (3, 1), (3, 1), (1, 3)],
}
"""Of the MNIST stand-in, by servers, replicas and workers: partitions and copies of each layer."""


def stand_in() -> tuple[Problem, Problem, list[Configuration]]:
    """Return a start that is wrong in two constants, the truth, and what was run."""
    file = Path(__file__).parents[2] / "data" / "yan" / "mnist.json"
    start = problem_of(decode_request(file.read_bytes()))
    truth = replace(start.constants, muladd_ns=Fraction(2), nic_bits_per_s=Fraction(4 * 10**9))
    chosen = [Configuration(*triple, mapped(cut, triple[2])) for triple, cut in RUNS.items()]
    return start, replace(start, constants=truth), chosen


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed"), [(0.01, 2), (0.05, 1)])
def test_noise_leads_no_fit_astray(size: float, seed: int) -> None:
    """Once, slowest segments changed from round to round, and multiply-adds came out free."""
    start, truth, chosen = stand_in()
    noise = random.Random(seed)
    epochs = measured(truth, chosen, lambda: noise.uniform(1 - size, 1 + size))
    found = fit(start, epochs)
    known = [epoch.epoch_ns for epoch in epochs]
    wanted = errors([estimate(truth, one).epoch for one in chosen], known)
    assert found.fitted.mean <= 1.02 * wanted.mean  # squares are fitted
    assert found.held_out.mean < size
    assert found.held_out.largest < 2 * size
    assert found.at_floor == ()
    assert {"activation_ns", "error_ns"} <= set(found.held) <= set(FITTED[1:4])
    assert found.constants.activation_ns == start.constants.activation_ns
    muladd, _, _, _, per_bit = numbers(found.constants)
    assert [muladd, per_bit] == pytest.approx([2, 2.5e-10], rel=2 * size)


def shares(problem: Problem, epochs: list[MeasuredEpoch]) -> list[float]:
    """Return each prediction over what was measured."""
    return [float(estimate(problem, one.configuration).epoch / one.epoch_ns) for one in epochs]


def squares(problem: Problem, epochs: list[MeasuredEpoch], factor: float = 1) -> float:
    return math.fsum((factor * share - 1) ** 2 for share in shares(problem, epochs))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed"), [(0.1, 1), (0.9, 2)])
def test_no_fit_is_worse_than_the_start_times_a_factor_or_the_truth(size: float, seed: int) -> None:
    draw, chosen = random.Random(seed), configurations(7, 30 + seed)
    epochs = measured(job(TRUE), chosen, lambda: draw.uniform(1 - size, 1 + size))
    for start in (START, TRUE, replace(TRUE, latency_ns=(Fraction(10**9), Fraction(1)))):
        found = squares(job(fit(job(start), epochs, folds=2).constants), epochs)
        ratios = shares(job(start), epochs)
        factor = sum(ratios) / sum(ratio**2 for ratio in ratios)
        assert found <= squares(job(start), epochs, factor) * (1 + 1e-6) + 1e-14
        if start.latency_ns[1] != 1:  # no factor for both leads to the truth
            assert found <= squares(job(TRUE), epochs) * 1.05 + 1e-14


@pytest.mark.slow
def test_no_prediction_knows_its_own_measurement() -> None:
    epochs = measured(job(TRUE), configurations(9, 4))
    found = fit(job(START), epochs, folds=3)
    epochs[1] = replace(epochs[1], epoch_ns=epochs[1].epoch_ns * 5)
    other = fit(job(START), epochs, folds=3)
    same = [
        place for place in range(9) if found.predictions_ns[place] == other.predictions_ns[place]
    ]
    assert same == [1, 4, 7]


def test_what_cannot_be_told_apart_is_held() -> None:
    """One fully connected layer: neurons are always in proportion to connections."""
    layers = (NETWORK[1],)
    epochs = measured(job(TRUE, layers), configurations(10, 6, layers))
    found = fit(job(START, layers), epochs, folds=2)
    assert found.held == ("activation_ns", "error_ns")
    assert found.constants.activation_ns == START.activation_ns
    assert found.constants.error_ns == START.error_ns
    assert found.fitted.largest < 1e-7
    # What a neuron with its 1440 connections costs, in the evaluation and the update of weights.
    assert float(2 * 1440 * found.constants.muladd_ns + 35 + 12) == pytest.approx(1440 + 20 + 30)
    # One configuration fits one constant.
    (one,) = measured(job(TRUE), configurations(1, 7))
    found = fit(job(START), [one, one])
    assert len(found.held) == 4
    assert found.fitted.largest < 1e-8
    assert (found.kendall, found.spearman) == (None, None)


def test_constants_stay_above_0() -> None:
    """Epochs as if a start-up took -100 µs."""
    layers = (NETWORK[1],)
    chosen = configurations(10, 8, layers)
    double = replace(TRUE, latency_ns=tuple(3 * latency for latency in TRUE.latency_ns))
    once, thrice = (measured(job(one, layers), chosen) for one in (TRUE, double))
    epochs = [
        MeasuredEpoch(low.configuration, 2 * low.epoch_ns - high.epoch_ns)
        for low, high in zip(once, thrice, strict=True)
    ]
    assert all(epoch.epoch_ns > 0 for epoch in epochs)
    found = fit(job(START, layers), epochs, folds=2)
    assert "latency_ns" in found.at_floor
    assert 0 < found.constants.latency_ns[0] < 1000
    assert min(numbers(found.constants)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("epoch_ns", [1, 2**62])
def test_absurd_epochs_give_constants_a_request_can_have(epoch_ns: int) -> None:
    one_neuron = (NeuronLayer("one", "full", 1, 1, 1),)
    for problem in (job(START), job(START, one_neuron, samples=1, read_every=2**40)):
        chosen = configurations(6, 9, tuple(problem.layers))
        found = fit(problem, [MeasuredEpoch(one, epoch_ns) for one in chosen], folds=2).constants
        assert 0 < found.nic_bits_per_s <= 2**62
        assert all(0 < one <= 2**62 for one in (found.muladd_ns, *found.latency_ns))


def test_the_quality_of_predictions() -> None:
    known = [10, 20, 30, 40]
    predictions = [Fraction(12), Fraction(11), Fraction(33), Fraction(44)]
    assert errors(predictions, known).mean == pytest.approx((0.2 + 0.45 + 0.1 + 0.1) / 4)
    assert errors(predictions, known).largest == pytest.approx(0.45)
    # One of six pairs is the wrong way round; rho = 1 - 6·(1 + 1) / (4·15).
    kendall, spearman = correlations(predictions, known)
    assert kendall == pytest.approx(4 / 6)
    assert spearman == pytest.approx(0.8)
    assert regret(predictions, known) == 1
    assert regret([Fraction(1)] * 4, known) == 3  # whichever is chosen
    assert correlations([Fraction(1)] * 4, known) == (None, None)
    assert correlations(predictions, [7] * 4) == (None, None)


@pytest.mark.slow
def test_neither_the_order_of_measurements_nor_memory_nor_what_is_fixed_matters() -> None:
    """And progress counts the fits: what ran had memory enough."""
    noise = random.Random(12)
    epochs = measured(job(TRUE), configurations(8, 13), lambda: noise.uniform(0.9, 1.1))
    seen: list[tuple[int, int]] = []
    found = fit(job(START), epochs, folds=2, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    random.Random(14).shuffle(epochs)
    short = job(START, memory_bytes=1000, fixed=(Fixed(1, 1, 1),))
    other = fit(short, epochs, folds=2)
    assert (other.constants, other.fitted) == (found.constants, found.fitted)


GOOD, BAD = measured(job(TRUE), configurations(2, 18))


@pytest.mark.parametrize(
    ("path", "measurements", "folds"),
    [
        ("measurements[1].epoch_ns", [GOOD, replace(BAD, epoch_ns=0)], 2),
        ("measurements[1].epoch_ns", [GOOD, replace(BAD, epoch_ns=2**62 + 1)], 2),
        ("measurements", [], 2),
        ("measurements", [GOOD], 2),
        ("folds", [GOOD, BAD], 1),
    ],
)
def test_a_fit_needs_right_measurements_to_fit_and_to_check(
    path: str, measurements: list[MeasuredEpoch], folds: int
) -> None:
    """Bad configurations are refused as in tests/cli/test_calibrate.py."""
    with refused(path, ""):
        fit(job(START), measurements, folds=folds)


# Measured on this machine: sensible, no process left over, errors with a place.


@pytest.mark.slow
def test_this_machine_can_be_measured() -> None:
    """On two processors if there are two; one alone is measured in tests/cli/test_calibrate.py."""
    cores = min(2, len(compute.available_processors()))
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


Processes = list[subprocess.Popen[str]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Processes:
    processes, start = Processes(), subprocess.Popen

    def remembered(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        processes.append(start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    return processes


def test_no_process_is_left_over(started: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither after an interrupt nor if one fails, which is reported."""
    with pytest.raises(KeyboardInterrupt):
        measure_computation(1, repetitions=100, progress=Mock(side_effect=KeyboardInterrupt))
    assert len(started) == 1
    monkeypatch.setattr(worker, "__file__", "/nowhere/worker.py")
    with pytest.raises(MeasurementError, match=r"nowhere/worker\.py"):
        measure_computation(1, repetitions=1)
    assert len(started) == 2
    assert all(one.returncode is not None for one in started)


def test_a_window_that_is_over_still_gives_a_time() -> None:
    called = Mock()
    assert worker.timed(called, 0, 0) >= 0
    assert called.call_count == 1
    stop = monotonic_ns() + 1_000_000
    worker.timed(called, 0, stop)
    assert monotonic_ns() >= stop
    assert called.call_count > 2


@pytest.mark.parametrize(
    ("arguments", "path"),
    [({"cores": 0}, "cores"), ({"cores": 2**20}, "cores"), ({"repetitions": 0}, "repetitions")],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], path: str) -> None:
    with refused(path, ""):
        measure_computation(**arguments)
