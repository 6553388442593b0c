"""Bruck's algorithm: halving and doubling for any number of ranks, each with a share in between.

Method: ranks stand in a circle. In step i of the all-gather a rank sends the 2^i shares that begin
with its own, or as many as are missing, to the rank 2^i places before it. The reduce-scatter is the
same backwards, with additions.
Guarantee: per half ⌈log2 N⌉ steps, the fewest possible, and volume (N-1)/N, the lower bound for one
NIC; one partner per step. At powers of two the cost is that of `halving_doubling`.
Complexity: O(1) for the cost; O(N) chunks per rank and half for the program, by symmetry.
Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient Algorithms for All-to-All Communications
in Multiport Message-Passing Systems", IEEE TPDS 1997. NCCL's PAT has both halves: Jeaugey, "PAT: a
new algorithm for all-gather and reduce-scatter operations at scale", 2025.
"""

from planner.families.collectives.cost import Cost
from planner.families.collectives.symmetric import Hop, SymmetricProgram
from planner.model.network import scattered


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
