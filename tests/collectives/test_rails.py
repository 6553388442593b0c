"""On rails: accelerators with links within hosts and a NIC each, message by message."""

from fractions import Fraction

import pytest

from planner.families.collectives import RAIL_PROGRAMS, RAILS, lower_bound
from planner.families.iteration.synchronisation import least, synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import Rails

SHAPES = ((1, 2), (1, 4), (2, 1), (3, 1), (2, 2), (4, 2), (3, 2), (5, 2), (2, 3), (3, 3), (3, 4))
SIZES = [*SHAPES, (2, 4), (4, 4)]


@pytest.mark.parametrize(("hosts", "accelerators"), SIZES)
def test_levels_meet_the_bound_of_a_host(hosts: int, accelerators: int) -> None:
    rails = Rails(hosts, accelerators, Fraction(10**15))
    between = lower_bound(hosts, accelerators).volume / 2
    for name, hops in RAILS.items():
        if name == "halving_doubling" and {3, 5} & {hosts, accelerators}:
            continue
        volume = sum(hop.nic for hop in hops(rails))
        assert volume >= between
        if name in {"hierarchical", "halving_doubling"}:
            assert volume == between
        far = [one for one in RAIL_PROGRAMS[name](rails).messages() if one.link]
        assert all(one.sender // accelerators != one.receiver // accelerators for one in far)
        # A ring of two accelerators changes rails once where the number of hosts is odd.
        if name not in {"ps", "shuffle"} and not (accelerators == 2 and hosts % 2):
            assert all((one.sender - one.receiver) % accelerators == 0 for one in far)


def test_within_one_host_nothing_leaves_it() -> None:
    rails = Rails(1, 4, Fraction(2 * 10**9), link_startup_ns=3)
    cluster = Cluster("c", "a test", 1, rails, Nic(Fraction(1), 10**6, 4, message_ns=10**6))
    found, _ = synchronisations(cluster)
    times = {one.algorithm: (one.half.startup_ns, one.half.ns_per_byte) for one in found}
    each = Fraction(3, 4) / 2  # of a byte, at two bytes a nanosecond
    assert times["ring"] == (9, each)
    assert times["halving_doubling"] == (6, each)
    assert times["hierarchical"] == times["ps"] == (3, each)
    assert least(cluster).half.ns_per_byte == each
