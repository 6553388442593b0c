"""Clusters of which something has failed: what still works, what it costs, and who is left."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bml.program import MAX_REPLANNED, REPLAN, made, replanned
from planner.families.collectives import check
from planner.families.collectives.program import Kind, Message, Program
from planner.families.collectives.recipes import Recipe
from planner.families.iteration import METHODS, Problem
from planner.families.iteration.plan import IN_ROUNDS, MEASURED, MIXED
from planner.families.iteration.synchronisation import (
    KNOWN,
    cut_off,
    least,
    recipe_on,
    synchronisations,
)
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube, Failures, Switch
from tests.bml.networks import damaged_networks, links_left
from tests.collectives.pricing import time_of
from tests.iteration.making import binding, chain, solved

SPEED = Fraction(10**9)
HALVES: tuple[Kind, ...] = ("reduce_scatter", "all_gather")


def cluster_of(bcube: BCube, failed: Failures, message_ns: int = 0) -> Cluster:
    nic = Nic(SPEED, 1000, bcube.k, message_ns)
    return Cluster("damaged", "a test", bcube.servers, bcube, nic, failed=failed)


def further(program: Program) -> int:
    """Count the messages of the busiest NIC beside the first of each step."""
    sent = Counter((move.step, move.sender, move.link) for move in program.messages())
    steps = {step for step, _, _ in sent}
    return sum(max(sent[key] for key in sent if key[0] == step) - 1 for step in steps)


def uses(cluster: Cluster, message: Message) -> tuple[int, int, int]:
    """Return the servers of a message, and the level of its link."""
    return cluster.ranks[message.sender], cluster.ranks[message.receiver], message.link


@pytest.mark.slow
@settings(max_examples=60)
@given(damaged_networks())
def test_what_is_offered_goes_over_what_works(network: tuple[BCube, Failures]) -> None:
    bcube, failed = network
    cluster, whole = cluster_of(bcube, failed), cluster_of(bcube, Failures())
    if not failed or cluster.workers < 2:
        return
    left = links_left(bcube, failed)
    assert cluster.ranks == tuple(sorted(left))
    assert cut_off(cluster) is None
    found, left_out = synchronisations(cluster)
    names = {option.algorithm for option in found}
    assert "bml" in names
    assert names | {name for name, _ in left_out} == {*KNOWN} - {MIXED, MEASURED}
    for option in synchronisations(whole)[0]:
        program = made(recipe_on(whole, option.algorithm))
        ways = [uses(whole, message) for message in program.messages()]
        works = all(
            sender in left and (receiver, level) in left[sender] for sender, receiver, level in ways
        )
        if option.algorithm != "bml":
            assert (option.algorithm in names) == works
    for name in ("bml", IN_ROUNDS):
        for message in made(recipe_on(cluster, name)).messages():
            sender, receiver, level = uses(cluster, message)
            assert (receiver, level) in left[sender]


@pytest.mark.slow
@settings(max_examples=60)
@given(damaged_networks())
def test_what_is_run_costs_what_was_planned(network: tuple[BCube, Failures]) -> None:
    """Both halves too, and with a gap between the messages of a step."""
    bcube, failed = network
    cluster = cluster_of(bcube, failed)
    if cluster.workers < 2:
        return
    lowest = least(cluster).half
    dearer = {option.algorithm: option for option in synchronisations(cluster_of(*network, 7))[0]}
    for option in synchronisations(cluster)[0]:
        program = made(recipe_on(cluster, option.algorithm))
        assert program.ranks == cluster.workers
        check(program)
        size, network_of = 60 * program.chunks, [Network(SPEED, 1000)]
        assert time_of(program, network_of, size) == pytest.approx(
            option.all_reduce.cost_ns(size), abs=2
        )
        assert option.half.ns_per_byte >= lowest.ns_per_byte
        if option.algorithm == IN_ROUNDS:
            gaps = 7 * further(program)
            known = dearer[option.algorithm].half
            assert known.startup_ns == -(-(option.steps * 1000 + gaps) // 2)
            continue
        for kind in HALVES:
            time = time_of(program.half(kind), network_of, size)
            assert time == pytest.approx(option.half.cost_ns(size), abs=2)
        if option.algorithm != "bml":
            continue
        gaps = 7 * max(further(program.half(kind)) for kind in HALVES)
        known = dearer[option.algorithm].half
        assert (known.startup_ns, known.ns_per_byte) == (
            option.half.startup_ns + gaps,
            option.half.ns_per_byte,
        )


def test_where_detours_do_not_apply_trees_do() -> None:
    bcube = BCube(3, 2)
    hopeless = Failures(nics={(0, 0), (1, 1), (3, 0), (8, 0)})  # type: ignore[arg-type]
    program = replanned(bcube, hopeless)
    assert program.chunks == 8
    check(program)
    cluster = cluster_of(bcube, hopeless)
    option, _ = synchronisations(cluster, ("bml",))[0]
    size = 60 * program.chunks
    assert time_of(program, [Network(SPEED, 1000)], size) == option.all_reduce.cost_ns(size)


@settings(max_examples=40)
@given(damaged_networks(), st.integers(2, 5))
def test_rounds_are_parts_that_follow_each_other(
    network: tuple[BCube, Failures], rounds: int
) -> None:
    """They cost what time_of says of the program with one round in so many parts."""
    bcube, failed = network
    if bcube.servers - len(failed.servers) < 2:
        return
    once, several = replanned(bcube, failed), replanned(bcube, failed, rounds)
    check(several)
    size = 30 * several.chunks
    links = [Network(SPEED, 1000)]
    assert time_of(several, links, size) == time_of(once, links, size, depth=rounds)
    with pytest.raises(InvalidPlanError):
        check(several.half("reduce_scatter"))


def test_rounds_are_worth_it_where_a_link_has_failed() -> None:
    cluster = cluster_of(BCube(3, 2), Failures(nics=frozenset({(0, 0)})))
    one, several = synchronisations(cluster, ("bml",))[0]
    assert several.half.ns_per_byte < Fraction(2, 3) * one.half.ns_per_byte
    assert several.half.startup_ns > one.half.startup_ns
    for names in (["bml"], [IN_ROUNDS]):
        problem = problem_of(cluster, algorithms=names)
        assert [option.algorithm for option in problem.options][-1] == IN_ROUNDS
        assert solved(problem)


def test_rounds_are_for_what_has_failed() -> None:
    whole = cluster_of(BCube(2, 2), Failures())
    assert IN_ROUNDS not in dict(synchronisations(whole)[1])
    assert synchronisations(whole, (IN_ROUNDS,)) == ((), ((IN_ROUNDS, "nothing has failed"),))


def problem_of(cluster: Cluster, **options: Any) -> Problem:
    return Problem(chain((10, 10, 4096)), cluster, element_bytes=4, **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_network_that_is_cut_has_no_plan(method: str) -> None:
    alone = Failures(nics=frozenset({(0, 0), (0, 1)}))
    binds, reason = binding(problem_of(cluster_of(BCube(3, 2), alone)), method)
    assert "cut off server [0, 0]" in reason
    assert binds == ("cluster.failed.nics",)


@pytest.mark.parametrize(
    ("failed", "shared"),
    [
        (Failures(nics=frozenset({(0, 0)})), False),
        (Failures(servers=frozenset({4})), True),
    ],
)
def test_sharded_plans_need_a_share_for_all(failed: Failures, shared: bool) -> None:
    problem = problem_of(cluster_of(BCube(3, 2), failed), modes=["sharded"], algorithms=["bml"])
    if shared:
        assert solved(problem).plan.mode == "sharded"
    else:
        assert "without an equal share" in binding(problem)[1]
    program = made(recipe_on(problem.cluster, "bml"))
    owners = [program.owner(chunk) for chunk in range(program.chunks)]
    assert (len({owners.count(rank) for rank in range(program.ranks)}) == 1) == shared


def test_one_server_that_is_left_synchronises_nothing() -> None:
    cluster = cluster_of(BCube(2, 2), Failures(servers=frozenset({0, 1, 3})))
    assert cluster.ranks == (2,)
    assert [option.algorithm for option in synchronisations(cluster)[0]] == ["none"]
    assert made(recipe_on(cluster, "none")).ranks == 1


@pytest.mark.parametrize(
    ("recipe", "path"),
    [
        (Recipe("ring", (4,), Failures(servers=frozenset({0}))), "failed"),
        (Recipe(REPLAN, (3,)), "shape"),
        (Recipe(REPLAN, (2, 2, 1, 1)), "shape"),
        (Recipe(REPLAN, (2, 2, 0)), "shape[2]"),
        (Recipe(REPLAN, (2, 7, 2)), "failed"),
        (Recipe(REPLAN, (2, 2), Failures(servers=frozenset({4}))), "failed.servers"),
        (Recipe(REPLAN, (2, 2), Failures(servers=frozenset({0, 1, 2}))), "failed.servers"),
        (Recipe(REPLAN, (2, 2), Failures(nics=frozenset({(0, 0), (0, 1)}))), "failed"),
        (Recipe(REPLAN, (2, MAX_REPLANNED.bit_length())), "failed"),
    ],
)
def test_what_is_no_recipe_is_refused(recipe: Recipe, path: str) -> None:
    with pytest.raises((InvalidInputError, NotApplicableError)) as caught:
        made(recipe)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("machines", "topology", "failed", "path"),
    [
        (4, Switch(4), Failures(servers=frozenset({0})), "failed"),
        (4, BCube(2, 2), Failures(servers=frozenset({4})), "failed.servers"),
        (4, BCube(2, 2), Failures(servers=frozenset(range(4))), "failed.servers"),
    ],
)
def test_what_cannot_have_failed(
    machines: int, topology: BCube | Switch, failed: Failures, path: str
) -> None:
    levels = topology.k if isinstance(topology, BCube) else 1
    with pytest.raises(InvalidInputError) as caught:
        Cluster("c", "a test", machines, topology, Nic(SPEED, 1, levels), failed=failed)
    assert caught.value.path == path
