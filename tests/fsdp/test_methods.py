"""Every method against brute force, at every memory limit that makes a difference."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, Status
from planner.families.fsdp import METHODS, Mesh, Problem, check, solve
from planner.families.fsdp.baselines import RULES
from planner.families.fsdp.bounds import lower_bound
from planner.families.fsdp.evaluation import Merit, evaluate, merit, peak_of
from planner.families.fsdp.min_memory import least_memory
from planner.model.units import format_bytes
from tests.fsdp.making import every_plan, one_mesh, problems
from tests.strategies import affine_costs


def best_by_memory(problem: Problem) -> list[tuple[int, Merit]]:
    """Each memory with which another plan is the best, and what that plan is compared by."""
    merits = sorted(
        {merit(problem, plan) for plan in every_plan(problem)}, key=lambda known: known.peak_bytes
    )
    best: list[tuple[int, Merit]] = []
    for known in merits:
        if best and known.peak_bytes == best[-1][0]:
            best[-1] = known.peak_bytes, min(known, best[-1][1])
        elif not best or known < best[-1][1]:
            best.append((known.peak_bytes, known))
    return best


@pytest.mark.slow
@settings(max_examples=150)
@given(problems(), st.data())
def test_methods_against_brute_force(problem: Problem, data: st.DataObject) -> None:
    thresholds = best_by_memory(problem)
    least = thresholds[0][0]
    assert solve(problem.within(least - 1)).status == Status.INFEASIBLE
    following = [memory for memory, _ in thresholds[1:]]
    for (memory, best), more in zip(thresholds, [*following, None], strict=True):
        largest = memory + 100 if more is None else more - 1
        check_methods(problem.within(memory), best)
        if largest > memory:
            check_methods(problem.within(data.draw(st.integers(memory, largest))), best)
    check_methods(problem, thresholds[-1][1])


def check_methods(problem: Problem, best: Merit) -> None:
    exact = solve(problem, method="exact")
    assert exact.status == Status.OPTIMAL
    assert exact.plan is not None
    assert merit(problem, exact.plan) == best
    bound, _ = lower_bound(problem)
    assert bound <= best.iteration_ns
    assert solve(problem).plan == exact.plan  # short enough for auto to be exact
    search = solve(problem, method="search")
    assert search.objective_ns is not None
    assert search.plan is not None
    assert merit(problem, search.plan) >= best
    for name in RULES:
        rule = solve(problem, method=name)
        if rule.objective_ns is not None:
            assert rule.objective_ns >= search.objective_ns
        else:
            assert rule.infeasibility is not None
            assert rule.infeasibility.binding == ("memory_bytes",)


@settings(max_examples=60)
@given(problems(max_layers=5), affine_costs(), st.integers(0, 40))
def test_the_bound_of_several_meshes_is_the_least_of_theirs(
    problem: Problem, cost: AffineCost, more: int
) -> None:
    """Not all of them are looked at as closely: where it is not the least, a bound may be weak."""
    meshes = [*problem.meshes, replace(problem.meshes[0], all_gather=cost)]
    for limit in (None, least_memory(problem, 0).memory_bytes + more):
        several = replace(problem, meshes=meshes).within(limit)
        each = [lower_bound(replace(several, meshes=[mesh]))[0] for mesh in meshes]
        assert lower_bound(several) == (min(each), False)


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(max_layers=4, recomputed=False))
def test_least_memory_is_that_of_brute_force(problem: Problem) -> None:
    least = min(peak_of(problem, plan) for plan in every_plan(problem))
    shape = least_memory(problem, 0)
    assert shape.memory_bytes == least
    nothing = solve(problem.within(least - 1))
    assert nothing.infeasibility is not None
    assert f"({least} bytes)" in nothing.infeasibility.reason
    assert nothing.infeasibility.binding == ("memory_bytes",)


@pytest.mark.slow
@settings(max_examples=300)
@given(problems(max_layers=9), st.integers(0, 60))
def test_longer_chains_fit_and_stay_above_the_bound(problem: Problem, more: int) -> None:
    least = least_memory(problem, 0).memory_bytes
    limited = problem.within(least + more)
    result = solve(limited, method="search")
    assert result.plan is not None
    assert result.evaluation is not None
    check(limited, result.plan)
    assert result.evaluation.peak_bytes <= least + more
    assert solve(problem.within(least - 1)).plan is None
    assert result == replace(solve(limited, method="search"), runtime_s=result.runtime_s)


@settings(max_examples=100)
@given(problems(max_layers=4), st.integers(0, 40), st.integers(2, 5))
def test_scaled_problems_have_scaled_answers(problem: Problem, more: int, factor: int) -> None:
    cost = AffineCost(3, Fraction(2))
    mesh = Mesh(shards=1, all_gather=cost, reduce_scatter=cost)
    problem = replace(problem, meshes=[mesh], channels="two")
    problem = problem.within(least_memory(problem, 0).memory_bytes + more)
    slower = AffineCost(3 * factor, Fraction(2 * factor))
    scaled = replace(
        problem,
        forward_ns=[factor * time for time in problem.forward_ns],
        backward_ns=[factor * time for time in problem.backward_ns],
        meshes=[Mesh(shards=1, all_gather=slower, reduce_scatter=slower)],
    )
    shorter, longer = solve(problem).objective_ns, solve(scaled).objective_ns
    assert shorter is not None
    assert longer == factor * shorter


def test_the_mesh_is_chosen() -> None:
    """A copy on each half of the ranks is gathered faster, and takes twice the memory."""
    near, far = AffineCost(1, Fraction(1, 10)), AffineCost(10, Fraction(1))
    problem = Problem(
        forward_ns=(10, 10),
        backward_ns=(20, 20),
        parameter_bytes=(100, 100),
        meshes=[
            Mesh(shards=8, all_gather=far, reduce_scatter=far),
            Mesh(shards=4, replicas=2, all_gather=near, reduce_scatter=near, all_reduce=near),
        ],
        optimiser=Fraction(5),
    )
    plan = solve(problem).plan
    assert plan is not None
    assert plan.mesh == 1
    tight = least_memory(problem, 0).memory_bytes
    assert tight < least_memory(problem, 1).memory_bytes
    plan = solve(problem.within(tight)).plan
    assert plan is not None
    assert plan.mesh == 0


def test_ties_hold_layers_together() -> None:
    problem = Problem(
        forward_ns=(10,) * 4,
        backward_ns=(20,) * 4,
        parameter_bytes=(40,) * 4,
        meshes=[one_mesh(0, 1)],
        tied=[(2, 1)],
    )
    for method in METHODS:
        plan = solve(problem, method=method).plan
        assert plan is not None
        assert 2 not in [unit.start for unit in plan.units]


def test_infeasible_names_what_dominates() -> None:
    problem = Problem(
        forward_ns=(1, 1),
        backward_ns=(1, 1),
        parameter_bytes=(2**20, 2**20),
        activation_bytes=(2**30, 2**30),
        meshes=[one_mesh(0, 1)],
        memory_bytes=2**30,
    )
    reason = solve(problem).infeasibility
    assert reason is not None
    assert "mostly for activations" in reason.reason
    assert format_bytes(least_memory(problem, 0).memory_bytes) in reason.reason
    stored = replace(problem, activation_bytes=None, optimiser=Fraction(10**6))
    reason = solve(stored).infeasibility
    assert reason is not None
    assert "mostly for what each rank stores" in reason.reason


def test_long_chains_are_refused_by_exact_and_planned_by_search() -> None:
    count = 60
    problem = Problem(
        forward_ns=(1000,) * count,
        backward_ns=(2000,) * count,
        parameter_bytes=(1000,) * count,
        activation_bytes=(100,) * count,
        meshes=[one_mesh(300, 1)],
    )
    with pytest.raises(InvalidInputError, match="chains of up to 12 layers"):
        solve(problem, method="exact")
    limited = problem.within(2 * least_memory(problem, 0).memory_bytes)
    result = solve(limited)
    assert result.method == "search"
    assert result.evaluation == evaluate(limited, result.plan) if result.plan else False


def test_a_deadline_leaves_a_plan_that_fits() -> None:
    count = 40
    problem = Problem(
        forward_ns=(1000,) * count,
        backward_ns=(2000,) * count,
        parameter_bytes=tuple(range(500, 500 + count)),
        activation_bytes=(100,) * count,
        meshes=[one_mesh(300, 1)],
    )
    limited = problem.within(least_memory(problem, 0).memory_bytes)
    result = solve(limited, time_limit=1e-9)
    assert result.plan is not None
    assert result.status == Status.TIME_LIMIT


def test_what_a_changed_unit_no_longer_keeps_is_not_recomputed() -> None:
    problem = Problem(
        forward_ns=(0,) * 7,
        backward_ns=(0,) * 7,
        parameter_bytes=(1, 1, 1, 3, 1, 1, 1),
        gradient_bytes=(0, 0, 1, 3, 0, 0, 2),
        activation_bytes=(0, 0, 0, 0, 0, 1, 4),
        checkpoint_bytes=(0,) * 7,
        meshes=[
            Mesh(
                shards=2,
                all_gather=AffineCost(0, Fraction(1)),
                reduce_scatter=AffineCost(1, Fraction(0)),
            )
        ],
    )
    limited = problem.within(least_memory(problem, 0).memory_bytes + 8)
    assert solve(limited, method="exact").objective_ns == 11


def test_a_unit_may_fit_where_one_that_ends_sooner_does_not() -> None:
    """Behind the last layer nothing is scattered meanwhile: all that is made may travel at once."""
    problem = Problem(
        forward_ns=(0,) * 7,
        backward_ns=(0,) * 7,
        parameter_bytes=(1,) * 7,
        gradient_bytes=(0, 0, 0, 0, 1, 2, 6),
        activation_bytes=(0, 4, 0, 5, 0, 0, 0),
        meshes=[
            Mesh(
                shards=2,
                all_gather=AffineCost(0, Fraction(0)),
                reduce_scatter=AffineCost(1, Fraction(0)),
                own_links=True,
            )
        ],
        optimiser=Fraction(1, 2),
    )
    limited = problem.within(least_memory(problem, 0).memory_bytes + 1)
    for method in ("search", "exact"):
        result = solve(limited, method=method)
        assert (result.objective_ns, result.lower_bound_ns) == (1, 1)
