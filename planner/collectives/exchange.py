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

Complexity: O(1).

Source: Wang et al., "BML", NeurIPS 2018, sections 2 and 3.3 (the paper states the limit, "double");
Venkataraman et al., "Accelerating Deep Learning Training with BigDL and Drizzle on Apache Spark".
"""

from fractions import Fraction

from planner.collectives.collective import Collective
from planner.collectives.fabric import Fabric
from planner.collectives.making import on_bcube, on_fabric
from planner.network import scattered
from planner.topologies import BCube

__all__ = ["k_nics_fattree", "ps_bcube", "ps_fattree", "shuffle_bcube", "shuffle_fattree"]


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


def _routed(algorithm: str, bcube: BCube) -> Collective:
    return on_bcube(algorithm, bcube, 2 * bcube.k, Fraction(2 * (bcube.n - 1), bcube.n))


def _direct(algorithm: str, fabric: Fabric, *, many: bool = False) -> Collective:
    volume = 2 * scattered(fabric.servers) / fabric.nics
    return on_fabric(algorithm, fabric, 2, volume, many=many)
