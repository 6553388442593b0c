"""Networks and failures drawn by Hypothesis, and what is left of them, found link by link."""

from collections import deque
from collections.abc import Iterable
from itertools import product

from hypothesis import assume
from hypothesis import strategies as st

from planner.families.bml import Failures
from planner.families.bml.trees import Edge
from planner.model.topologies import BCube

Links = dict[int, set[tuple[int, int]]]
"""For each living server the neighbours it can exchange pieces with, as pairs of server, level."""

SMALL = [BCube(n, k) for n, k in ((2, 1), (3, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3), (2, 4))]

small_bcubes = st.sampled_from(SMALL)


def links_left(bcube: BCube, failed: Failures) -> Links:
    """Return the links that work, compared digit by digit."""
    servers = list(product(range(bcube.n), repeat=bcube.k))
    switches = list(product(range(bcube.n), repeat=bcube.k - 1))
    found: Links = {one: set() for one in range(len(servers)) if one not in failed.servers}
    for one, other in product(found, repeat=2):
        differing = [at for at in range(bcube.k) if servers[one][at] != servers[other][at]]
        if len(differing) != 1:
            continue
        (place,) = differing
        level = bcube.k - 1 - place
        switch = switches.index(servers[one][:place] + servers[one][place + 1 :])
        nics = {(one, level), (other, level)}
        if (level, switch) not in failed.switches and not failed.nics & nics:
            found[one].add((other, level))
    return found


def hops_of(links: Links) -> list[Edge]:
    """Return every link once, without direction."""
    return sorted(
        (one, other, level)
        for one, others in links.items()
        for other, level in others
        if one < other
    )


def joined(hops: Iterable[Edge]) -> Links:
    """Return the links that these hops are."""
    found: Links = {}
    for one, other, level in hops:
        found.setdefault(one, set()).add((other, level))
        found.setdefault(other, set()).add((one, level))
    return found


def distances(links: Links, source: int) -> dict[int, int]:
    """Return how many links away every server is that can be reached."""
    found, queue = {source: 0}, deque([source])
    while queue:
        server = queue.popleft()
        for peer, _ in links[server]:
            if peer not in found:
                found[peer] = found[server] + 1
                queue.append(peer)
    return found


def connected(links: Links) -> bool:
    """Whether there is a living server, and all reach each other."""
    return bool(links) and len(distances(links, min(links))) == len(links)


@st.composite
def failures(draw: st.DrawFn, bcube: BCube, *, most: int = 3) -> Failures:
    """Draw up to `most` failures of each kind."""
    server, level = st.integers(0, bcube.servers - 1), st.integers(0, bcube.k - 1)
    switch = st.integers(0, bcube.servers // bcube.n - 1)
    return Failures(
        servers=draw(st.frozensets(server, max_size=most)),
        nics=draw(st.frozensets(st.tuples(server, level), max_size=most)),
        switches=draw(st.frozensets(st.tuples(level, switch), max_size=most)),
    )


@st.composite
def damaged_networks(
    draw: st.DrawFn, *, cut: bool = False, most: int = 3
) -> tuple[BCube, Failures]:
    """Draw a network with failures; unless `cut` is true they leave it connected."""
    bcube = draw(small_bcubes)
    failed = draw(failures(bcube, most=most))
    assume(cut or connected(links_left(bcube, failed)))
    return bcube, failed


def single_failures(bcube: BCube) -> list[Failures]:
    """Return every failure of one NIC, one switch or one server."""
    servers, levels = range(bcube.servers), range(bcube.k)
    switches = range(bcube.servers // bcube.n)
    return [
        *(Failures(nics=frozenset({nic})) for nic in product(servers, levels)),
        *(Failures(switches=frozenset({switch})) for switch in product(levels, switches)),
        *(Failures(servers=frozenset({server})) for server in servers),
    ]
