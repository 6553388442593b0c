"""Direct exchange: every server sums 1/N of the gradient, fetched from all others.

Two names of one pattern: parameter servers on all workers (`ps`), and BigDL's shuffle (`shuffle`).
On a Fat-Tree both take 2 steps; with k NICs (`k_nics`) each NIC carries 1/k of every piece. On
BCube(n, k) pieces are relayed without additions. Each piece is cut into k parts; part t corrects
digit t first, then t+1, … (mod k), so all NICs are equally busy: (n-1)/(kn) in each of 2k steps.
Guarantee: volume 2(N-1)/N with one NIC and 2(N-1)/(kN) with k, the lower bounds. On a BCube
2(n-1)/n, which is k(n-1)N / (n(N-1)) times BML's: for k = 2, 2n/(n+1), towards the paper's 2.
Complexity: O(1) for the costs. Source: Wang et al., "BML", NeurIPS 2018, sections 2 and 3.3;
Venkataraman et al., "Accelerating Deep Learning Training with BigDL and Drizzle on Apache Spark".
"""

from fractions import Fraction
from itertools import product

from planner.families.collectives.cost import Collective, Fabric, on_bcube, on_fabric
from planner.families.collectives.program import OWN, ListedProgram, Message
from planner.families.collectives.staged import staged
from planner.families.collectives.symmetric import SymmetricProgram, lane_link
from planner.model.network import scattered
from planner.model.topologies import BCube


def ps_bcube(bcube: BCube) -> Collective:
    """Return the cost of parameter servers on a BCube."""
    return _routed("ps", bcube)


def ps_fattree(fabric: Fabric) -> Collective:
    """Return the cost of parameter servers on a Fat-Tree."""
    return _direct("ps", fabric)


def shuffle_bcube(bcube: BCube) -> Collective:
    """Return the cost of BigDL's shuffle on a BCube."""
    return _routed("shuffle", bcube)


def shuffle_fattree(fabric: Fabric) -> Collective:
    """Return the cost of BigDL's shuffle on a Fat-Tree."""
    return _direct("shuffle", fabric)


def k_nics_fattree(fabric: Fabric) -> Collective:
    """Return the cost with several NICs per server, and one Fat-Tree per NIC."""
    return _direct("k_nics", fabric, many=True)


def direct_program(ranks: int, nics: int = 1) -> SymmetricProgram:
    """Return the program of a direct exchange; each NIC carries its share of the data.

    Ranks send to their successors first, so that no rank receives from all others at once.
    """
    name = f"direct({ranks})" if nics == 1 else f"direct({ranks}, {nics} NICs)"
    return staged(name, (ranks,), [[0]] * nics, links=nics, wire=lane_link)


def routed_program(bcube: BCube) -> ListedProgram:
    """Return the program of a direct exchange on a BCube: pieces are relayed, not added up.

    It has at most 2·k²·N² messages of one chunk each. A relayed chunk is in the buffer that has the
    number of the chunk's origin, or of its destination.
    """
    n, k, count = bcube.n, bcube.k, bcube.servers
    messages: list[Message] = []
    for origin, owner, lane in product(range(count), range(count), range(k)):
        chunk = lane * count + owner
        here, there = origin, owner
        way = [
            (step, level)
            for step, level in ((step, (lane + step) % k) for step in range(k))
            if bcube.digit(origin, level) != bcube.digit(owner, level)
        ]
        for step, level in way:
            last = (step, level) == way[-1]
            source = OWN if (step, level) == way[0] else origin
            target = OWN if last else origin
            up = bcube.with_digit(here, level, bcube.digit(owner, level))
            down = bcube.with_digit(there, level, bcube.digit(origin, level))
            ends = level, chunk, chunk + 1
            messages += [
                Message(step, lane, here, up, *ends, last, source, target),
                Message(k + step, lane, there, down, *ends, False, source, target),
            ]
            here, there = up, down
    owners = [*range(count)] * k
    name = f"routed({n}, {k})"
    return ListedProgram(name, count, k, k, k * count, tuple(messages), owners, k, exclusive=False)


def _routed(algorithm: str, bcube: BCube) -> Collective:
    return on_bcube(algorithm, bcube, 2 * bcube.k, Fraction(2 * (bcube.n - 1), bcube.n))


def _direct(algorithm: str, fabric: Fabric, *, many: bool = False) -> Collective:
    volume = 2 * scattered(fabric.servers) / fabric.nics
    return on_fabric(algorithm, fabric, 2, volume, many=many)
