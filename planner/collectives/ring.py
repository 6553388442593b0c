"""Ring all-reduce: pieces go round, are added up on the first tour and handed out on the second.

Problem: all-reduce where a server talks to one neighbour in each direction only.

Method: N pieces; in each step every server sends one to its successor, N-1 steps to sum and N-1 to
hand out. On a BCube successors have to be neighbours: the modular n-ary Gray code is a Hamiltonian
cycle in which consecutive servers, the last and the first too, differ in one digit. Each server
then sends by one NIC and receives by one NIC; the others are idle.

Guarantee: volume 2(N-1)/N, the lower bound for one NIC; 2(N-1) steps.

Complexity: O(1) for the cost, O(k) a server of the cycle, O(N) for the program.

Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations",
JPDC 2009; Wang et al., "BML", NeurIPS 2018, section 2. The modular Gray code: Knuth, "The Art of
Computer Programming", volume 4A, section 7.2.1.1.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from planner.collectives.collective import Collective
from planner.collectives.fabric import Fabric
from planner.collectives.making import on_bcube, on_fabric
from planner.collectives.symmetric import Hop, SymmetricProgram, one_link
from planner.network import scattered
from planner.topologies import BCube

__all__ = ["gray_cycle", "ring_bcube", "ring_bcube_program", "ring_fattree", "ring_program"]


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
    """Return the program of a ring, or of several with a lane each.

    Parameters
    ----------
    ranks : int
        How many.
    places : sequence of sequence of int
        For each ring, the ranks in the order in which they follow each other; none: one ring in
        the order of ranks.
    name : str
        What to call it.
    links, wire
        As in `SymmetricProgram`.
    """
    # The chunk of number q starts at q + 1 and is complete at q, from where it goes round again.
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
    """Yield all servers once, each a neighbour of the next and the last one of the first.

    Digit i of the server in place j is j_i - j_{i+1} mod n. Counting on by one changes digits of j
    from n-1 to 0 up to some place and adds 1 there, so all differences but one stay the same.
    """
    for place in range(bcube.servers):
        server, stride, rest = 0, 1, place
        while rest:
            rest, digit = divmod(rest, bcube.n)
            server += (digit - rest) % bcube.n * stride
            stride *= bcube.n
        yield server
