"""Every method against brute force, at every memory limit that makes a difference."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, Status
from planner.families.fsdp import METHODS, Mesh, Plan, Problem, evaluate, solve, whole_transfers
from planner.families.fsdp.baselines import BASELINES
from planner.families.fsdp.bounds import lower_bound
from planner.families.fsdp.chain import NEVER_NS, Chain
from planner.families.fsdp.evaluation import Merit, iteration_ns, merit, peak_of
from planner.families.fsdp.min_memory import least_memory
from planner.families.fsdp.partitions import _Choices, _undominated, best_units
from planner.families.fsdp.prefetch import prefetched
from planner.families.fsdp.problem import CHANNELS, Channels, at_use
from planner.families.fsdp.whole_transfers import _Labels, _Paths, fastest_units, least_time
from planner.model.units import format_bytes
from planner.solving.deadline import NEVER
from tests.fsdp.making import chain, every_plan, kept, one_mesh, problems
from tests.present import present
from tests.strategies import affine_costs


def best_by_memory(problem: Problem) -> list[tuple[int, Merit]]:
    """Each memory with which another plan is the best, and what that plan is compared by."""
    merits = {merit(problem, plan) for plan in every_plan(problem)}
    best: list[tuple[int, Merit]] = []
    for known in sorted(merits, key=lambda known: (known.peak_bytes, known)):
        if not best or known < best[-1][1]:
            best.append((known.peak_bytes, known))
    return best


@pytest.mark.slow
@settings(max_examples=150)
@given(problems(), st.data())
def test_methods_against_brute_force(problem: Problem, data: st.DataObject) -> None:
    thresholds = best_by_memory(problem)
    least = thresholds[0][0]
    assert peak_of(problem, least_memory(problem, 0)) == least
    assert f"({least} bytes)" in reason_of(problem.within(least - 1))
    following = [memory for memory, _ in thresholds[1:]]
    for (memory, best), more in zip(thresholds, [*following, None], strict=True):
        largest = memory + 100 if more is None else more - 1
        check_methods(problem.within(memory), best)
        if largest > memory:
            check_methods(problem.within(data.draw(st.integers(memory, largest))), best)
    check_methods(problem, thresholds[-1][1])


def planned(problem: Problem, method: str = "auto") -> Plan:
    return present(solve(problem, method=method).plan)


def reason_of(problem: Problem, method: str = "auto") -> str:
    """Return why there is no plan: the memory."""
    missing = present(solve(problem, method=method).infeasibility)
    assert missing.binding == ("memory_bytes",)
    return missing.reason


def check_methods(problem: Problem, best: Merit) -> None:
    exact = solve(problem, method="exact")
    assert exact.status == Status.OPTIMAL
    assert merit(problem, present(exact.plan)) == best
    assert lower_bound(problem)[0] <= best.iteration_ns
    assert planned(problem) == exact.plan  # short enough for auto to be exact
    search = merit(problem, planned(problem, "search"))
    assert search >= best
    for name in BASELINES:
        rule = solve(problem, method=name).objective_ns
        assert reason_of(problem, name) if rule is None else rule >= search.iteration_ns


@pytest.mark.parametrize("channels", CHANNELS)
def test_exact_finds_plans_that_search_does_not(channels: Channels) -> None:
    sizes = {"parameter_bytes": (5, 1, 3), "gradient_bytes": 0, "activation_bytes": 0}
    problem = chain(3, forward_ns=0, backward_ns=0, **sizes, channels=channels)
    memory = peak_of(problem, least_memory(problem, 0)) + 1
    merits = (merit(problem, plan) for plan in every_plan(problem))
    check_methods(problem.within(memory), min(one for one in merits if one.peak_bytes <= memory))


@settings(max_examples=60)
@given(problems(max_layers=5), affine_costs(), st.integers(0, 40))
def test_the_bound_of_several_meshes_is_the_least_of_theirs(
    problem: Problem, cost: AffineCost, more: int
) -> None:
    """Not all of them are looked at as closely: where it is not the least, a bound may be weak."""
    meshes = [*problem.meshes, replace(problem.meshes[0], all_gather=cost)]
    for limit in (None, peak_of(problem, least_memory(problem, 0)) + more):
        several = replace(problem, meshes=meshes).within(limit)
        each = [lower_bound(replace(several, meshes=[mesh]))[0] for mesh in meshes]
        assert lower_bound(several) == (min(each), False)


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(max_layers=4, recomputed=False))
def test_least_memory_is_that_of_brute_force(problem: Problem) -> None:
    least = min(peak_of(problem, plan) for plan in every_plan(problem))
    assert peak_of(problem, least_memory(problem, 0)) == least
    assert f"({least} bytes)" in reason_of(problem.within(least - 1))


@pytest.mark.slow
@settings(max_examples=300)
@given(problems(max_layers=9), st.integers(0, 60))
def test_longer_chains_fit_into_the_least_memory_and_no_less(problem: Problem, more: int) -> None:
    least = peak_of(problem, least_memory(problem, 0))
    assert planned(problem.within(least + more), "search")
    assert solve(problem.within(least - 1)).plan is None


def test_the_mesh_is_chosen() -> None:
    """A copy on each half of the ranks is gathered faster, and takes twice the memory."""
    near, far = AffineCost(1, Fraction(1, 10)), AffineCost(10, Fraction(1))
    problem = chain(
        2,
        parameter_bytes=100,
        meshes=[
            Mesh(shards=8, all_gather=far, reduce_scatter=far),
            Mesh(shards=4, replicas=2, all_gather=near, reduce_scatter=near, all_reduce=near),
        ],
        optimiser=Fraction(5),
    )
    assert planned(problem).mesh == 1
    tight = peak_of(problem, least_memory(problem, 0))
    assert tight < peak_of(problem, least_memory(problem, 1))
    assert planned(problem.within(tight)).mesh == 0


def test_ties_hold_layers_together() -> None:
    problem = chain(4, tied=[(2, 1)])
    for method in METHODS:
        assert 2 not in [unit.start for unit in planned(problem, method).units]


def test_infeasible_names_what_dominates() -> None:
    problem = chain(2, parameter_bytes=2**20, activation_bytes=2**30, memory_bytes=2**30)
    reason = reason_of(problem)
    assert "mostly for activations" in reason
    assert format_bytes(peak_of(problem, least_memory(problem, 0))) in reason
    stored = replace(problem, activation_bytes=None, optimiser=Fraction(10**6))
    assert "mostly for what each rank stores" in reason_of(stored)


def test_long_chains_are_refused_by_exact_and_planned_by_search() -> None:
    sizes = tuple(range(500, 560))
    problem = chain(60, parameter_bytes=sizes, activation_bytes=100)
    with pytest.raises(InvalidInputError, match="chains of up to 12 layers"):
        solve(problem, method="exact")
    limited = problem.within(peak_of(problem, least_memory(problem, 0)))
    late = solve(limited, time_limit=1e-9)
    assert late.method == "search"
    assert late.plan is not None
    assert late.status == Status.TIME_LIMIT


def gathered(ns_per_byte: int, **fields: Any) -> Problem:
    """Return 7 layers that take no time but a nanosecond for each reduce-scatter."""
    near, one = AffineCost(0, Fraction(ns_per_byte)), AffineCost(1, Fraction(0))
    mesh = Mesh(shards=2, all_gather=near, reduce_scatter=one)
    return chain(7, forward_ns=0, backward_ns=0, meshes=[mesh], **fields)


def test_what_a_changed_unit_no_longer_keeps_is_not_recomputed() -> None:
    problem = gathered(
        1,
        parameter_bytes=(1, 1, 1, 3, 1, 1, 1),
        gradient_bytes=(0, 0, 1, 3, 0, 0, 2),
        activation_bytes=(0, 0, 0, 0, 0, 1, 4),
        checkpoint_bytes=0,
    )
    limited = problem.within(peak_of(problem, least_memory(problem, 0)) + 8)
    assert solve(limited, method="exact").objective_ns == 11


def test_a_unit_may_fit_where_one_that_ends_sooner_does_not() -> None:
    """Behind the last layer nothing is scattered meanwhile: all that is made may travel at once."""
    problem = gathered(
        0,
        parameter_bytes=1,
        gradient_bytes=(0, 0, 0, 0, 1, 2, 6),
        activation_bytes=(0, 4, 0, 5, 0, 0, 0),
        optimiser=Fraction(1, 2),
    )
    limited = problem.within(peak_of(problem, least_memory(problem, 0)) + 1)
    for method in ("search", "exact"):
        result = solve(limited, method=method)
        assert (result.objective_ns, result.lower_bound_ns) == (1, 1)


# --- whole transfers under the memory limit


@settings(max_examples=60)
@given(problems(), st.sampled_from((1, 3, 256)), st.data())
def test_no_plan_is_faster_than_whole_transfers(
    problem: Problem, few: int, data: st.DataObject
) -> None:
    """At every memory that makes a difference, also if labels are merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_transfers, "LABELS", few)
        patch.setattr(whole_transfers, "LEAST_LABELS", 1)
        for memory, best in best_by_memory(problem):
            limited = problem.within(memory)
            bounds = [least_time(limited, mesh) for mesh in problem.meshes]
            assert min(bounds) <= best.iteration_ns
            enough = data.draw(st.integers(0, best.iteration_ns + 9))
            for mesh, bound in zip(problem.meshes, bounds, strict=True):
                assert least_time(limited, mesh, enough_ns=enough) <= max(enough, 0)
                assert bound <= enough or least_time(limited, mesh, enough_ns=bound) == bound


def coarsened(count: int, channels: Channels, startup_ns: int) -> Problem:
    """Return a chain like a convolutional net's: large activations first, large parameters last."""
    layers = range(count)
    return chain(
        count,
        forward_ns=[9 - layer for layer in layers],
        backward_ns=[2 * (9 - layer) for layer in layers],
        parameter_bytes=[2 + layer * layer for layer in layers],
        activation_bytes=[8 * (count - layer) for layer in layers],
        channels=channels,
        meshes=[one_mesh(startup_ns, 1)],
    )


@pytest.mark.parametrize("channels", ["one", "two"])
@pytest.mark.parametrize("startup_ns", [2, 20])
def test_the_bound_is_close_and_fastest_units_are_found_at_the_least_memory(
    channels: Channels, startup_ns: int
) -> None:
    problem = coarsened(7, channels, startup_ns)
    limited = problem.within(peak_of(problem, least_memory(problem, 0)))
    best = present(solve(limited, method="exact").objective_ns)
    assert 0.98 * best <= lower_bound(limited)[0] <= best
    if (channels, startup_ns) == ("one", 20):
        units = fastest_units(limited, limited.meshes[0], NEVER, best + 1)
        plan = prefetched(limited, at_use(0, ((*unit, False) for unit in units)))
        assert iteration_ns(limited, present(plan)) == best
        assert not fastest_units(limited, limited.meshes[0], NEVER, best)


def test_more_than_two_inputs_of_reduce_scatters_may_be_held() -> None:
    """Three short steps with much to send, and a long one behind them that waits for no buffer."""
    problem = chain(
        4,
        forward_ns=(0, 3, 3, 4),
        backward_ns=(30, 1, 0, 0),
        parameter_bytes=(13, 13, 7, 3),
        gradient_bytes=(12, 17, 7, 2),
        activation_bytes=0,
        channels="two",
    ).within(10**3)
    best = solve(problem, method="exact")
    assert best.objective_ns == 83
    assert present(best.plan).buffers > 2
    assert least_time(problem, problem.meshes[0]) <= 83


# --- the best units without a memory limit, and what any units take, with few choices kept


@settings(max_examples=1500)
@given(problems(max_layers=7), st.integers(1, 3), st.data())
def test_bound_and_plan_enclose_the_best(problem: Problem, few: int, data: st.DataObject) -> None:
    layers = problem.layers
    allowed = {
        (start, stop)
        for start in range(layers)
        for stop in range(start + 1, layers + 1)
        if stop == start + 1 or data.draw(st.booleans(), label=f"{start} to {stop}")
    }
    cuts = [
        (0, *(layer + 1 for layer, cut in enumerate(chosen) if cut))
        for chosen in product((False, True), repeat=layers - 1)
    ]
    times = {
        starts: evaluate(problem, Plan(0, kept(*starts[1:], layers), len(starts))).iteration_ns
        for starts in cuts
        if allowed.issuperset(pairwise([*starts, layers]))
    }
    for number in (few, 1000):
        units = best_units(
            problem,
            problem.meshes[0],
            fits=lambda start, stop: (start, stop) in allowed,
            kept=number,
            bounded=True,
        )
        starts = tuple(start for start, _ in units.ranges)
        assert times[starts] == units.iteration_ns
        assert units.bound_ns <= min(times.values()) <= units.iteration_ns
    assert units.bound_ns == units.iteration_ns  # nothing was left out


_ENDS = st.tuples(*[st.integers(0, 5)] * 3)


@given(st.lists(_ENDS, max_size=12))
def test_only_what_another_choice_has_all_as_early_is_left_out(
    ends: list[tuple[int, int, int]],
) -> None:
    columns = np.array(ends, np.int64).reshape(-1, 3).T
    left = _undominated(_Choices.of(*columns, 0, np.arange(len(ends))))
    least = {
        end
        for end in ends
        if not any(other != end and all(map(int.__le__, other, end)) for other in ends)
    }
    rows = [ends[row] for row in left.behind]
    assert set(rows) == least
    assert len(rows) == len(least)
    assert rows == sorted(rows)


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_merged_labels_are_nowhere_above_those_they_stand_for(seed: int, most: int) -> None:
    problem = coarsened(7, "two", 2).within(10**3)
    known = Chain(problem, problem.meshes[0], NEVER)
    paths = _Paths(known, 1, NEVER_NS)
    paths.most = most
    random = np.random.default_rng(seed)
    labels = random.integers(0, 99, (len(paths.table), 40))
    fields = _Labels._fields
    labels[fields.index("kept")] %= known.most_kept[known.count] + 1
    labels[fields.index("first")] %= known.count
    merged = paths._thinned(labels, known.count, real=False)
    assert merged.shape[1] < labels.shape[1]
    for label in labels[:-1].T:
        assert (merged[:-1] <= label[:, None]).all(axis=0).any()
