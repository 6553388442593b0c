"""Recursive halving and doubling: partners exchange half of what they still sum.

Problem: all-reduce in few steps.

Method: in step i a server and the one whose number differs in bit i exchange halves of the range
they share, and each adds one half; log2 N steps leave every server with the sum of 1/N of the
gradient, log2 N more hand it back. If N is no power of two, p the largest one below it, the N - p
servers too many first give their whole gradient to a partner, and get the whole sum from it at the
end. On BCube(n, k) with n a power of two a bit lies within one digit, so partners are neighbours;
one NIC is in use at a time.

Guarantee: at powers of two volume 2(N-1)/N, the lower bound for one NIC, in 2·log2 N steps;
otherwise 2(p-1)/p + 2 in 2·log2 p + 2, and a partner adds one whole gradient more.

Complexity: O(1).

Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; Thakur,
Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
"""

from fractions import Fraction

from planner.collectives.collective import Collective
from planner.collectives.fabric import Fabric
from planner.collectives.making import on_bcube, on_fabric
from planner.errors import NotApplicableError
from planner.network import scattered
from planner.topologies import BCube

__all__ = ["halving_doubling_bcube", "halving_doubling_fattree"]


def halving_doubling_bcube(bcube: BCube) -> Collective:
    """Return the cost on a BCube.

    Raises
    ------
    NotApplicableError
        If n is no power of two.
    """
    if bcube.n & (bcube.n - 1):
        raise NotApplicableError(
            "n",
            "halving_doubling on a BCube needs partners that are neighbours: n must be a power of "
            f"two, got {bcube.n}",
        )
    return on_bcube("halving_doubling", bcube, *_cost(bcube.servers))


def halving_doubling_fattree(fabric: Fabric) -> Collective:
    """Return the cost on a Fat-Tree."""
    return on_fabric("halving_doubling", fabric, *_cost(fabric.servers))


def _cost(servers: int) -> tuple[int, Fraction, Fraction]:
    """Return steps, volume and what the busiest server adds."""
    levels = servers.bit_length() - 1
    core = scattered(1 << levels)
    fold = int(servers != 1 << levels)
    return 2 * levels + 2 * fold, 2 * core + 2 * fold, core + fold
