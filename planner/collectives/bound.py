"""What every all-reduce costs at least.

Problem: N servers with k full-duplex NICs each hold a gradient of one size; all of them shall hold
the sum. Messages carry partial sums.

Guarantee: no algorithm has less volume than 2(N-1)/(kN), adds less than (N-1)/N at the busiest
server, or takes fewer steps than the longest of the shortest paths has hops. The three are bounds
each by itself, and a time is the sum of the three, so the time of the bound is one too.

Proof. Take one element of the gradient and all its transfers, those of one step in any order. Let
server x be the first that knows the whole sum. Up to the transfer that completes it, each of the
other N-1 servers has sent at least once: its contribution has left it. After that transfer, each of
the other N-1 has yet to receive at least once: none of them was complete, for x was the first, and
a transfer has one receiver. These are 2(N-1) different transfers for every element, hop by hop if
servers relay, over kN NICs: in each step the busiest sends at least the average. Summing N
contributions takes N-1 additions, shared by N servers. And a contribution advances one hop a step.

Source: the volume for k = 1 is in Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for
Clusters of Workstations", JPDC 2009; BML meets it for k NICs (NeurIPS 2018, section 3.2).
"""

from fractions import Fraction

from planner.collectives.collective import Cost
from planner.validation import integer

__all__ = ["lower_bound"]


def lower_bound(servers: int, nics: int = 1, diameter: int = 1) -> Cost:
    """Return the bound for so many servers with so many NICs.

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
