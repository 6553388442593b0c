"""On rails: accelerators with links within hosts and a NIC each, message by message."""

from collections import defaultdict
from fractions import Fraction
from itertools import groupby

import pytest

from planner.families.collectives import RAIL_PROGRAMS, RAILS, Program, lower_bound
from planner.families.collectives.program import KINDS
from planner.families.iteration.synchronisation import least, synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.errors import NotApplicableError
from planner.model.topologies import Rails

SHAPES = ((1, 2), (1, 4), (2, 1), (3, 1), (2, 2), (4, 2), (3, 2), (5, 2), (2, 3), (3, 3), (3, 4))
SIZES = [*SHAPES, (2, 4), (4, 4)]


def counted(program: Program, cluster: Cluster) -> tuple[int, int, Fraction]:
    """Steps, start-up cost and time per byte; the slower of NICs and links counts."""
    rails, nic = cluster.topology, cluster.nic
    assert isinstance(rails, Rails)
    steps, startup, rate = 0, 0, Fraction(0)
    for _, together in groupby(sorted(program.messages()), lambda message: message.step):
        sent: dict[int, dict[int, Fraction]] = {0: defaultdict(Fraction), 1: defaultdict(Fraction)}
        partners: dict[int, set[int]] = defaultdict(set)
        for one in together:
            far = one.sender // rails.accelerators != one.receiver // rails.accelerators
            assert one.link == far
            sent[far][one.sender] += Fraction(one.stop - one.first, program.chunks)
            if far:
                partners[one.sender].add(one.receiver)
        link, across = (max(each.values(), default=Fraction(0)) * 10**9 for each in sent.values())
        rate += max(link / rails.link_bytes_per_s, across / nic.bytes_per_s)
        startup += nic.startup_ns if across else rails.link_startup_ns
        startup += nic.message_ns * max((len(them) - 1 for them in partners.values()), default=0)
        steps += 1
    return steps, startup, rate


@pytest.mark.parametrize(("hosts", "accelerators"), SIZES)
@pytest.mark.parametrize("link", [Fraction(10**10), Fraction(10**8, 3)], ids=["fast", "slow"])
@pytest.mark.parametrize("name", RAILS)
def test_both_halves_are_what_messages_add_up_to(
    name: str, hosts: int, accelerators: int, link: Fraction
) -> None:
    rails = Rails(hosts, accelerators, link, link_startup_ns=3)
    nic = Nic(Fraction(10**9), 20, accelerators, message_ns=2)
    cluster = Cluster("c", "a test", hosts, rails, nic)
    if name == "halving_doubling" and {3, 5} & {hosts, accelerators}:
        with pytest.raises(NotApplicableError, match="powers of two"):
            RAILS[name](rails)
        return
    (found, *deeper), _ = synchronisations(cluster, (name,))
    assert found.depth == 1
    assert all(option.depth > 1 for option in deeper)
    program = RAIL_PROGRAMS[name](rails)
    for kind in KINDS[1:]:
        steps, *half = counted(program.half(kind), cluster)
        assert found.steps == 2 * steps
        assert [found.half.startup_ns, found.half.ns_per_byte] == half
    # A ring of two accelerators changes rails once where the number of hosts is odd.
    if name not in ("ps", "shuffle") and not (accelerators == 2 and hosts % 2):
        far = [message for message in program.messages() if message.link]
        assert all((one.sender - one.receiver) % accelerators == 0 for one in far)


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
