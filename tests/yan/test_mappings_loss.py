"""Canonical and greedy mappings, and a bound, against the best of all mappings (a benchmark's)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import Problem, estimate, solve
from tests.yan.small_problems import small_problems
from tests.yan.yan_strategies import any_configurations

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
