"""Batches of whole blocks against brute force over batches of layers that end between blocks."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, Status
from planner.families.ibatch import METHODS, OWN_UNITS, Blocks, Problem, check, solve
from tests import oracles
from tests.strategies import problems

SEARCHING = [name for name in METHODS if name not in OWN_UNITS and name not in ("milp", "cpsat")]


def starts_of(data: st.DataObject, problem: Problem) -> list[int]:
    begins = data.draw(st.lists(st.booleans(), min_size=problem.layers, max_size=problem.layers))
    return [at for at, begin in enumerate(begins) if begin or not at]


@settings(max_examples=150)
@given(problems(max_layers=6), st.data())
def test_plans_of_blocks_are_plans_of_layers_with_their_bound(
    problem: Problem, data: st.DataObject
) -> None:
    starts = starts_of(data, problem)
    blocks = Blocks(problem, starts)
    allowed = {*starts, problem.layers}
    costs = [
        oracles.objective(problem, boundaries)
        for boundaries in oracles.all_boundaries(problem)
        if allowed.issuperset(boundaries)
    ]
    layers = oracles.brute_force(problem)
    for method in SEARCHING:
        found = blocks.solve(method=method)
        if found.plan is None:
            assert not costs or method.startswith("greedy")
            assert found.infeasibility is not None
            assert all(0 <= layer < problem.layers for layer in found.infeasibility.layers)
            continue
        check(problem, found.plan)
        ends = oracles.boundaries_of(problem, found.plan)
        assert allowed.issuperset(ends)
        assert found.objective_ns == oracles.objective(problem, ends)
        assert found.lower_bound_ns == layers
        assert (found.status == Status.OPTIMAL) == (found.objective_ns == layers)
        if method in ("auto", "exact"):
            assert found.objective_ns == min(costs)


@settings(max_examples=40)
@given(problems(max_layers=6, direction="push"), st.data())
def test_rules_of_thumb_keep_to_layers(problem: Problem, data: st.DataObject) -> None:
    blocks = Blocks(problem, starts_of(data, problem))
    for method in sorted(OWN_UNITS):
        found, own = blocks.solve(method=method), solve(problem, method=method)
        assert (found.plan, found.objective_ns) == (own.plan, own.objective_ns)
        assert (found.lower_bound_ns, found.infeasibility) == (
            own.lower_bound_ns,
            own.infeasibility,
        )


def test_a_block_beyond_the_cap_is_named_by_its_layers() -> None:
    problem = Problem(
        compute_ns=(1,) * 4,
        layer_bytes=(5, 3, 3, 5),
        cost=AffineCost(1, Fraction(1)),
        max_batch_bytes=5,
    )
    found = Blocks(problem, (0, 1, 3)).solve(method="exact")
    assert found.infeasibility is not None
    assert found.infeasibility.layers == (1, 2)
    assert "layers 1 to 2, one block, have 6 bytes" in found.infeasibility.reason
    assert solve(problem).plan is not None
