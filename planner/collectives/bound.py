"""Lower bound on the cost of every all-reduce algorithm.

Problem: N servers with k full-duplex NICs each hold a gradient; all of them shall hold the sum.
Messages carry partial sums.
Guarantee: no algorithm has less volume than 2(N-1)/(kN), adds less than (N-1)/N at the busiest
server, or takes fewer steps than the diameter of the network. Each is a bound by itself, and a time
is the sum of the three, so the time of the bound is a lower bound too. Proof: docs/bml.md, "Why no
all-reduce has less volume".
Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations",
JPDC 2009 (volume for k = 1); BML meets it for k NICs (NeurIPS 2018, section 3.2).
"""

from fractions import Fraction

from planner.collectives.collective import Cost
from planner.validation import integer

__all__ = ["lower_bound"]


def lower_bound(servers: int, nics: int = 1, diameter: int = 1) -> Cost:
    """Return the lower bound over all all-reduce algorithms.

    Parameters
    ----------
    servers : int
        Number of servers N.
    nics : int
        NICs k of a server.
    diameter : int
        Most hops between two servers: 1 on a switch and on a Fat-Tree, k on BCube(n, k).

    Raises
    ------
    InvalidInputError
        If one of them is below 1.
    """
    integer(servers, "servers", minimum=1)
    integer(nics, "nics", minimum=1)
    integer(diameter, "diameter", minimum=1)
    return Cost(
        steps=diameter if servers > 1 else 0,
        volume=Fraction(2 * (servers - 1), nics * servers),
        reduced=Fraction(servers - 1, servers),
    )
