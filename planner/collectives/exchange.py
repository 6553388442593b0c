"""Direct exchanges: every server sums 1/N of the gradient, fetched from all the others.

Problem: all-reduce with as few steps as there can be, and no sums on the way.

Method: two names of one pattern. As a parameter server (`ps`), every server is a worker too: all
push a piece to each server, and pull all the summed pieces. In BigDL's shuffle (`shuffle`) servers
pull their slice of every gradient, and then all updated slices. On a Fat-Tree both are 2 steps, and
with k NICs (`k_nics`) each NIC carries 1/k of every piece over a Fat-Tree of its own.

On BCube(n, k) a piece crosses a link at each level where the digits of the two servers differ, and
nothing is added on the way. Each piece is cut into k parts; part t corrects digit t first, then
t+1, … (mod k), so that all NICs are equally busy in each of the 2k store-and-forward steps. For
each digit, n-1 of n destinations differ from where a part is: every NIC carries (n-1)/(kn) a step.

Guarantee: volume 2(N-1)/N with one NIC and 2(N-1)/(kN) with k, the lower bounds; on a BCube exactly
2(n-1)/n, which is k(n-1)N / (n(N-1)) times BML's: for k = 2 that is 2n/(n+1), towards 2 as n grows.

Complexity: O(1) for the costs.

Source: Wang et al., "BML", NeurIPS 2018, sections 2 and 3.3 (the paper states the limit, "double");
Venkataraman et al., "Accelerating Deep Learning Training with BigDL and Drizzle on Apache Spark".
"""

from fractions import Fraction
from itertools import product

from planner.collectives.collective import Collective
from planner.collectives.fabric import Fabric
from planner.collectives.making import on_bcube, on_fabric
from planner.collectives.program import OWN, ListedProgram, Message
from planner.collectives.staged import staged
from planner.collectives.symmetric import SymmetricProgram, lane_link
from planner.network import scattered
from planner.topologies import BCube

__all__ = [
    "direct_program",
    "k_nics_fattree",
    "ps_bcube",
    "ps_fattree",
    "routed_program",
    "shuffle_bcube",
    "shuffle_fattree",
]


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
    """Return the cost with several NICs a server, and as many Fat-Trees."""
    return _direct("k_nics", fabric, many=True)


def direct_program(ranks: int, nics: int = 1) -> SymmetricProgram:
    """Return the program of a direct exchange, over each NIC that of a share of the data.

    Ranks send to those behind them first, so that nobody is asked by all at once.
    """
    name = f"direct({ranks})" if nics == 1 else f"direct({ranks}, {nics} NICs)"
    return staged(name, (ranks,), [[0]] * nics, links=nics, wire=lane_link)


def routed_program(bcube: BCube) -> ListedProgram:
    """Return the program of a direct exchange on a BCube: pieces are passed on, not added up.

    Of at most 2·k²·N² messages, each of one chunk. What is on its way from a server, or to it, is
    in the buffer of that server's number.
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
