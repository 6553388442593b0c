"""Exchanges digit by digit: the one pattern behind most all-reduces.

Problem. Generate the program of an all-reduce in which ranks, numbers with mixed radices, exchange
directly with those that differ from them in one digit, one digit after the other.

Method. A lane goes through the digits in its order. In step w every rank sends to each rank that
differs from it in the w-th digit the chunks whose owners agree with that one in the first w+1
digits. Afterwards it goes backwards and hands the sums out. With one digit it is the direct
exchange (parameter servers on all machines, BigDL's shuffle), with digits of radix 2 recursive
halving and doubling, with one digit a level the hierarchy, and with k lanes whose orders are
rotated by one digit each it is BML's Algorithm 1.

Guarantee. Each rank sends (N-1)/N of a lane's data in each half, the least there can be; two steps
a digit.

Complexity. Σ(radix - 1) hops a lane and half.

Source. Wang et al., "BML", NeurIPS 2018, section 3.2, Algorithm 1, of which the others are special
cases; Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
"""

from collections.abc import Callable, Sequence

from planner.collectives.symmetric import Hop, SymmetricProgram, one_link

__all__ = ["staged"]


def staged(
    name: str,
    radices: Sequence[int],
    orders: Sequence[Sequence[int]],
    *,
    links: int = 1,
    wire: Callable[[int, int, int], int] = one_link,
) -> SymmetricProgram:
    """Return the program.

    Parameters
    ----------
    name : str
        What to call it.
    radices : sequence of int
        Of the digits of a rank, the least significant first; digits of radix 1 take no step.
    orders : sequence of sequence of int
        For each lane, the digits in the order in which it goes through them.
    links, wire
        As in `SymmetricProgram`.
    """
    radices = tuple(radices)
    orders = tuple(tuple(digit for digit in order if radices[digit] > 1) for order in orders)
    still = [digit for digit, radix in enumerate(radices) if radix == 1]
    depth = len(orders[0])
    up: list[Hop] = []
    down: list[Hop] = []
    nothing = (0,) * len(radices)
    for w in range(depth):
        for lane, order in enumerate(orders):
            digit = order[w]
            for value in range(1, radices[digit]):
                shift = tuple(value if place == digit else 0 for place in range(len(radices)))
                up.append(Hop(w, lane, shift, shift, w + 1, adds=True))
                down.append(Hop(2 * depth - 1 - w, lane, shift, nothing, w + 1, adds=False))
    down.sort(key=lambda hop: hop.step)  # stable: lanes and values stay in order
    return SymmetricProgram(
        name,
        radices,
        tuple((*order, *still) for order in orders),
        (*up, *down),
        depth,
        2 * depth,
        links,
        wire,
    )
