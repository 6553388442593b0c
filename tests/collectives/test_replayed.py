"""Closed forms: of programs that keep to the network's links, at derived points, and by hand."""

from fractions import Fraction

import pytest

from planner.families.collectives import COLLECTIVES, Fabric, program
from planner.families.collectives.exchange import (
    bml_on,
    direct_on,
    halving_doubling_on,
    tree_groups,
)
from planner.families.collectives.ring import bruck_cost, bruck_program, gray_cycle
from planner.model.topologies import BCube
from tests.collectives.pricing import cost_of

BCUBES = [BCube(*pair) for pair in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3))]


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name.endswith("bcube")])
@pytest.mark.parametrize("bcube", BCUBES, ids=str)
def test_programs_on_a_bcube_keep_to_its_links(bcube: BCube, name: str) -> None:
    """A NIC of level l reaches the servers that differ in digit l only."""
    if name.startswith("halving") and bcube.n not in (2, 4):
        return
    for one in program(name, bcube).messages():
        pairs = [
            [server // bcube.n**level % bcube.n for server in (one.sender, one.receiver)]
            for level in range(bcube.k)
        ]
        assert [level for level, (a, b) in enumerate(pairs) if a != b] == [one.link]


@pytest.mark.parametrize("bcube", [*BCUBES, BCube(10, 3), BCube(2, 10), BCube(7, 4)], ids=str)
def test_the_gray_code_is_a_hamiltonian_cycle(bcube: BCube) -> None:
    cycle = list(gray_cycle(bcube))
    assert sorted(cycle) == list(range(bcube.servers))
    for place, server in enumerate(cycle):
        one, other = bcube.digits(cycle[place - 1]), bcube.digits(server)
        assert sum(a != b for a, b in zip(one, other, strict=True)) == 1


@pytest.mark.parametrize("servers", range(2, 21))
def test_folded_servers_send_and_get_a_whole_gradient_more(servers: int) -> None:
    core = 1 << servers.bit_length() - 1
    fold = int(servers > core)
    found, share = halving_doubling_on(Fabric(servers, 4)), Fraction(core - 1, core)
    assert found.steps == 2 * (servers.bit_length() - 1) + 2 * fold
    assert (found.volume, found.reduced) == (2 * share + 2 * fold, share + fold)


@pytest.mark.parametrize("servers", range(1, 21))
def test_bruck(servers: int) -> None:
    cost, counted = bruck_cost(servers), cost_of(bruck_program(servers))
    assert (cost.steps, cost.volume, cost.reduced) == (
        counted.steps,
        counted.volume,
        counted.reduced,
    )
    assert cost.steps == 2 * (servers - 1).bit_length()


def test_parameter_servers_at_the_derived_points() -> None:
    assert direct_on("ps", BCube(4, 2)).volume == Fraction(3, 2)
    assert direct_on("ps", BCube(32, 2)).volume == Fraction(31, 16)
    for n in (4, 32, 1000):
        bcube = BCube(n, 2)
        assert direct_on("ps", bcube).volume / bml_on(bcube).volume == Fraction(2 * n, n + 1)
    large = BCube(16, 4)
    assert round(float(direct_on("ps", large).volume / bml_on(large).volume), 3) == 3.75


@pytest.mark.parametrize("ports", [2, 4, 6, 16])
def test_groups_are_edge_pod_and_core_where_the_tree_is_full(ports: int) -> None:
    tree = Fabric(ports**3 // 4, ports).tree
    assert tree_groups(ports**3 // 4, tree) == (ports // 2, ports // 2, ports) == tree.groups
