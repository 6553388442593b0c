"""A bound by the number of transfers, which the benchmark of quality asks where gaps are large."""

from fractions import Fraction
from random import Random

import pytest
from caramel_quality import small_graph
from few_transfers import bound_by_count, least_with

from planner import AffineCost
from planner.families.caramel import Problem, solve
from planner.families.caramel.pricing import loads_of


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 16])
def test_no_plan_is_below_it_and_it_counts_start_ups(seed: int) -> None:
    random = Random(seed)
    graph = small_graph(random)
    cost = AffineCost(random.randint(5, 20), Fraction(random.randint(1, 20), 10))
    problem = Problem(graph, cost, element_bytes=1)
    best = solve(problem, method="exact_split")
    assert best.plan is not None
    assert best.objective_ns is not None
    known = problem.windows
    used = least_with(len(loads_of(best.plan)), known, cost, 20)
    counted = bound_by_count(known, cost, best.objective_ns, 20)
    assert used is not None
    assert counted is not None
    assert used <= best.objective_ns + 0.01
    assert counted <= best.objective_ns + 0.01
    fewest = min(known.heads) + cost.startup_ns + min(known.tails)
    assert used >= fewest + float(sum(known.sizes) * cost.ns_per_byte) - 0.01
    rounding = len(loads_of(best.plan))  # each transfer's cost is rounded up
    if best.status == "optimal" and best.objective_ns > known.compute_ns + rounding:
        assert used >= best.objective_ns - rounding - 0.01
