"""BML: k interleaved reduce-scatters and all-gathers on BCube(n, k), all k NICs always in use.

Method: the gradient is cut into k·N pieces <t, q>. Thread t exchanges at level t, then t+1, …, t-1
(mod k), with the n-1 neighbours there, the pieces that match the digits seen so far: n times fewer
pieces every step. Then it goes backwards with the sums. At any step the k threads of a server are
at k different levels.
Guarantee: volume 2(N-1)/(kN) and (N-1)/N additions, both the lower bound; 2k steps.
Complexity: O(1). Source: Wang et al., "BML", NeurIPS 2018, section 3.2 and Algorithm 1.
"""

from planner.families.collectives.cost import Collective, on_bcube
from planner.families.collectives.staged import staged
from planner.families.collectives.symmetric import SymmetricProgram
from planner.model.network import scattered
from planner.model.topologies import BCube


def bml_bcube(bcube: BCube) -> Collective:
    """Return the cost of BML on a BCube."""
    return on_bcube("bml", bcube, 2 * bcube.k, 2 * scattered(bcube.servers) / bcube.k)


def bml_program(bcube: BCube) -> SymmetricProgram:
    """Return Algorithm 1 as a program with one lane per thread."""
    k = bcube.k
    orders = [[(thread + step) % k for step in range(k)] for thread in range(k)]
    name = f"bml({bcube.n}, {k})"
    return staged(name, (bcube.n,) * k, orders, links=k, wire=bcube.wire)
