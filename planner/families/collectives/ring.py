"""All-reduces around a circle of ranks: the ring, and Bruck's algorithm, which doubles its steps.

Ring: N pieces go round twice, N-1 steps to be summed up and N-1 to be handed out. On a BCube ring
neighbours have to be BCube neighbours: the modular n-ary Gray code is a Hamiltonian cycle in which
consecutive servers differ in one digit. Each server then sends over one NIC and receives over one
NIC; its other NICs idle.

Guarantee: volume 2(N-1)/N, the lower bound for one NIC, in 2(N-1) steps.
Complexity: O(1) for the cost, O(k) per server of the cycle, O(N) for the program.
Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
Workstations", JPDC 2009; Wang et al., "BML", NeurIPS 2018, section 2. The modular Gray code:
Knuth, "The Art of Computer Programming", volume 4A, section 7.2.1.1.
"""

from collections.abc import Callable, Iterator, Sequence

from planner.families.collectives.cost import Collective, Cost, Fabric, placed
from planner.families.collectives.symmetric import Hop, SymmetricProgram, one_link
from planner.model.network import scattered
from planner.model.topologies import BCube


def ring_on(place: BCube | Fabric) -> Collective:
    """Return the cost on a BCube, along `gray_cycle`, or on a Fat-Tree, in any order of servers."""
    return placed("ring", place, 2 * (place.servers - 1), 2 * scattered(place.servers))


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


# ---
# Bruck's algorithm: halving and doubling for any number of ranks; a rank sums up one share.
#
# Method: ranks stand in a circle. In step i of the all-gather a rank sends the 2^i shares that
# begin with its own, or as many as are missing, to the rank 2^i places before it. The
# reduce-scatter is the same backwards, with additions.
# Guarantee: per half ⌈log2 N⌉ steps, the fewest possible, and volume (N-1)/N, the lower bound for
# one NIC; one partner per step. At powers of two the cost is that of `halving_doubling`.
# Complexity: O(1) for the cost; O(N) chunks per rank and half for the program, by symmetry.
# Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient Algorithms for All-to-All
# Communications in Multiport Message-Passing Systems", IEEE TPDS 1997; Jeaugey, "PAT: a new
# algorithm for all-gather and reduce-scatter operations at scale", 2025: NCCL has both halves.


def bruck_cost(ranks: int) -> Cost:
    """Return the cost of an all-reduce on a network where every rank reaches every other."""
    share = scattered(ranks)
    return Cost(steps=2 * (ranks - 1).bit_length(), volume=2 * share, reduced=share)


def bruck_program(ranks: int) -> SymmetricProgram:
    """Return the program for any number of ranks."""
    levels = (ranks - 1).bit_length()
    up, down = [], []
    for level in range(levels):
        far = 1 << level
        missing = min(far, ranks - far)
        up.append(Hop(levels - 1 - level, 0, (far,), (far,), 1, adds=True, run=missing))
        down.append(Hop(levels + level, 0, (ranks - far,), (0,), 1, adds=False, run=missing))
    hops = (*reversed(up), *down)
    return SymmetricProgram(f"bruck({ranks})", (ranks,), ((0,),), hops, levels, 2 * levels)
