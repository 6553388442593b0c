"""An algorithm for each transfer, measured costs, and transfers that are filled or interleaved."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil

import pytest
from hypothesis import assume, given, settings
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
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.measured import COLLECTIVES, Measured, MeasuredNetwork
from planner.model.topologies import Rails, Switch
from planner.solving.deadline import NEVER
from planner.solving.transfers import Kind
from tests.caramel.test_targets import compositions, spans
from tests.iteration import brute_force, making
from tests.iteration.iteration_strategies import (
    clusters,
    disturbed,
    measured,
    problems,
    whole_rates,
)
from tests.iteration.making import chain, layered, on_switch, profile_of, solved
from tests.iteration.pricing import lasts

affine = st.builds(
    AffineCost,
    st.integers(0, 40),
    st.builds(Fraction, st.integers(0, 30), st.sampled_from([1, 3, 7])),
)


def price(problem: Problem, plan: Plan) -> int:
    return evaluate(problem, plan).iteration_ns


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
    sizes = list(product(("push", "all_reduce"), range(1, largest + 1)))
    for kind, size in sizes:
        least = min(time_of(option.cost(kind), size) for option in options)
        chosen = fastest(mixed, kind, size)
        assert time_of(chosen.cost(kind), size) == least
        whole = mixed.half if kind == "push" else mixed.all_reduce
        assert whole.cost_ns(size) == ceil(least)
    # None is there for nothing: without it some size of some kind would cost more.
    for option in mixed.options if len(mixed.options) > 1 else ():
        rest = [other for other in mixed.options if other != option]
        assert any(
            time_of(option.cost(kind), size)
            < min(time_of(other.cost(kind), size) for other in rest)
            for kind, size in sizes
        )


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
whole = problems(cluster=whole_rates(), capped=False)


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
@settings(max_examples=40)
@given(mixing)
def test_no_choice_of_algorithms_undercuts_a_bound_or_that_by_size(problem: Problem) -> None:
    """Of every plan of whole parameters, and for each every choice."""
    (mixed,) = problem.cheapest
    assume(1 < len(mixed.options) < 5)
    _, objective, least = solved(problem)
    for mode, made in zip(MODES, (brute_force.replicated, brute_force.sharded), strict=True):
        if mixed.refusal(mode):  # failures leave workers without a share
            continue
        below = max(bound(problem, mixed, mode), least)
        for plan in made(problem, mixed.options[0].algorithm):
            chosen = assign_algorithms(plan, mixed)
            check(problem, chosen)
            time_ns = price(problem, chosen)
            assert time_ns == lasts(problem, chosen)
            others = every_way(plan, mixed.options)
            assert time_ns == min(price(problem, other) for other in others)
            assert below <= time_ns
            assert mode == "sharded" or objective <= time_ns


def one_large_one_small(topology: Rails | Switch, machines: int, accelerators: int) -> Problem:
    """Many bytes that have all the time of the backward pass, and a few that come last."""
    graph = chain((100_000, 1_000_000, 4_000), (100_000, 100_000, 16_000_000))
    nic = Nic(Fraction(10**10), 2_000, accelerators, message_ns=2_000)
    return Problem(graph, Cluster("c", "a test", machines, topology, nic), element_bytes=4)


MIXTURE = one_large_one_small(Rails(3, 4, Fraction(3 * 10**10), 500), 3, 4)


def test_large_gradients_want_bandwidth_and_small_ones_few_steps() -> None:
    problem, result = MIXTURE, solve(MIXTURE)
    plan = result.plan
    assert plan is not None
    assert result.evaluation is not None
    assert result.objective_ns is not None
    (large, small) = sorted(plan.transfers, key=lambda transfer: -transfer.size_bytes)
    by_large, by_small = (problem.costs[plan.how(sent)] for sent in (large, small))
    assert by_large.all_reduce.ns_per_byte < by_small.all_reduce.ns_per_byte
    assert by_large.all_reduce.startup_ns > by_small.all_reduce.startup_ns
    startups = by_large.all_reduce.startup_ns + by_small.all_reduce.startup_ns
    assert result.evaluation.startup_ns == startups
    assert result.objective_ns == result.lower_bound_ns
    for option in problem.single:  # the same by one algorithm at one depth, and planned for it
        alike = [plan, enforced(problem, option.algorithm, both_ways(problem, option))]
        for other in alike:
            assert result.objective_ns < price(problem, assign_algorithms(other, option))


def test_a_single_algorithm_is_no_mixture() -> None:
    problem = one_large_one_small(Switch(2), 2, 1)
    assert dict(problem.left_out)[MIXED] == "ring costs least for transfers of every size"
    with pytest.raises(InvalidInputError, match="mixed chooses among other algorithms"):
        replace(problem, algorithms=(MIXED,))


def test_a_transfer_cannot_name_what_the_cluster_does_not_allow() -> None:
    plan = solved(MIXTURE).plan
    for change, path in (({"algorithm": "bml"}, "algorithm"), ({"depth": 3}, "depth")):
        first = replace(plan.transfers[0], **change)
        wrong = replace(plan, transfers=(first, *plan.transfers[1:]))
        with pytest.raises(InvalidPlanError, match=rf"transfers\[0\]\.{path}"):
            check(MIXTURE, wrong)


def equally_fast(problem: Problem) -> tuple[Plan | None, list[Plan]]:
    """Return the plan that is chosen among the alternatives, and those that take as long."""
    known = alternatives(problem, NEVER)
    for one in known:
        assert one.plan is None or one.objective_ns == price(problem, one.plan)
    best = best_of(problem, known, 0.0)
    return best.plan, [
        one.plan for one in known if one.plan and one.objective_ns == best.objective_ns
    ]


@pytest.mark.slow
@settings(max_examples=150)
@given(whole | disturbed(whole))
def test_no_alternative_as_long_is_simpler(problem: Problem) -> None:
    def key(plan: Plan) -> tuple[int, bool, int]:
        used = [transfer.algorithm or plan.algorithm for transfer in plan.transfers]
        sizes = [part.stop - part.start for one in plan.transfers for part in one.parts]
        return len(used), len(set(used)) > 1, sum(sizes)

    chosen, plans = equally_fast(problem)
    assert chosen is None or key(chosen) == min(map(key, plans))


def test_of_two_ways_that_hide_their_bytes_that_by_one_algorithm_is_taken() -> None:
    """The mixture takes as long, in as many transfers."""
    chosen, plans = equally_fast(MIXTURE)
    assert {len(plan.algorithms) for plan in plans} == {1, 2}
    assert chosen is not None
    assert len(chosen.algorithms) == 1


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


def in_order(problem: Problem) -> Iterator[Plan]:
    """Every batching of pushes in order of readiness, and then of pulls in order of use.

    By tables that are not concave, parameters that are not neighbours may go better together.
    """
    known = problem.base.windows
    every = range(len(known.sizes))
    ready = sorted(every, key=lambda j: (-known.heads[j], j))[::-1]
    used = sorted(every, key=lambda j: (-known.tails[j], j))
    batchings = [spans(counts) for counts in compositions(len(every))]
    for pushed, pulled in product(batchings, batchings):
        pushes = brute_force.transfers("push", [ready[a:b] for a, b in pushed], problem.pushed)
        pulls = brute_force.transfers("pull", [used[a:b] for a, b in pulled], problem.pulled)
        yield enforced(problem, "measured", pushes + pulls)


@settings(max_examples=60)
@given(measured(3))
def test_both_ways_and_the_joint_plan_are_no_worse_than_batches_in_order(problem: Problem) -> None:
    option = problem.single[0]
    both = enforced(problem, option.algorithm, both_ways(problem, option))
    check(problem, both)
    best = min(price(problem, one) for one in in_order(problem))
    assert price(problem, both) == best
    plan, objective, least = solved(problem)
    assert objective == price(problem, plan) <= best
    for one in brute_force.pushes_then_pulls(problem, "measured"):
        assert least <= price(problem, one)


@given(measured(2))
def test_sizes_beyond_the_table_are_said(problem: Problem) -> None:
    plan = solved(problem).plan
    assert problem.cluster.network is not None
    beyond = False
    kinds = {"all_reduce": 0, "pull": 1, "push": 2}
    for transfer in plan.transfers:
        points = problem.cluster.network.tables[kinds[transfer.kind]].cost.points
        beyond |= not points[0][0] <= transfer.size_bytes <= points[-1][0]
    assert beyond == any("beyond" in note for note in notes_of(problem.cluster, plan))


def test_tables_within_hosts_cannot_price_across_them() -> None:
    table = Measured("all_reduce", 8, 8, ((10, 100), (20, 200)))
    rails = Rails(2, 8, Fraction(10**9))
    cluster = Cluster(
        "hosts", "made up", 2, rails, Nic(Fraction(10**9), 0, 8), network=MeasuredNetwork((table,))
    )
    with pytest.raises(InvalidInputError, match="only such within a host"):
        Problem.from_profile(PROFILE, cluster)


def test_cut_transfers_may_cost_less_than_whole_ones() -> None:
    rows = ((4000, 10), (8000, 10**6), (20000, 2 * 10**6))
    tables = tuple(Measured(name, 2, 1, rows) for name in COLLECTIVES)
    problem = Problem.from_profile(PROFILE, tabled(*tables))
    parts = [
        (j, start, start + 4000)
        for j, size in enumerate(problem.pushed)
        for start in range(0, size, 4000)
    ]
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
    room = problem.transfer_limit(mode)
    assert room is not None
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
    assert [[tuple(part) for part in transfer.parts] for transfer in plan.transfers] == [
        [(1, 0, 8)],
        [(0, 0, 6), (1, 8, 10)],
        [(1, 10, 12)],
    ]
    assert price(problem, plan) == 46 + 200
    assert solved(problem).iteration_ns == 36 + 200


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cluster", ["h100-8", "bml-bcube"])
def test_auto_fills_transfers_where_there_is_a_cap(cluster: str, mode: Mode) -> None:
    """Of LeNet-5 with transfers of a mebibyte: cut from large ones they were 33 % too long."""
    problem = Problem.from_profile(
        profile_of("lenet5"),
        read_cluster(cluster),
        computation=Fraction(1, 50),
        max_transfer_bytes=2**20,
        modes=(mode,),
        element_bytes=4,
    )
    _, objective, least = solved(problem)
    assert objective <= 1.05 * least
    for option in problem.single:
        for waiting in (True, False):
            plan = greedy_fill(problem, option, mode, waiting=waiting)
            assert objective <= price(problem, plan)


def assert_plans(problem: Problem) -> int:
    """Check every plan there is, and return how many pieces of parameters they have."""
    pieces = 0
    for option in problem.options:
        for transfers in interleaved(problem, option, 0, NEVER):
            plan = enforced(problem, option.algorithm, transfers)
            check(problem, assign_algorithms(plan, option))
            for transfer in transfers:
                assert len({part.parameter for part in transfer.parts}) == len(transfer.parts)
            pieces += sum(len(transfer.parts) for transfer in transfers)
    return pieces


@given(problems(), st.sampled_from([1, 3, 7]))
def test_pushes_between_pulls_are_plans(problem: Problem, element_bytes: int) -> None:
    assert_plans(replace(problem, element_bytes=element_bytes, max_transfer_bytes=None))


def test_what_is_left_of_an_element_comes_last_in_one_piece_wherever_it_is_sent() -> None:
    """800 bytes are twelve and a half elements of 64; of 2 bytes, the rest joins other bytes."""
    rest = Problem(chain((10, 20, 4000), (10, 20, 800)), on_switch(4, 5), element_bytes=64)
    assert assert_plans(rest) > 4 * 3  # some parameter is cut
    graph = chain((10, 20, 1), (10, 20, 181142431))
    assert_plans(Problem(graph, on_switch(4, 5), element_bytes=2))


def test_what_is_read_late_is_pushed_while_the_forward_pass_computes() -> None:
    """By hand: w1 is pushed from 2 to 17 and pulled until 32; w2's 420 ns hide behind f1."""
    graph = chain((1000, 1, 10), (5, 1, 400))
    problem = Problem(graph, on_switch(2, 10), algorithms=("ring",), modes=("sharded",))
    assert solve(problem).objective_ns == 32 + 1005
    every = (price(problem, plan) for plan in brute_force.sharded(problem, "ring"))
    assert min(every) == 32 + 1005
    apart = brute_force.pushes_then_pulls(problem, "ring")
    assert min(price(problem, plan) for plan in apart) > 1200
