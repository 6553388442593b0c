"""What is left of a broken network, against a search along every link; and what it must cost."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml import Damage, Failures
from planner.model.topologies import BCube
from tests.bml.networks import (
    connected,
    damaged_networks,
    distances,
    failures,
    links_left,
    single_failures,
)
from tests.bml.packing_checker import least_load


@given(damaged_networks(cut=True, most=5))
def test_what_is_left_is_what_a_search_finds(network: tuple[BCube, Failures]) -> None:
    bcube, failed = network
    damage, links = Damage(bcube, failed), links_left(bcube, failed)
    nics = {(server, level) for server in links for _, level in links[server]}
    assert damage.dead == failed.servers
    assert damage.living == len(links)
    assert damage.down == set(product(links, range(bcube.k))) - nics
    assert damage.usable_nics == len(nics)
    fewest = min((len({x for _, x in own}) for own in links.values()), default=bcube.k)
    assert damage.fewest_nics == fewest


@given(damaged_networks(cut=True, most=6))
def test_what_is_cut_off_is_all_but_the_largest_part(network: tuple[BCube, Failures]) -> None:
    damage, links = Damage(*network), links_left(*network)
    parts = {frozenset(distances(links, server)) for server in links}
    cut_off = frozenset(damage.cut_off())
    if len(parts) < 2:
        assert not cut_off
    else:
        rest = frozenset(links) - cut_off
        assert rest in parts
        assert len(rest) == max(map(len, parts))


def test_an_intact_network_is_whole() -> None:
    damage = Damage(BCube(16, 4), Failures())
    assert not damage.cut_off()
    assert (damage.usable_nics, damage.fewest_nics, damage.hops()) == (4 * 16**4, 4, 4)
    assert damage.load_bound() == Fraction(2 * (16**4 - 1), 4 * 16**4)


@pytest.mark.slow
@pytest.mark.parametrize("bcube", [BCube(3, 2), BCube(4, 2), BCube(2, 3)], ids=str)
def test_the_bound_is_reached_after_every_single_failure(bcube: BCube) -> None:
    for failed in single_failures(bcube):
        damage = Damage(bcube, failed)
        assert damage.load_bound() == least_load(damage), failed


def test_single_failures_of_9_servers_cost_what_the_formula_says() -> None:
    """One NIC, one switch and one server of BCube(3, 2): max(2(N'-1)/NICs, 1/fewest)."""
    bcube = BCube(3, 2)
    for failed, bound in (
        (Failures(nics=frozenset({(4, 1)})), Fraction(1)),
        (Failures(switches=frozenset({(0, 2)})), Fraction(16, 15)),
        (Failures(servers=frozenset({8})), Fraction(14, 16)),
    ):
        damage = Damage(bcube, failed)
        formula = Fraction(2 * (damage.living - 1), damage.usable_nics)
        assert max(formula, Fraction(1, damage.fewest_nics)) == damage.load_bound() == bound


def test_a_bottleneck_between_two_halves_is_seen() -> None:
    """Of 4 links between the halves of BCube(2, 3) one is left: all sums cross it."""
    failed = Failures(nics=frozenset({(0, 2), (1, 2), (2, 2)}))
    damage = Damage(BCube(2, 3), failed)
    assert damage.down == {(server, 2) for server in (0, 1, 2, 4, 5, 6)}
    simple = max(Fraction(2 * 7, 18), Fraction(1, damage.fewest_nics))
    assert simple < damage.load_bound() == least_load(damage) == 1


@settings(max_examples=300)
@given(st.data())
def test_servers_are_never_closer_than_hops_says(data: st.DataObject) -> None:
    """The farthest living servers, after anything from one failure to nearly all servers dead."""
    bcube = data.draw(st.sampled_from([BCube(2, 2), BCube(3, 2), BCube(2, 3), BCube(4, 2)]))
    dead = data.draw(st.frozensets(st.integers(0, bcube.servers - 1), max_size=bcube.servers - 1))
    failed = data.draw(failures(bcube, most=2))
    failed = Failures(dead, failed.nics, failed.switches)
    links = links_left(bcube, failed)
    assume(connected(links))
    farthest = max(max(distances(links, server).values()) for server in links)
    hops = Damage(bcube, failed).hops()
    assert hops <= farthest
    assert (hops == 0) == (len(links) == 1)


@settings(max_examples=60)
@given(damaged_networks(most=2))
def test_no_load_is_below_the_bound(network: tuple[BCube, Failures]) -> None:
    damage = Damage(*network)
    assert damage.load_bound() <= least_load(damage)
