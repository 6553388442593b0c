"""What a synchronisation costs is what a replay of its program counts, also around failures.

Steps, messages of a NIC, and its bytes; which algorithms a network allows, and who is left.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings

from planner.families.bml.program import MAX_REPLANNED, REPLAN, made
from planner.families.collectives import check
from planner.families.collectives.program import KINDS, Program
from planner.families.collectives.recipes import Recipe
from planner.families.iteration import METHODS, Problem
from planner.families.iteration.plan import IN_ROUNDS, MEASURED, MIXED
from planner.families.iteration.synchronisation import (
    DEPTHS,
    KNOWN,
    cut_off,
    least,
    recipe_on,
    synchronisations,
)
from planner.model.clusters import Cluster, Nic
from planner.model.network import Network
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from tests.bml.networks import damaged_networks, links_left
from tests.collectives.pricing import half_of, time_of
from tests.formats.refused import refused
from tests.iteration.iteration_strategies import clusters
from tests.iteration.making import binding, chain, solved

SPEED = Fraction(10**9)


def cluster_on(topology: Topology, machines: int, per_machine: int = 1, **more: Any) -> Cluster:
    if isinstance(topology, BCube):
        per_machine = topology.k
    if isinstance(topology, Rails):
        per_machine = topology.accelerators
    nic = Nic(SPEED / 3, 7, per_machine, 2)
    return Cluster("c", "a test", machines, topology, nic, **more)


SHARED = SPEED / 2
RAILS = [
    Rails(hosts, size, link, link_startup_ns=3)
    for link in (Fraction(10**10), Fraction(10**8, 3))
    for hosts, size in ((1, 4), (3, 1), (2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 4), (4, 4))
]
CLUSTERS = [
    *(cluster_on(Switch(n), n) for n in (2, 3, 5, 7, 8, 9, 12)),
    *(cluster_on(Switch(n), n, per_machine=3) for n in (4, 5)),
    *(cluster_on(Switch(n), n, shared_bytes_per_s=SHARED) for n in (2, 3, 4, 6)),
    *(cluster_on(Switch(n), n, shared_bytes_per_s=SHARED, per_machine=2) for n in (3, 6, 7)),
    *(cluster_on(FatTree(4), n) for n in (2, 6, 7, 12, 16)),
    cluster_on(FatTree(4), 12, shared_bytes_per_s=4 * SHARED),
    *(cluster_on(FatTree(6), n) for n in (12, 18)),
    *(cluster_on(rails, rails.hosts) for rails in RAILS),
    *(cluster_on(BCube(n, k), n**k) for n, k in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3))),
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda one: f"{one.topology}-{one.machines}")
def test_programs_give_equal_shares_and_both_halves_are_what_messages_add_up_to(
    cluster: Cluster,
) -> None:
    found, left_out = synchronisations(cluster)
    assert {one.algorithm for one in found} | {name for name, _ in left_out} == {
        "ring", "halving_doubling", "hierarchical", "ps", "shuffle", "bml",
    }  # fmt: skip
    for one in found:
        if one.depth > 1:
            continue
        program = made(recipe_on(cluster, one.algorithm))
        check(program)
        owners = Counter(map(program.owner, range(program.chunks)))
        assert len({owners[rank] for rank in range(cluster.workers)}) == 1, one.algorithm
        assert program.ranks == cluster.workers
        for kind in KINDS[1:]:
            half = half_of(program.half(kind), cluster)
            assert one.steps == 2 * half.steps, one.algorithm
            assert (one.half.startup_ns, one.half.ns_per_byte) == half[1:], one.algorithm


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("hosts", "accelerators"), [(2, 2), (4, 8), (8, 2), (3, 4)])
@pytest.mark.parametrize("name", ["hierarchical", "halving_doubling"])
def test_what_parts_cost_is_what_the_program_says(
    name: str, hosts: int, accelerators: int, depth: int
) -> None:
    """Where links and NICs start alike; else a step takes the longer start-up of the two."""
    rails = Rails(hosts, accelerators, Fraction(3 * 10**9, 2), 40)
    cluster = Cluster("c", "a test", hosts, rails, Nic(SPEED, 40, accelerators))
    options, _ = synchronisations(cluster, (name,))
    if not options:
        assert name == "halving_doubling"
        assert hosts & (hosts - 1)
        return
    by_depth = {option.depth: option for option in options}
    assert by_depth.keys() == set(DEPTHS)
    program = made(recipe_on(cluster, name))
    networks = [Network(rails.link_bytes_per_s, 40), Network(SPEED, 40)]
    for size in (program.chunks * depth, program.chunks * depth * 1000):
        for part, kind in (
            (program, "all_reduce"),
            (program.half("reduce_scatter"), "push"),
            (program.half("all_gather"), "pull"),
        ):
            cost = by_depth[depth].cost(kind)
            assert cost.cost_ns(size) == time_of(part, networks, size, depth=depth)


@pytest.mark.parametrize(
    ("topology", "machines", "more"),
    [
        (Switch(6), 6, {"halving_doubling"}),
        (FatTree(4), 6, {"halving_doubling", "hierarchical"}),
        (BCube(3, 2), 9, {"hierarchical", "bml"}),
        (BCube(4, 2), 16, {"halving_doubling", "hierarchical", "bml"}),
        (Rails(3, 4, SPEED), 3, {"hierarchical"}),
    ],
)
def test_what_a_topology_allows(topology: Topology, machines: int, more: set[str]) -> None:
    found, left_out = synchronisations(cluster_on(topology, machines))
    assert {one.algorithm for one in found} == {"ring", "ps", "shuffle"} | more
    assert all(reason for _, reason in left_out)


@settings(max_examples=40)
@given(clusters())
def test_no_synchronisation_costs_less_than_the_lower_bound(cluster: Cluster) -> None:
    lowest = least(cluster).half
    assert lowest.startup_ns == 0
    found, _ = synchronisations(cluster)
    assert found
    for one in found:
        half, whole = one.half, one.all_reduce
        assert half.ns_per_byte >= lowest.ns_per_byte
        assert one.steps % 2 == 0 or one.algorithm == IN_ROUNDS
        # At a depth the second half begins before the first one has ended.
        assert 2 * lowest.ns_per_byte <= whole.ns_per_byte <= 2 * half.ns_per_byte
        if one.depth == 1:
            # Rounds may be odd: half a nanosecond is rounded up.
            odd = whole.startup_ns % 2 if one.algorithm == IN_ROUNDS else 0
            assert whole.startup_ns == 2 * half.startup_ns - odd
            assert whole.ns_per_byte == 2 * half.ns_per_byte


@pytest.mark.parametrize(
    ("machines", "topology", "failed"),
    [
        (1, Switch(1), Failures()),
        (1, FatTree(2), Failures()),
        (1, Rails(1, 1, SPEED), Failures()),
        (4, BCube(2, 2), Failures(servers=frozenset({0, 1, 3}))),
    ],
)
def test_a_single_worker_synchronises_nothing(
    machines: int, topology: Topology, failed: Failures
) -> None:
    cluster = cluster_on(topology, machines, failed=failed)
    assert len(cluster.ranks) == 1
    ((only,), _) = synchronisations(cluster)
    assert (only.algorithm, only.steps) == ("none", 0)
    assert only.all_reduce.cost_ns(10**6) == least(cluster).half.cost_ns(10**6) == 0
    assert made(recipe_on(cluster, "none")).ranks == 1


# ---
# Around failures.


def damaged(bcube: BCube, failed: Failures, message_ns: int = 0) -> Cluster:
    nic = Nic(SPEED, 1000, bcube.k, message_ns)
    return Cluster("damaged", "a test", bcube.servers, bcube, nic, failed=failed)


def problem_of(cluster: Cluster, **options: Any) -> Problem:
    return Problem(chain((10, 10, 4096)), cluster, element_bytes=4, **options)


def moves(cluster: Cluster, algorithm: str) -> set[tuple[int, int, int]]:
    """Return the servers of each message of an algorithm, and the level of its link."""
    ranks = cluster.ranks
    return {
        (ranks[message.sender], ranks[message.receiver], message.link)
        for message in made(recipe_on(cluster, algorithm)).messages()
    }


HOPELESS = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""Detours do not apply, but trees do."""


def further(program: Program) -> int:
    """Count the messages of the busiest NIC beside the first of each step."""
    sent = Counter((move.step, move.sender, move.link) for move in program.messages())
    steps = {step for step, _, _ in sent}
    return sum(max(sent[key] for key in sent if key[0] == step) - 1 for step in steps)


@pytest.mark.slow
@settings(max_examples=60)
@given(damaged_networks())
@example((BCube(3, 2), Failures(nics=frozenset({(1, 1)}))))  # over which no ring goes
@example((BCube(3, 2), HOPELESS))
def test_what_is_offered_goes_over_what_works_and_costs_what_is_run(
    network: tuple[BCube, Failures],
) -> None:
    """Both halves too, and with a gap between the messages of a step."""
    bcube, failed = network
    cluster, whole = damaged(bcube, failed), damaged(bcube, Failures())
    if cluster.workers < 2:
        return
    left = links_left(bcube, failed)
    working = {(server, *end) for server, ends in left.items() for end in ends}
    assert cluster.ranks == tuple(sorted(left))
    assert cut_off(cluster) is None
    found, left_out = synchronisations(cluster)
    names = {option.algorithm for option in found}
    if failed:
        assert "bml" in names
        assert names | {name for name, _ in left_out} == {*KNOWN} - {MIXED, MEASURED}
        for option in synchronisations(whole)[0]:
            works = moves(whole, option.algorithm) <= working
            assert option.algorithm == "bml" or (option.algorithm in names) == works
        for name in ("bml", IN_ROUNDS):
            assert moves(cluster, name) <= working
    lowest = least(cluster).half
    dearer = {option.algorithm: option for option in synchronisations(damaged(*network, 7))[0]}
    for option in found:
        program = made(recipe_on(cluster, option.algorithm))
        assert program.ranks == cluster.workers
        check(program)
        size, links = 60 * program.chunks, [Network(SPEED, 1000)]
        assert time_of(program, links, size) == pytest.approx(
            option.all_reduce.cost_ns(size), abs=2
        )
        assert option.half.ns_per_byte >= lowest.ns_per_byte
        known = dearer[option.algorithm].half
        if option.algorithm == IN_ROUNDS:
            gaps = 7 * further(program)
            assert known.startup_ns == -(-(option.steps * 1000 + gaps) // 2)
            continue
        halves = [program.half(kind) for kind in KINDS[1:]]
        for half in halves:
            assert time_of(half, links, size) == pytest.approx(option.half.cost_ns(size), abs=2)
        if option.algorithm == "bml":
            gaps = 7 * max(map(further, halves))
            assert known.startup_ns == option.half.startup_ns + gaps
            assert known.ns_per_byte == option.half.ns_per_byte


def test_rounds_are_worth_it_where_a_link_has_failed_and_only_there() -> None:
    cluster = damaged(BCube(3, 2), Failures(nics=frozenset({(0, 0)})))
    one, several = synchronisations(cluster, ("bml",))[0]
    assert several.half.ns_per_byte < Fraction(2, 3) * one.half.ns_per_byte
    assert several.half.startup_ns > one.half.startup_ns
    for names in (["bml"], [IN_ROUNDS]):
        problem = problem_of(cluster, algorithms=names)
        assert [option.algorithm for option in problem.options][-1] == IN_ROUNDS
        assert solved(problem)
    whole = damaged(BCube(2, 2), Failures())
    assert IN_ROUNDS not in dict(synchronisations(whole)[1])
    assert synchronisations(whole, (IN_ROUNDS,)) == ((), ((IN_ROUNDS, "nothing has failed"),))


@pytest.mark.parametrize("method", METHODS)
def test_a_network_that_is_cut_has_no_plan(method: str) -> None:
    alone = Failures(nics=frozenset({(0, 0), (0, 1)}))
    binds, reason = binding(problem_of(damaged(BCube(3, 2), alone)), method)
    assert "cut off server [0, 0]" in reason
    assert binds == ("cluster.failed.nics",)


@pytest.mark.parametrize(
    ("failed", "shared"),
    [(Failures(nics=frozenset({(0, 0)})), False), (Failures(servers=frozenset({4})), True)],
)
def test_sharded_plans_need_a_share_for_all(failed: Failures, shared: bool) -> None:
    cluster = damaged(BCube(3, 2), failed)
    problem = problem_of(cluster, modes=["sharded"], algorithms=["bml"])
    if shared:
        assert solved(problem).plan.mode == "sharded"
    else:
        assert "without an equal share" in binding(problem)[1]
    program = made(recipe_on(cluster, "bml"))
    owned = Counter(program.owner(chunk) for chunk in range(program.chunks))
    assert (len({owned[rank] for rank in range(program.ranks)}) == 1) == shared


def recipe(generator: str, shape: tuple[int, ...], **failed: Any) -> Callable[[], object]:
    return lambda: made(Recipe(generator, shape, Failures(**failed)))


def four(topology: Topology, *servers: int) -> Callable[[], object]:
    return partial(cluster_on, topology, 4, failed=Failures(servers=frozenset(servers)))


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (recipe("ring", (4,), servers=frozenset({0})), "failed"),
        (recipe(REPLAN, (3,)), "shape"),
        (recipe(REPLAN, (2, 2, 1, 1)), "shape"),
        (recipe(REPLAN, (2, 2, 0)), "shape[2]"),
        (recipe(REPLAN, (2, 7, 2)), "failed"),
        (recipe(REPLAN, (2, 2), servers=frozenset({4})), "failed.servers"),
        (recipe(REPLAN, (2, 2), servers=frozenset({0, 1, 2})), "failed.servers"),
        (recipe(REPLAN, (2, 2), nics=frozenset({(0, 0), (0, 1)})), "failed"),
        (recipe(REPLAN, (2, MAX_REPLANNED.bit_length())), "failed"),
        (four(Switch(4), 0), "failed"),
        (four(BCube(2, 2), 4), "failed.servers"),
        (four(BCube(2, 2), *range(4)), "failed.servers"),
    ],
)
def test_failures_and_programs_around_them_that_cannot_be(
    make: Callable[[], object], path: str
) -> None:
    with refused(path, ""):
        make()
