"""Whole iterations on clusters whose network was measured."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.families.iteration import Plan, Problem, Transfer
from planner.families.iteration.baselines import both_ways, enforced
from planner.families.iteration.bounds import bound, network_bound
from planner.families.iteration.evaluation import check, evaluate
from planner.families.iteration.measured import notes_of
from planner.families.iteration.synchronisation import synchronisations
from planner.jsonio import decode_profile
from planner.model.clusters import Cluster, Nic, scaled_cluster
from planner.model.measured import COLLECTIVES, Measured, MeasuredNetwork
from planner.model.topologies import Rails
from planner.solving.transfers import Part
from tests.cli.documents import PROFILE
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import on_switch, solved

rows = st.lists(
    st.tuples(st.integers(1, 400), st.integers(1, 300)),
    min_size=2,
    max_size=6,
    unique_by=lambda row: row[0],
).map(lambda found: tuple(sorted(found)))


def tabled(machines: int, *tables: Measured, startup_ns: int = 0) -> Cluster:
    return on_switch(machines, startup_ns, network=MeasuredNetwork(tables))


@st.composite
def measured(draw: st.DrawFn, most: int = 2) -> Problem:
    """A problem on a switch of three machines, with any table for each collective."""
    problem = draw(problems(max_parameters=most, capped=False, one_order=True))
    tables = tuple(Measured(name, 3, 1, draw(rows)) for name in COLLECTIVES)
    cluster = tabled(3, *tables, startup_ns=5)
    return replace(problem, cluster=cluster, algorithms=("measured",))


def price(problem: Problem, plan: object) -> int:
    return evaluate(problem, plan).iteration_ns  # type: ignore[arg-type]


def test_each_kind_of_transfer_is_priced_by_its_own_table() -> None:
    tables = (
        Measured("all_reduce", 2, 1, ((10, 100), (20, 200))),
        Measured("all_gather", 2, 1, ((10, 30), (20, 31))),
        Measured("reduce_scatter", 2, 1, ((10, 50), (20, 70))),
    )
    (option,), _ = synchronisations(tabled(2, *tables), ("measured",))
    assert [option.cost(kind).cost_ns(15) for kind in ("all_reduce", "push", "pull")] == [
        150, 60, 31,
    ]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60)
@given(measured())
def test_no_plan_undercuts_a_bound(problem: Problem) -> None:
    (option,) = problem.by_name.values()
    for mode, made in (("replicated", brute_force.replicated), ("sharded", brute_force.sharded)):
        plans = list(made(problem, option.algorithm))
        best = min(price(problem, plan) for plan in plans)
        assert bound(problem, option, mode) <= best  # type: ignore[arg-type]
        assert bound(problem, option, mode, brief=True) <= best  # type: ignore[arg-type]
        assert network_bound(problem, plans[0]) <= best


def in_order(problem: Problem) -> Iterator[Plan]:
    """Every batching of pushes in order of readiness, and then of pulls in order of use.

    By tables that are not concave, parameters that are not neighbours may go better together.
    """
    known = problem.base.windows
    every = range(len(known.sizes))
    ready = sorted(every, key=lambda j: (-known.heads[j], j))[::-1]
    used = sorted(every, key=lambda j: (-known.tails[j], j))
    for pushed, pulled in product(compositions(ready), compositions(used)):
        transfers = brute_force.transfers("push", pushed, problem.pushed)
        transfers += brute_force.transfers("pull", pulled, problem.pulled)
        yield enforced(problem, "measured", transfers)


def compositions(order: list[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    for cuts in product((False, True), repeat=len(order) - 1):
        ends = [place for place, cut in enumerate(cuts, start=1) if cut]
        yield tuple(tuple(order[low:high]) for low, high in pairwise((0, *ends, len(order))))


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


def test_start_ups_and_speeds_of_tables_can_be_changed() -> None:
    table = Measured("all_reduce", 2, 1, ((10, 100), (20, 200)))
    for change, points in (
        ({"startup": Fraction(2)}, ((10, 200), (20, 300))),
        ({"bandwidth": Fraction(2)}, ((10, 100), (20, 150))),
    ):
        network = scaled_cluster(tabled(2, table), **change).network
        assert network is not None
        assert network.tables[0].points == points


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
    profile = decode_profile(json.dumps(PROFILE).encode())
    with pytest.raises(InvalidInputError, match="only such within a host"):
        Problem.from_profile(profile, cluster)


def test_cut_transfers_may_cost_less_than_whole_ones() -> None:
    rows = ((4000, 10), (8000, 10**6), (20000, 2 * 10**6))
    tables = tuple(Measured(name, 2, 1, rows) for name in COLLECTIVES)
    problem = Problem.from_profile(decode_profile(json.dumps(PROFILE).encode()), tabled(2, *tables))
    transfers = [
        Transfer((Part(j, start, start + 4000),), kind=kind)
        for kind in ("push", "pull")
        for j, size in enumerate(problem.pushed)
        for start in range(0, size, 4000)
    ]
    cut = enforced(problem, "measured", transfers)
    check(problem, cut)
    assert bound(problem, problem.single[0], "sharded") <= price(problem, cut) < 10**6
