"""An algorithm for each transfer, measured costs, and transfers that are filled or interleaved."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner import read_cluster
from planner.families.iteration import (
    MIXED,
    MODES,
    Plan,
    Problem,
    Synchronisation,
    alternatives,
    best_of,
    bound,
    check,
    evaluate,
    solve,
)
from planner.families.iteration.baselines import both_ways, enforced
from planner.families.iteration.evaluation import check_room
from planner.families.iteration.measured import notes_of
from planner.families.iteration.plan import Mode, fastest, mixture
from planner.families.iteration.push_pull_interleaving import interleaved
from planner.families.iteration.synchronisation import synchronisations
from planner.families.iteration.transfers import assign_algorithms, greedy_fill
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.errors import InvalidPlanError
from planner.model.measured import COLLECTIVES, Measured, MeasuredNetwork
from planner.model.topologies import Rails, Switch
from planner.solving.deadline import NEVER
from planner.solving.transfers import Kind
from tests.formats.refused import refused
from tests.iteration import brute_force, making
from tests.iteration.iteration_strategies import disturbed, measured, problems, whole_rates
from tests.iteration.making import chain, layered, on_switch, price, profile_of, solved
from tests.iteration.pricing import lasts
from tests.present import present

affine = st.builds(
    AffineCost,
    st.integers(0, 40),
    st.builds(Fraction, st.integers(0, 30), st.sampled_from([1, 3, 7])),
)


@given(st.lists(st.tuples(affine, affine), min_size=1, max_size=5), st.integers(1, 60))
def test_each_size_takes_what_costs_least(
    costs: list[tuple[AffineCost, AffineCost]], largest: int
) -> None:
    options = [
        Synchronisation(str(place), 0, half, whole=whole)
        for place, (half, whole) in enumerate(costs)
    ]
    mixed = mixture("some", tuple(options), largest)
    kinds: tuple[Kind, ...] = ("push", "all_reduce")
    sizes = list(product(kinds, range(1, largest + 1)))

    def takes(option: Synchronisation, kind: Kind, size: int) -> Fraction:
        cost = option.cost(kind)
        return cost.startup_ns + cost.ns_per_byte * size

    for kind, size in sizes:
        least = min(takes(option, kind, size) for option in options)
        assert takes(fastest(mixed, kind, size), kind, size) == least
        assert mixed.cost(kind).cost_ns(size) == ceil(least)
    # None is there for nothing: without it some size of some kind would cost more.
    for option in mixed.options if len(mixed.options) > 1 else ():
        rest = [other for other in mixed.options if other != option]
        assert any(takes(option, *one) < min(takes(other, *one) for other in rest) for one in sizes)


whole = problems(cluster=whole_rates(), capped=False)


def one_large_one_small(topology: Rails | Switch, machines: int, accelerators: int) -> Problem:
    """Many bytes that have all the time of the backward pass, and a few that come last."""
    graph = chain((100_000, 1_000_000, 4_000), (100_000, 100_000, 16_000_000))
    nic = Nic(Fraction(10**10), 2_000, accelerators, message_ns=2_000)
    return Problem(graph, Cluster("c", "a test", machines, topology, nic), element_bytes=4)


MIXTURE = one_large_one_small(Rails(3, 4, Fraction(3 * 10**10), 500), 3, 4)


def test_large_gradients_want_bandwidth_and_small_ones_few_steps() -> None:
    problem = MIXTURE
    plan, objective, least = solved(problem)
    large, small = sorted(plan.transfers, key=lambda transfer: -transfer.size_bytes)
    by_large, by_small = (problem.costs[plan.how(sent)].all_reduce for sent in (large, small))
    assert by_large.ns_per_byte < by_small.ns_per_byte
    assert by_large.startup_ns > by_small.startup_ns
    assert evaluate(problem, plan).startup_ns == by_large.startup_ns + by_small.startup_ns
    assert objective == least
    named: list[tuple[str, Any]] = [("algorithm", "bml"), ("depth", 3)]
    for field, value in named:  # which the cluster does not allow
        first = replace(plan.transfers[0], **{field: value})
        with refused(f"transfers[0].{field}", "", InvalidPlanError):
            check(problem, replace(plan, transfers=(first, *plan.transfers[1:])))
    for option in problem.single:  # the same by one algorithm at one depth, and planned for it
        alike = [plan, enforced(problem, option.algorithm, both_ways(problem, option))]
        for other in alike:
            assert objective < price(problem, assign_algorithms(other, option))


def test_a_single_algorithm_is_no_mixture() -> None:
    problem = one_large_one_small(Switch(2), 2, 1)
    assert dict(problem.left_out)[MIXED] == "ring costs least for transfers of every size"
    with refused(None, "mixed chooses among other algorithms"):
        replace(problem, algorithms=(MIXED,))


@pytest.mark.slow
@settings(max_examples=150)
@given(whole | disturbed(whole))
@example(MIXTURE)  # the mixture takes as long, in as many transfers
def test_no_alternative_as_long_is_simpler(problem: Problem) -> None:
    def key(plan: Plan) -> tuple[int, bool, int]:
        used = [transfer.algorithm or plan.algorithm for transfer in plan.transfers]
        sizes = [part.stop - part.start for one in plan.transfers for part in one.parts]
        return len(used), len(set(used)) > 1, sum(sizes)

    found = alternatives(problem, NEVER)
    best, known = best_of(problem, found, 0.0), [one for one in found if one.plan is not None]
    assert all(one.objective_ns == price(problem, present(one.plan)) for one in known)
    plans = [present(one.plan) for one in known if one.objective_ns == best.objective_ns]
    assert best.plan is None or key(best.plan) == min(map(key, plans))
    if problem == MIXTURE:
        assert {len(plan.algorithms) for plan in plans} == {1, 2}


# ---
# Clusters whose network was measured.


PROFILE = layered(*((1000 * place, 2000, 4000 * place) for place in range(1, 6)))


def tabled(*tables: Measured) -> Cluster:
    return on_switch(2, 0, network=MeasuredNetwork(tables))


def test_each_kind_of_transfer_is_priced_by_its_own_table() -> None:
    tables = (
        Measured("all_reduce", 2, 1, ((10, 100), (20, 200))),
        Measured("all_gather", 2, 1, ((10, 30), (20, 31))),
        Measured("reduce_scatter", 2, 1, ((10, 50), (20, 70))),
    )
    (option,), _ = synchronisations(tabled(*tables), ("measured",))
    assert [option.cost(kind).cost_ns(15) for kind in ("all_reduce", "push", "pull")] == [
        150, 60, 31,
    ]  # fmt: skip


@given(measured(1))
def test_sizes_beyond_the_table_are_said(problem: Problem) -> None:
    plan = solved(problem).plan
    beyond, kinds = False, {"all_reduce": 0, "pull": 1, "push": 2}
    for transfer in plan.transfers:
        points = present(problem.cluster.network).tables[kinds[transfer.kind]].cost.points
        beyond |= not points[0][0] <= transfer.size_bytes <= points[-1][0]
    assert beyond == any("beyond" in note for note in notes_of(problem.cluster, plan))


def test_cut_transfers_may_cost_less_than_whole_ones() -> None:
    rows = ((4000, 10), (8000, 10**6), (20000, 2 * 10**6))
    tables = tuple(Measured(name, 2, 1, rows) for name in COLLECTIVES)
    problem = Problem.from_profile(PROFILE, tabled(*tables))
    sizes = enumerate(problem.pushed)
    parts = [(j, start, start + 4000) for j, size in sizes for start in range(0, size, 4000)]
    kinds: tuple[Kind, ...] = ("push", "pull")
    sent = [making.one(kind, part) for kind in kinds for part in parts]
    cut = enforced(problem, "measured", sent)
    check(problem, cut)
    assert bound(problem, problem.single[0], "sharded") <= price(problem, cut) < 10**6


# ---
# Filled transfers, and pushes between pulls.


@settings(max_examples=60)
@given(problems(capped=True), st.sampled_from(MODES), st.booleans())
def test_filled_transfers_make_a_plan(problem: Problem, mode: Mode, waiting: bool) -> None:
    room = present(problem.transfer_limit(mode))
    assume(room >= problem.element_bytes)
    plan = greedy_fill(problem, problem.single[0], mode, waiting=waiting)
    assert plan.mode == mode
    check(problem, plan)
    check_room(problem, plan)
    assert price(problem, plan) == lasts(problem, plan)
    for kind in ("all_reduce", "push", "pull") if waiting else ():
        sent = [transfer.size_bytes for transfer in plan.transfers if transfer.kind == kind]
        assert all(room - size < problem.element_bytes for size in sent[:-1])


@settings(max_examples=40)
@given(problems(capped=False, one_order=True))
def test_byte_by_byte_and_without_start_ups_it_is_optimal(problem: Problem) -> None:
    """Then it is Jackson's preemptive rule, whose bound it meets."""
    single = {"max_transfer_bytes": 1, "element_bytes": 1, "algorithms": ("ring",)}
    problem = replace(problem, cluster=on_switch(2, 0), **single)  # type: ignore[arg-type]
    option = problem.single[0]
    assert option.all_reduce.cost_ns(1) == 1
    plan = greedy_fill(problem, option, "replicated", waiting=False)
    assert price(problem, plan) == bound(problem, option, "replicated", plan)


def test_what_is_read_first_fills_a_transfer_that_another_gradient_began() -> None:
    """By hand: w2 is ready at 10, w1 at 20, and w1 is read first.

    A transfer takes 10 ns and 1 ns a byte. 8 of w2's 12 bytes travel from 10 to 28, then w1's 6 and
    2 of w2 until 46, when the forward pass begins, and the last 2 of w2 until 58. Better is to keep
    the channel free for w1 from 20 to 36.
    """
    graph = chain((100, 10, 6), (100, 10, 12))
    options = {"algorithms": ("ps",), "modes": ("replicated",), "max_transfer_bytes": 8}
    problem = Problem(graph, on_switch(2, 5), **options)  # type: ignore[arg-type]
    (option,) = problem.single
    assert option.all_reduce == AffineCost(10, Fraction(1))
    plan = greedy_fill(problem, option, "replicated", waiting=False)
    sent = [[tuple(part) for part in transfer.parts] for transfer in plan.transfers]
    assert sent == [[(1, 0, 8)], [(0, 0, 6), (1, 8, 10)], [(1, 10, 12)]]
    assert price(problem, plan) == 46 + 200
    assert solved(problem).iteration_ns == 36 + 200


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cluster", ["h100-8", "bml-bcube"])
def test_auto_fills_transfers_where_there_is_a_cap(cluster: str, mode: Mode) -> None:
    """Of LeNet-5 with transfers of a mebibyte: cut from large ones they were 33 % too long."""
    limits: dict[str, Any] = {"max_transfer_bytes": 2**20, "modes": (mode,), "element_bytes": 4}
    speed = Fraction(1, 50)
    problem = Problem.from_profile(
        profile_of("lenet5"), read_cluster(cluster), computation=speed, **limits
    )
    _, objective, least = solved(problem)
    assert objective <= 1.05 * least
    for option, waiting in product(problem.single, (True, False)):
        assert objective <= price(problem, greedy_fill(problem, option, mode, waiting=waiting))


@given(problems(), st.sampled_from([1, 3, 7]))
@example(Problem(chain((10, 20, 4000), (10, 20, 800)), on_switch(4, 5)), 64)
@example(Problem(chain((10, 20, 1), (10, 20, 181142431)), on_switch(4, 5)), 2)
def test_pushes_between_pulls_are_plans(problem: Problem, element_bytes: int) -> None:
    """What is left of an element comes last, in one piece: of 800 bytes half of one of 64."""
    problem = replace(problem, element_bytes=element_bytes, max_transfer_bytes=None)
    for option in problem.options:
        for transfers in interleaved(problem, option, 0, NEVER):
            plan = enforced(problem, option.algorithm, transfers)
            check(problem, assign_algorithms(plan, option))
            for transfer in transfers:
                assert len({part.parameter for part in transfer.parts}) == len(transfer.parts)


def test_what_is_read_late_is_pushed_while_the_forward_pass_computes() -> None:
    """By hand: w1 is pushed from 2 to 17 and pulled until 32; w2's 420 ns hide behind f1."""
    graph = chain((1000, 1, 10), (5, 1, 400))
    problem = Problem(graph, on_switch(2, 10), algorithms=("ring",), modes=("sharded",))
    assert solve(problem).objective_ns == 32 + 1005
    every = (price(problem, plan) for plan in brute_force.sharded(problem, "ring"))
    assert min(every) == 32 + 1005
    apart = brute_force.pushes_then_pulls(problem, "ring")
    assert min(price(problem, plan) for plan in apart) > 1200
