"""An algorithm for each transfer: the choice by size, its plans and its bounds."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.collectives.recipes import made as program_made
from planner.families.iteration import (
    MIXED,
    Plan,
    Problem,
    Synchronisation,
    bound,
    check,
    evaluate,
    solve,
)
from planner.families.iteration.baselines import both_ways, enforced
from planner.families.iteration.plan import fastest, mixture
from planner.families.iteration.synchronisation import DEPTHS, recipe_on, synchronisations
from planner.families.iteration.transfers import assign_algorithms
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.network import Network
from planner.model.topologies import Rails, Switch
from tests.collectives.pricing import time_of as time_in_parts
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import clusters, problems
from tests.iteration.making import chain, solved
from tests.iteration.pricing import lasts

affine = st.builds(
    AffineCost,
    st.integers(0, 40),
    st.builds(Fraction, st.integers(0, 30), st.sampled_from([1, 3, 7])),
)


def time_of(cost: AffineCost | TableCost, size: int) -> Fraction:
    return cost.startup_ns + cost.ns_per_byte * size


@given(st.lists(st.tuples(affine, affine), min_size=1, max_size=5), st.integers(1, 60))
def test_each_size_takes_what_costs_least(
    costs: list[tuple[AffineCost, AffineCost]], largest: int
) -> None:
    options = [
        Synchronisation(str(place), 0, half, whole=whole)
        for place, (half, whole) in enumerate(costs)
    ]
    mixed = mixture("some", tuple(options), largest)
    used = set()
    for kind, size in product(("push", "all_reduce"), range(1, largest + 1)):
        least = min(time_of(option.cost(kind), size) for option in options)
        chosen = fastest(mixed, kind, size)
        used.add(chosen)
        assert time_of(chosen.cost(kind), size) == least
        whole = mixed.half if kind == "push" else mixed.all_reduce
        assert whole.cost_ns(size) == ceil(least)
    # None is there for nothing: without it some size of some kind would cost more.
    for option in mixed.options if len(mixed.options) > 1 else ():
        rest = [other for other in mixed.options if other != option]
        assert any(
            time_of(option.cost(kind), size)
            < min(time_of(other.cost(kind), size) for other in rest)
            for kind, size in product(("push", "all_reduce"), range(1, largest + 1))
        )


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("hosts", "accelerators"), [(2, 2), (4, 8), (8, 2), (3, 4)])
@pytest.mark.parametrize("name", ["hierarchical", "halving_doubling"])
def test_what_parts_cost_is_what_the_program_says(
    name: str, hosts: int, accelerators: int, depth: int
) -> None:
    """Where links and NICs start alike; else a step takes the longer start-up of the two."""
    rails = Rails(hosts, accelerators, Fraction(3 * 10**9, 2), 40)
    cluster = Cluster("c", "a test", hosts, rails, Nic(Fraction(10**9), 40, accelerators))
    options, _ = synchronisations(cluster, (name,))
    if not options:
        assert name == "halving_doubling"
        assert hosts & (hosts - 1)
        return
    by_depth = {option.depth: option for option in options}
    assert by_depth.keys() == set(DEPTHS)
    program = program_made(recipe_on(cluster, name))
    networks = [Network(rails.link_bytes_per_s, 40), Network(cluster.nic.bytes_per_s, 40)]
    for size in (program.chunks * depth, program.chunks * depth * 1000):
        for part, kind in (
            (program, "all_reduce"),
            (program.half("reduce_scatter"), "push"),
            (program.half("all_gather"), "pull"),
        ):
            cost = by_depth[depth].cost(kind)
            assert cost.cost_ns(size) == time_in_parts(part, networks, size, depth=depth)


@st.composite
def several_costs(draw: st.DrawFn) -> Cluster:
    """Clusters on which small and large transfers want different algorithms."""
    hosts, accelerators = draw(st.sampled_from([(2, 2), (2, 4), (3, 2), (4, 2), (3, 4)]))
    link = Fraction(10**9 * draw(st.integers(1, 3)))
    rails = Rails(hosts, accelerators, link, draw(st.integers(0, 9)))
    nic = Nic(Fraction(10**9, draw(st.integers(1, 12))), draw(st.integers(1, 30)), accelerators)
    return Cluster("several", "a test", hosts, rails, nic)


mixing = problems(
    cluster=several_costs() | clusters(single=False), max_parameters=2, capped=False, one_order=True
)


def every_way(plan: Plan, options: tuple[Synchronisation, ...]) -> list[Plan]:
    """The plan with every choice of an algorithm and a depth for each transfer."""
    return [
        replace(
            plan,
            transfers=tuple(
                replace(transfer, algorithm=option.algorithm, depth=option.depth)
                for transfer, option in zip(plan.transfers, choice, strict=True)
            ),
        )
        for choice in product(options, repeat=len(plan.transfers))
    ]


@pytest.mark.slow
@settings(max_examples=30)
@given(mixing)
def test_no_choice_of_algorithms_undercuts_a_bound(problem: Problem) -> None:
    """Of every plan of whole parameters, and for each every choice."""
    (mixed,) = problem.cheapest
    assume(1 < len(mixed.options) < 5)
    name = mixed.options[0].algorithm
    _, objective, least = solved(problem)
    for mode, made in (("replicated", brute_force.replicated), ("sharded", brute_force.sharded)):
        if mixed.refusal(mode):  # failures leave workers without a share
            continue
        best = min(
            evaluate(problem, chosen).iteration_ns
            for plan in made(problem, name)
            for chosen in every_way(plan, mixed.options)
        )
        assert max(bound(problem, mixed, mode), least) <= best  # type: ignore[arg-type]
        if mode == "replicated":
            assert objective <= best


@settings(max_examples=40)
@given(mixing, st.randoms(use_true_random=False))
def test_the_choice_by_size_is_the_best_for_a_plan(problem: Problem, random: object) -> None:
    (mixed,) = problem.cheapest
    assume(1 < len(mixed.options) < 5)
    plans = list(brute_force.pushes_then_pulls(problem, mixed.options[0].algorithm))
    plan = random.choice(plans)  # type: ignore[attr-defined]
    chosen = assign_algorithms(plan, mixed)
    check(problem, chosen)
    price = evaluate(problem, chosen).iteration_ns
    assert price == lasts(problem, chosen)
    assert price == min(
        evaluate(problem, other).iteration_ns for other in every_way(plan, mixed.options)
    )


def one_large_one_small(topology: Rails | Switch) -> Problem:
    """Many bytes that have all the time of the backward pass, and a few that come last."""
    graph = chain((100_000, 1_000_000, 4_000), (100_000, 100_000, 16_000_000))
    machines = topology.hosts if isinstance(topology, Rails) else topology.servers
    accelerators = topology.accelerators if isinstance(topology, Rails) else 1
    nic = Nic(Fraction(10**10), 2_000, accelerators, message_ns=2_000)
    return Problem(graph, Cluster("c", "a test", machines, topology, nic), element_bytes=4)


RAILS = Rails(3, 4, Fraction(3 * 10**10), 500)


def test_large_gradients_want_bandwidth_and_small_ones_few_steps() -> None:
    problem = one_large_one_small(RAILS)
    result = solve(problem)
    plan = result.plan
    assert plan is not None
    (large, small) = sorted(plan.transfers, key=lambda transfer: -transfer.size_bytes)
    by_large, by_small = (problem.costs[plan.how(sent)] for sent in (large, small))
    assert by_large.all_reduce.ns_per_byte < by_small.all_reduce.ns_per_byte
    assert by_large.all_reduce.startup_ns > by_small.all_reduce.startup_ns
    assert result.evaluation is not None
    startups = by_large.all_reduce.startup_ns + by_small.all_reduce.startup_ns
    assert result.evaluation.startup_ns == startups
    assert result.objective_ns is not None
    assert result.objective_ns == result.lower_bound_ns
    for option in problem.single:  # the same by one algorithm at one depth, and planned for it
        alike = [plan, enforced(problem, option.algorithm, both_ways(problem, option))]
        times = [
            evaluate(problem, assign_algorithms(other, option)).iteration_ns for other in alike
        ]
        assert result.objective_ns < min(times)


def test_a_single_algorithm_is_no_mixture() -> None:
    problem = one_large_one_small(Switch(2))
    assert dict(problem.left_out)[MIXED] == "ring costs least for transfers of every size"
    with pytest.raises(InvalidInputError, match="mixed chooses among other algorithms"):
        replace(problem, algorithms=(MIXED,))


def test_a_transfer_cannot_name_what_the_cluster_does_not_allow() -> None:
    problem = one_large_one_small(RAILS)
    plan = solved(problem).plan
    for change, path in (({"algorithm": "bml"}, "algorithm"), ({"depth": 3}, "depth")):
        first = replace(plan.transfers[0], **change)
        wrong = replace(plan, transfers=(first, *plan.transfers[1:]))
        with pytest.raises(InvalidPlanError, match=rf"transfers\[0\]\.{path}"):
            check(problem, wrong)
