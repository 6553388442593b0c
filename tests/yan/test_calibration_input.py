"""Measured epochs that cannot be used, and the order and progress of those that can."""

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner.families.yan.calibration import MeasuredEpoch, fit
from planner.families.yan.configuration import Fixed
from planner.families.yan.problem import Constants, Problem
from planner.model.errors import InvalidInputError
from tests.yan.test_calibration import START, TRUE, assert_recovered, configurations, job, measured


@pytest.mark.slow
def test_the_order_of_measurements_does_not_matter() -> None:
    noise = random.Random(12)
    epochs = measured(job(TRUE), configurations(12, 13), lambda: noise.uniform(0.9, 1.1))
    found = fit(job(START), epochs, folds=2)
    random.Random(14).shuffle(epochs)
    other = fit(job(START), epochs, folds=2)
    assert other.constants == found.constants
    assert other.fitted == found.fitted


@pytest.mark.slow
def test_machines_may_differ() -> None:
    speeds = tuple(Fraction(2 + place % 3, 3) for place in range(16))

    def uneven(constants: Constants) -> Problem:
        return replace(job(constants), machine_speeds=speeds, nic_speeds=speeds[::-1])

    chosen = [
        replace(one, machines=tuple(random.Random(place).sample(range(16), one.machines_used)))
        for place, one in enumerate(configurations(12, 15))
    ]
    found = fit(uneven(START), measured(uneven(TRUE), chosen), folds=2)
    assert_recovered(found)


@pytest.mark.slow
def test_what_ran_had_memory_enough() -> None:
    epochs = measured(job(TRUE), configurations(4, 16))
    problem = replace(job(START), memory_bytes=1000, fixed=(Fixed(1, 1, 1),))
    one, other = (fit(asked, epochs, folds=2) for asked in (problem, job(START)))
    assert one.constants == other.constants


@pytest.mark.slow
def test_progress_counts_the_fits() -> None:
    seen: list[tuple[int, int]] = []
    epochs = measured(job(TRUE), configurations(4, 17))
    fit(job(START), epochs, folds=2, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def _broken(change: Callable[[MeasuredEpoch], MeasuredEpoch]) -> list[MeasuredEpoch]:
    good, bad = measured(job(TRUE), configurations(2, 18))
    return [good, change(bad)]


def _other(one: MeasuredEpoch, **changes: Any) -> MeasuredEpoch:
    return replace(one, configuration=replace(one.configuration, **changes))


@pytest.mark.parametrize(
    ("measurements", "path"),
    [
        ([], "measurements"),
        (_broken(lambda one: one)[:1], "measurements"),
        (_broken(lambda one: replace(one, epoch_ns=0)), "measurements[1].epoch_ns"),
        (_broken(lambda one: replace(one, epoch_ns=2**62 + 1)), "measurements[1].epoch_ns"),
        (_broken(lambda one: _other(one, replicas=0)), "measurements[1].replicas"),
        (_broken(lambda one: _other(one, parameter_servers=17)), "measurements[1]"),
        (_broken(lambda one: _other(one, layers=())), "measurements[1].layers"),
        (
            _broken(
                lambda one: _other(
                    one,
                    layers=(
                        one.configuration.layers[0],
                        replace(one.configuration.layers[1], threads=3),
                        one.configuration.layers[2],
                    ),
                )
            ),
            "measurements[1].layers[1].threads",
        ),
        (
            _broken(
                lambda one: _other(
                    one, layers=tuple(replace(x, mapping=()) for x in one.configuration.layers)
                )
            ),
            "measurements[1].layers[0].mapping",
        ),
    ],
)
def test_bad_measurements_are_named(measurements: list[MeasuredEpoch], path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        fit(job(START), measurements)
    assert caught.value.path == path


def test_a_cross_validation_has_two_parts() -> None:
    with pytest.raises(InvalidInputError) as caught:
        fit(job(START), measured(job(TRUE), configurations(2, 19)), folds=1)
    assert caught.value.path == "folds"
