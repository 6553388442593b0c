"""Which NICs explain who does not reach whom."""

from itertools import combinations

import pytest

pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bml import Failures
from planner.runtime.world.joining import join
from planner.runtime.world.probing import Nic, broken_nics, probe
from planner.topologies import BCube
from tests.bml.networks import failures, links_left, single_failures, small_bcubes
from tests.runtime.launching import launch


def silent(bcube: BCube, failed: Failures) -> set[tuple[int, int, int]]:
    """Return level and servers of neighbours that do not reach each other."""
    left = links_left(bcube, Failures(nics=failed.nics, switches=failed.switches))
    return {
        (level, server, peer)
        for server in range(bcube.servers)
        for level in range(bcube.k)
        for peer in bcube.neighbours(server, level)
        if (peer, level) not in left[server]
    }


@settings(max_examples=60)
@given(st.data())
def test_what_is_named_explains_everything(data: st.DataObject) -> None:
    bcube = data.draw(small_bcubes)
    failed = data.draw(failures(bcube))
    nics = broken_nics((), silent(bcube, failed))
    for level, server, peer in silent(bcube, failed):
        assert {(server, level), (peer, level)} & nics
    # And what is left works: nothing is named that reaches everybody.
    broken = {end for level, *ends in silent(bcube, failed) for end in ((ends[0], level),)}
    assert nics <= broken


def test_a_single_nic_is_found_unless_its_switch_has_two_ports() -> None:
    for bcube in (BCube(3, 2), BCube(4, 1), BCube(3, 3)):
        for failed in single_failures(bcube):
            if failed.nics:
                assert broken_nics((), silent(bcube, failed)) == failed.nics


def test_of_two_ends_the_one_that_is_known_is_named() -> None:
    pairs = silent(BCube(2, 2), Failures(nics=frozenset({(1, 0)})))
    assert broken_nics((), pairs) == {(0, 0)}
    assert broken_nics({(1, 0)}, pairs) == {(1, 0)}


def test_of_a_switch_all_but_one_are_named() -> None:
    bcube = BCube(4, 2)
    pairs = silent(bcube, Failures(switches=frozenset({(1, 2)})))
    on_it = {(server, 1) for server in bcube.on_switch(1, 2)}
    assert len(pairs) == 2 * len(list(combinations(on_it, 2)))
    nics = broken_nics((), pairs)
    assert nics < on_it
    assert len(nics) == 3


def look(n: int, k: int, count: int) -> tuple[set[Nic], set[Nic]]:
    with join(30, interfaces=["lo"] * count) as world:
        bcube = BCube(n, k)
        servers = range(bcube.servers)
        found = probe(world, bcube, servers)
        return set(found), set(probe(world, bcube, servers, [(0, 0)]))


@pytest.mark.parametrize("interfaces", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_whoever_answers_is_not_named(interfaces: int) -> None:
    for outcome in launch(look, 4, 2, 2, interfaces):
        assert outcome.error is None, outcome.error.trace
        assert outcome.value == (set(), {(0, 0)})
