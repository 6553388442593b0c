"""On rails: accelerators with links within hosts and a NIC each, transfer by transfer."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product

import pytest

from planner.families.collectives import RAILS, lower_bound
from planner.families.iteration.synchronisation import least, synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.errors import NotApplicableError
from planner.model.topologies import Rails
from tests.collectives import algorithms
from tests.collectives.replay import Replay, Transfer

LINK, RAIL = 0, 1
SIZES = [
    (1, 2),
    (1, 4),
    (2, 1),
    (3, 1),
    (2, 2),
    (4, 2),
    (3, 2),
    (5, 2),
    (2, 3),
    (3, 3),
    (3, 4),
    (2, 4),
    (4, 4),
]


def wired(accelerators: int) -> Callable[[int, int, int], bool]:
    """By a link within a host, by a NIC to the accelerators of the same rail."""

    def linked(sender: int, receiver: int, nic: int) -> bool:
        if nic == LINK:
            return sender // accelerators == receiver // accelerators
        return sender % accelerators == receiver % accelerators

    return linked


class Counting(Replay):
    """A replay that remembers what was sent in each step; its algorithms need not name NICs."""

    accelerators = 1

    def __init__(self, servers: int, linked: Callable[[int, int, int], bool]) -> None:
        super().__init__(servers, linked)
        self.log: list[list[Transfer]] = []

    def step(self, transfers: Iterable[Transfer]) -> None:
        self.log.append(list(transfers))
        super().step(self.log[-1])


def half(log: Sequence[Sequence[Transfer]], cluster: Cluster) -> tuple[int, Fraction]:
    """Start-up cost and time per byte of some steps; the slower of NICs and links counts."""
    rails, nic = cluster.topology, cluster.nic
    assert isinstance(rails, Rails)
    startup, rate = 0, Fraction(0)
    for step in log:
        sent: dict[bool, dict[int, Fraction]] = {True: defaultdict(Fraction), False: {}}
        sent[False] = defaultdict(Fraction)
        partners: dict[int, set[int]] = defaultdict(set)
        for one in step:
            near = one.sender // rails.accelerators == one.receiver // rails.accelerators
            sent[near][one.sender] += one.size
            if not near:
                partners[one.sender].add(one.receiver)
        link = max(sent[True].values(), default=Fraction(0)) * 10**9 / rails.link_bytes_per_s
        far = max(sent[False].values(), default=Fraction(0)) * 10**9 / nic.bytes_per_s
        rate += max(link, far)
        startup += nic.startup_ns if far else rails.link_startup_ns
        startup += nic.message_ns * max((len(them) - 1 for them in partners.values()), default=0)
    return startup, rate


def rings(hosts: int, accelerators: int) -> Replay:
    """As many rings as rails; ring r leaves a host by the rail by which it enters the next.

    On an odd number of hosts of two it cannot do so everywhere: it changes rails behind the last.
    """
    servers = hosts * accelerators
    changes = accelerators == 2 and hosts % 2 == 1 and hosts > 1
    shifts = [place % 2 for place in range(hosts)]
    if hosts % 2:
        shifts[-1] = 2
    orders = []
    for ring in range(accelerators):
        order = []
        for host in range(hosts):
            exit_ = (ring + shifts[host]) % accelerators
            entry = (ring + shifts[host - 1] + (changes and not host)) % accelerators
            between = [one for one in range(accelerators) if one not in {entry, exit_}]
            inside = [entry, *between, exit_] if accelerators > 1 else [0]
            if hosts == 1:
                inside = list(range(accelerators))
            order += [host * accelerators + one for one in inside]
        assert sorted(order) == list(range(servers))
        orders.append(order)
    same_rail = wired(accelerators)

    def linked(sender: int, receiver: int, nic: int) -> bool:
        behind_last = sender // accelerators == hosts - 1 and receiver < accelerators
        return same_rail(sender, receiver, nic) or (changes and behind_last and nic == RAIL)

    replay = Counting(servers, linked)
    buffers = list(product(range(accelerators), range(servers)))
    algorithms.fill(replay, buffers)
    for adds in (True, False):
        for turn in range(servers - 1):
            shift = turn if adds else turn - 1
            moves = []
            for ring, order in enumerate(orders):
                for place, sender in enumerate(order):
                    receiver = order[(place + 1) % servers]
                    near = sender // accelerators == receiver // accelerators
                    buffer = (ring, (place - shift) % servers)
                    size = Fraction(1, accelerators * servers)
                    moves.append(
                        Transfer(sender, receiver, LINK if near else RAIL, buffer, size, adds=adds)
                    )
            replay.step(moves)
    replay.finish(buffers)
    return replay


def replayed(name: str, rails: Rails, patch: pytest.MonkeyPatch) -> Replay:
    hosts, accelerators = rails.hosts, rails.accelerators
    patch.setattr(algorithms, "Replay", Counting)
    if name == "ring":
        return rings(hosts, accelerators)
    if name == "hierarchical":
        replay = algorithms.in_groups((accelerators, hosts))
        assert isinstance(replay, Counting)
        same_rail = wired(accelerators)
        for step in replay.log:
            for one in step:
                assert any(same_rail(one.sender, one.receiver, nic) for nic in (LINK, RAIL))
        return replay
    if name == "halving_doubling":
        return algorithms.halving_doubling(rails.servers)
    return algorithms.direct(rails.servers)


@pytest.mark.parametrize(("hosts", "accelerators"), SIZES)
@pytest.mark.parametrize("link", [Fraction(10**10), Fraction(10**8, 3)], ids=["fast", "slow"])
@pytest.mark.parametrize("name", RAILS)
def test_both_halves_are_what_a_replay_counts(
    name: str, hosts: int, accelerators: int, link: Fraction, monkeypatch: pytest.MonkeyPatch
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
    replay = replayed(name, rails, monkeypatch)
    assert isinstance(replay, Counting)
    assert found.steps == replay.steps == len(replay.log)
    middle = len(replay.log) // 2
    for log in (replay.log[:middle], replay.log[middle:]):
        assert (found.half.startup_ns, found.half.ns_per_byte) == half(log, cluster)


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
