"""Ring all-reduce: N pieces go round twice, N-1 steps to be summed up and N-1 to be handed out.

On a BCube ring neighbours have to be BCube neighbours: the modular n-ary Gray code is a
Hamiltonian cycle in which consecutive servers differ in one digit. Each server then sends over one
NIC and receives over one NIC; its other NICs idle.

Guarantee: volume 2(N-1)/N, the lower bound for one NIC, in 2(N-1) steps.
Complexity: O(1) for the cost, O(k) per server of the cycle, O(N) for the program.
Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
Workstations", JPDC 2009; Wang et al., "BML", NeurIPS 2018, section 2. The modular Gray code:
Knuth, "The Art of Computer Programming", volume 4A, section 7.2.1.1.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from planner.families.collectives.cost import Collective, Fabric, on_bcube, on_fabric
from planner.families.collectives.symmetric import Hop, SymmetricProgram, one_link
from planner.model.network import scattered
from planner.model.topologies import BCube


def ring_bcube(bcube: BCube) -> Collective:
    """Return the cost on a BCube, along `gray_cycle`."""
    steps, volume = _ring(bcube.servers)
    return on_bcube("ring", bcube, steps, volume)


def ring_fattree(fabric: Fabric) -> Collective:
    """Return the cost on a Fat-Tree, in any order of servers."""
    steps, volume = _ring(fabric.servers)
    return on_fabric("ring", fabric, steps, volume)


def ring_program(
    ranks: int,
    places: Sequence[Sequence[int]] = (),
    *,
    name: str = "ring",
    links: int = 1,
    wire: Callable[[int, int, int], int] = one_link,
) -> SymmetricProgram:
    """Return the program of one ring, or of several with a lane each.

    `places` lists the ranks of each ring in ring order; by default there is one ring in rank order.
    """
    # Chunk q starts at rank q + 1 and is complete at rank q, from where it goes round again.
    lanes = max(len(places), 1)
    hops = tuple(
        Hop(step, lane, (1 % ranks,), (-(1 + step) % ranks,), 1, adds=step < ranks - 1)
        for step in range(2 * (ranks - 1))
        for lane in range(lanes)
    )
    return SymmetricProgram(
        f"{name}({ranks})",
        (ranks,),
        ((0,),) * lanes,
        hops,
        ranks - 1,
        2 * (ranks - 1),
        links,
        wire,
        tuple(map(tuple, places)),
    )


def ring_bcube_program(bcube: BCube) -> SymmetricProgram:
    """Return the program of the ring along `gray_cycle`."""
    cycle = list(gray_cycle(bcube))
    return ring_program(bcube.servers, [cycle], name="ring_bcube", links=bcube.k, wire=bcube.wire)


def _ring(servers: int) -> tuple[int, Fraction]:
    return 2 * (servers - 1), 2 * scattered(servers)


def gray_cycle(bcube: BCube) -> Iterator[int]:
    """Yield the servers in an order in which neighbours, also last and first, differ in one digit.

    Digit i of the server in place j is j_i - j_{i+1} mod n. Counting up by one turns trailing
    digits n-1 of j into 0 and adds 1 to the next digit, so all differences but one stay the same.
    """
    for place in range(bcube.servers):
        server, stride, rest = 0, 1, place
        while rest:
            rest, digit = divmod(rest, bcube.n)
            server += (digit - rest) % bcube.n * stride
            stride *= bcube.n
        yield server
