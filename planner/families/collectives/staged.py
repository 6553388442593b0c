"""Digit-by-digit exchange: the common pattern of most all-reduce algorithms.

Method: ranks are numbers with mixed radices, and a lane goes through the digits in its order. In
step w every rank sends to each rank that differs from it in the w-th digit the chunks whose owners
agree with the receiver in the first w+1 digits; then it goes backwards to hand the sums out. One
digit gives the direct exchange, digits of radix 2 recursive halving and doubling, one digit per
level the hierarchy, and k lanes with rotated orders BML's Algorithm 1.
Guarantee: each rank sends (N-1)/N of a lane's data per half, the minimum; two steps per digit.
Complexity: Σ(radix - 1) hops per lane and half.
Source: Wang et al., "BML", NeurIPS 2018, section 3.2, Algorithm 1, which has the others as special
cases; Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
"""

from collections.abc import Callable, Sequence

from planner.families.collectives.symmetric import Hop, SymmetricProgram, one_link


def staged(
    name: str,
    radices: Sequence[int],
    orders: Sequence[Sequence[int]],
    *,
    links: int = 1,
    wire: Callable[[int, int, int], int] = one_link,
) -> SymmetricProgram:
    """Return the program of a digit-by-digit exchange.

    `radices` belong to the digits of a rank, the least significant first; a digit of radix 1 takes
    no step. `orders` holds for each lane the order in which it goes through the digits. `links` and
    `wire` are those of `SymmetricProgram`.
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
