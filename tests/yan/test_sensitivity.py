"""How far constants may be off: intervals within which a configuration stays best."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.families.yan.configuration import Configuration
from planner.families.yan.family import solve
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import estimate
from planner.families.yan.problem import Constants, Problem, scaled
from planner.families.yan.studies import TOLERANCE, FactorRange, sensitivity
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from tests.yan.yan_strategies import configurations, problems

few = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
fewer = settings(few, max_examples=6)


def network() -> Problem:
    layers = (
        NeuronLayer("first", "full", 40, 1200, 1240),
        NeuronLayer("second", "full", 30, 1200, 1230),
        NeuronLayer("last", "full", 10, 300, 310),
    )
    constants = Constants(
        muladd_ns=Fraction(1),
        activation_ns=Fraction(3),
        error_ns=Fraction(2),
        latency_ns=(Fraction(100), Fraction(120)),
        nic_bits_per_s=Fraction(10**10),
        interference=(Fraction(1), Fraction("1.1")),
    )
    return Problem(8, 2, layers, constants, samples=1000, read_every=10)


def best(problem: Problem) -> Configuration:
    plan = solve(replace(problem, top=1), method="exact").plan
    assert plan is not None
    return plan.configuration


def price(problem: Problem, configuration: Configuration) -> Fraction:
    return estimate(problem, configuration).epoch


def affine(
    problem: Problem, configuration: Configuration, constant: str, far: Fraction, inside: Fraction
) -> bool:
    """Whether three prices are on one line: over the inverse of a bandwidth."""
    points = [
        (factor, price(scaled(problem, constant, factor), configuration))
        for factor in (Fraction(1), inside, far)
    ]
    if constant == "nic_bits_per_s":
        points = [(1 / factor, cost) for factor, cost in points]
    (a, u), (b, v), (c, w) = points
    return (v - u) * (c - a) == (w - u) * (b - a)


def ends(interval: FactorRange) -> list[tuple[Fraction | None, Configuration | None, int]]:
    return [
        (interval.low, interval.low_beaten_by, -1),
        (interval.high, interval.high_beaten_by, 1),
    ]


@pytest.mark.slow
@few
@given(problems(max_machines=4, max_threads=2), st.data())
def test_ends_of_intervals_are_where_another_configuration_takes_over(
    problem: Problem, data: st.DataObject
) -> None:
    winner = best(problem)
    for interval in sensitivity(problem, winner):
        name = interval.constant
        for end, beaten_by, sign in ends(interval):
            assert (end is None) == (beaten_by is None)
            if end is None or beaten_by is None:
                continue
            assert sign * (end - 1) >= 0
            there = scaled(problem, name, end)
            assert price(there, best(there)) == price(there, winner)
            beyond = scaled(problem, name, end * (1 + sign * TOLERANCE))
            assert price(beyond, beaten_by) < price(beyond, winner)
        low, high = interval.low or Fraction(1, 1000), interval.high or Fraction(1000)
        share = data.draw(st.fractions(0, 1, max_denominator=100))
        inside = low + (high - low) * share
        here = scaled(problem, name, inside)
        other = best(here)
        if price(here, other) != price(here, winner):  # a hole
            assert not affine(problem, other, name, high if inside > 1 else low, inside)


@pytest.mark.slow
def test_an_interval_holds_what_is_best_and_ends_where_it_is_not() -> None:
    problem = network()
    winner = best(problem)
    found = {interval.constant: interval for interval in sensitivity(problem, winner)}
    assert list(found) == [
        "muladd_ns",
        "activation_ns",
        "error_ns",
        "latency_ns",
        "nic_bits_per_s",
        "interference",
    ]
    assert any(one.low is not None for one in found.values())
    assert any(one.high is not None for one in found.values())
    for name, one in found.items():
        low, high = one.low or Fraction(1, 1000), one.high or Fraction(1000)
        for step in range(1, 4):
            there = scaled(problem, name, low + (high - low) * Fraction(step, 4))
            assert price(there, best(there)) == price(there, winner)
        for end, _, sign in ends(one):
            if end is not None:
                beyond = scaled(problem, name, end * (1 + sign * TOLERANCE))
                assert price(beyond, best(beyond)) < price(beyond, winner)


@pytest.mark.slow
@fewer
@given(problems(max_machines=4, max_layers=2, max_threads=2), st.integers(2, 9))
def test_the_unit_of_time_does_not_matter(problem: Problem, factor: int) -> None:
    changed = problem
    for name in ("muladd_ns", "activation_ns", "error_ns", "latency_ns"):
        changed = scaled(changed, name, Fraction(factor))
    changed = scaled(changed, "nic_bits_per_s", Fraction(1, factor))
    winner = best(problem)
    assert price(changed, winner) == factor * price(problem, winner)
    one, two = sensitivity(problem, winner), sensitivity(changed, winner)
    assert [(a.low, a.high) for a in one] == [(a.low, a.high) for a in two]


@pytest.mark.slow
def test_interference_is_what_is_above_one() -> None:
    problem = network()
    constants = replace(problem.constants, interference=(Fraction("0.9"), Fraction("1.1")))
    more = scaled(replace(problem, constants=constants), "interference", Fraction(3))
    assert more.constants.interference == (Fraction("0.9"), Fraction("1.3"))
    none = replace(constants, interference=(Fraction(1), Fraction("0.9"), Fraction(5)))
    without = replace(problem, constants=none)  # the third is for more threads than cores
    names = [interval.constant for interval in sensitivity(without, best(without))]
    assert "interference" not in names
    assert len(names) == 5


@pytest.mark.slow
def test_a_constant_at_its_own_limit_is_scaled_as_far_as_it_can_be() -> None:
    problem = network()
    constants = replace(problem.constants, error_ns=Fraction(1, 10**149))
    tiny = replace(problem, constants=constants)
    found = {interval.constant: interval for interval in sensitivity(tiny, best(tiny))}
    assert found["error_ns"].low is None


@few
@given(problems(max_machines=4), st.data())
def test_only_the_best_configuration_has_intervals(problem: Problem, data: st.DataObject) -> None:
    other = data.draw(configurations(problem))
    least = price(problem, best(problem))
    assume(price(problem, other) > least)
    with pytest.raises(InvalidInputError, match="expected the best one") as caught:
        sensitivity(problem, other)
    assert caught.value.path == "configuration"


def test_what_does_not_apply_is_refused() -> None:
    problem = network()
    winner = best(problem)
    slower = replace(problem, machine_speeds=[Fraction(1)] * 7 + [Fraction(2)])
    with pytest.raises(NotApplicableError) as caught:
        sensitivity(slower, winner)
    assert caught.value.path == "machine_speeds"
    with pytest.raises(InvalidPlanError):
        sensitivity(replace(problem, machines=winner.machines_used - 1), winner)


@pytest.mark.slow
def test_machines_of_one_speed_are_alike() -> None:
    problem = replace(network(), machines=4)
    twice = replace(problem, machine_speeds=[Fraction(2)] * 4)
    same = replace(
        twice,
        machine_speeds=None,
        constants=replace(
            problem.constants,
            muladd_ns=problem.constants.muladd_ns / 2,
            activation_ns=problem.constants.activation_ns / 2,
            error_ns=problem.constants.error_ns / 2,
        ),
    )
    winner = best(same)
    one, two = sensitivity(twice, winner), sensitivity(same, winner)
    assert one == two
