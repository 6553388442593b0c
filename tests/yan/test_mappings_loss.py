"""Canonical and greedy mappings against all mappings, by the benchmark that measures them."""

import importlib.util
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import Configuration, Problem, estimate, solve
from tests.yan.small_problems import small_problems
from tests.yan.yan_strategies import any_configurations, configurations

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "yan_mappings.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("yan_mappings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["yan_mappings"] = module
    spec.loader.exec_module(module)
    return module


def all_mappings(one: Configuration) -> list[Configuration]:
    """A configuration under every mapping, workers not renamed."""
    workers = range(one.workers_per_replica)
    each = []
    for layer in one.layers:
        p, r = layer.partitions, layer.copies
        each.append(
            [
                replace(layer, mapping=tuple(on[part * r : part * r + r] for part in range(p)))
                for on in permutations(workers, p * r)
            ]
        )
    return [replace(one, layers=layers) for layers in product(*each)]


@settings(max_examples=25)
@given(small_problems(most=60), st.data())
def test_least_of_all_mappings(script: ModuleType, problem: Problem, data: st.DataObject) -> None:
    """The sum of what placements cost, pair by pair, is the least over all mappings at once."""
    one = data.draw(configurations(problem, workers=min(3, problem.machines - 1)))
    choices = [(layer.partitions, layer.copies) for layer in one.layers]
    priced = estimate(problem, one)
    expected = sum((times.weight_reading for times in priced.layers), Fraction(0))
    for place, layer in enumerate(one.layers):
        state = (choices[place], layer.threads)
        expected += script.own_cost(problem, place, state) / one.replicas
        if place:
            pair = script.pair_costs(
                problem, place, choices[place - 1], choices[place], one.workers_per_replica
            )
            expected += pair[one.layers[place - 1].threads, layer.threads] / one.replicas
    found = [estimate(problem, mapped).epoch for mapped in all_mappings(one)]
    assert min(found) == expected


@pytest.mark.slow
@settings(max_examples=25)
@given(small_problems(most=100), st.data())
def test_no_method_beats_all_mappings(
    script: ModuleType, problem: Problem, data: st.DataObject
) -> None:
    best = script.best_of_all_mappings(problem)
    assert estimate(problem, data.draw(any_configurations(problem))).epoch >= best
    for method in ("exact", "greedy"):
        plan = solve(problem, method=method).plan
        assert plan is not None
        assert plan.ranking[0].epoch >= best
        assert plan.any_mapping_bound_ns is not None
        assert plan.any_mapping_bound_ns <= -int(-best // 1)
