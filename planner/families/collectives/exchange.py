"""Digit-by-digit exchange: the common pattern of most all-reduce algorithms, and what they cost.

Method: ranks are numbers with mixed radices, and a lane goes through the digits in its order. In
step w every rank sends to each rank that differs from it in the w-th digit the chunks whose owners
agree with the receiver in the first w+1 digits. The same steps in reverse hand out the sums. One
digit gives the direct exchange, digits of radix 2 recursive halving and doubling, one digit per
level the hierarchy, and k lanes with rotated orders BML's Algorithm 1.
Guarantee: each rank sends (N-1)/N of a lane's data per half, the minimum; two steps per digit.
Complexity: Σ(radix - 1) hops per lane and half; O(1) for a cost.
Source: Wang et al., "BML", NeurIPS 2018, section 3.2, Algorithm 1, which has the others as special
cases; Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from planner.families.collectives.cost import Collective, Cost, Fabric, placed
from planner.families.collectives.program import OWN, ListedProgram, Message
from planner.families.collectives.symmetric import Hop, SymmetricProgram, lane_link, one_link
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import scattered
from planner.model.topologies import BCube, FatTree
from planner.model.validation import integers, total


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


# ---
# BML: k interleaved reduce-scatters and all-gathers on BCube(n, k), all k NICs always in use.
#
# Method: the gradient is cut into k·N pieces <t, q>. Thread t exchanges at level t, then t+1, …,
# t-1 (mod k), with the n-1 neighbours there, the pieces that match the digits seen so far: n times
# fewer pieces every step. At any step the k threads of a server are at k different levels.
# Guarantee: volume 2(N-1)/(kN) and (N-1)/N additions, both the lower bound; 2k steps.


def bml_on(bcube: BCube) -> Collective:
    """Return the cost of BML on a BCube."""
    return placed("bml", bcube, 2 * bcube.k, 2 * scattered(bcube.servers) / bcube.k)


def bml_program(bcube: BCube) -> SymmetricProgram:
    """Return Algorithm 1 as a program with one lane per thread."""
    k = bcube.k
    orders = [[(thread + step) % k for step in range(k)] for thread in range(k)]
    name = f"bml({bcube.n}, {k})"
    return staged(name, (bcube.n,) * k, orders, links=k, wire=bcube.wire)


# ---
# Hierarchical all-reduce: reduce-scatter within groups, then among groups, and all the way back.
#
# On a Fat-Tree, servers of an edge switch exchange directly; then servers in the same place of the
# edges of a pod exchange their 1/g1; then those of the pods their 1/(g1·g2). If N does not fill the
# tree, group sizes are the largest divisors of N that fit the switches. On a BCube it is a single
# thread of BML: one level, and so one NIC, at a time.
# Guarantee: volume (g1-1)/g1 + (g2-1)/(g1·g2) + (g3-1)/N each way, which telescopes to 2(N-1)/N:
# with one NIC it gains nothing over two direct steps. Two steps per level of more than one member.
# Source: Wang et al., "BML", NeurIPS 2018, section 3.3.


def tree_groups(servers: int, tree: FatTree) -> tuple[int, int, int]:
    """Return the sizes of groups at the edge of a tree, in a pod and over the cores."""
    edge, pod, _ = tree.groups
    first = next(size for size in range(edge, 0, -1) if servers % size == 0)
    rest = servers // first
    second = next(size for size in range(pod, 0, -1) if rest % size == 0)
    return first, second, rest // second


def hierarchical_cost(groups: Sequence[int]) -> Cost:
    """Return the cost of direct exchanges in groups of these sizes, innermost first."""
    volume, below = Fraction(0), 1
    for size in groups:
        volume += scattered(size) / below
        below *= size
    return Cost(steps=2 * sum(size > 1 for size in groups), volume=2 * volume, reduced=volume)


def hierarchical_on(place: BCube | Fabric) -> Collective:
    """Return the cost on a BCube or a Fat-Tree."""
    if isinstance(place, BCube):
        cost = hierarchical_cost((place.n,) * place.k)
    else:
        cost = hierarchical_cost(tree_groups(place.servers, place.tree))
    return placed("hierarchical", place, cost.steps, cost.volume, cost.reduced)


def hierarchical_program(groups: Sequence[int]) -> SymmetricProgram:
    """Return the program of direct exchanges in groups of these sizes, innermost first."""
    name = f"hierarchical({', '.join(map(str, groups))})"
    return staged(name, groups, [range(len(groups))])


def hierarchical_bcube_program(bcube: BCube) -> SymmetricProgram:
    """Return the program on a BCube, level by level."""
    name = f"hierarchical_bcube({bcube.n}, {bcube.k})"
    levels = range(bcube.k)
    return staged(name, (bcube.n,) * bcube.k, [levels], links=bcube.k, wire=bcube.wire)


# ---
# Direct exchange: every server sums 1/N of the gradient, fetched from all others.
#
# Two names of one pattern: parameter servers on all workers (`ps`), and BigDL's shuffle
# (`shuffle`). On a Fat-Tree both take 2 steps; with k NICs (`k_nics`) each NIC carries 1/k of every
# piece. On BCube(n, k) pieces are relayed without additions. Each piece is cut into k parts; part t
# corrects digit t first, then t+1, … (mod k), so all NICs are equally busy: (n-1)/(kn) in each of
# 2k steps.
# Guarantee: volume 2(N-1)/N with one NIC and 2(N-1)/(kN) with k, the lower bounds. On a BCube
# 2(n-1)/n, which is k(n-1)N / (n(N-1)) times BML's: for k = 2, 2n/(n+1), towards the paper's 2.
# Source: Wang et al., "BML", NeurIPS 2018, sections 2 and 3.3; Venkataraman et al., "Accelerating
# Deep Learning Training with BigDL and Drizzle on Apache Spark".


def direct_on(algorithm: str, place: BCube | Fabric) -> Collective:
    """Return the cost of ``ps``, ``shuffle``, or ``k_nics``, which uses all NICs of a Fat-Tree."""
    if isinstance(place, BCube):
        return placed(algorithm, place, 2 * place.k, Fraction(2 * (place.n - 1), place.n))
    volume = 2 * scattered(place.servers) / place.nics
    return placed(algorithm, place, 2, volume)


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
    return ListedProgram(name, count, k, k, k * count, tuple(messages), owners, k)


# ---
# Parameter servers that hold whole tensors, as TensorFlow places variables.
#
# All N servers are workers and parameter servers, but tensors are not cut: tensor i goes to server
# i mod N. A server with L of S bytes receives (N-1)·L and sends S - L. As S <= (N-1)·L_max + L_min,
# the most loaded server decides; pulling mirrors that. Guarantee: exact: volume 2(N-1)·L_max/S,
# additions (N-1)·L_max/S, 2 steps. Complexity: O(T). Source: TensorFlow's
# ``replica_device_setter`` (round robin); that whole tensors unbalance servers: Wang et al., "BML",
# NeurIPS 2018, section 4.3.


def round_robin(tensors: Iterable[Any], servers: int) -> tuple[int, ...]:
    """Return the bytes on each server that gets a tensor, if tensors go round robin."""
    sizes = integers(tensors, "tensors")
    if not total(sum(sizes), "tensors", "the sum of the tensors' bytes"):
        raise InvalidInputError("tensors", "expected at least one byte, got 0")
    return tuple(sum(sizes[first::servers]) for first in range(min(servers, len(sizes))))


def tensors_on(fabric: Fabric, tensors: Iterable[Any]) -> Collective:
    """Return the cost on a Fat-Tree."""
    loads = round_robin(tensors, fabric.servers)
    busiest = (fabric.servers - 1) * Fraction(max(loads), sum(loads))
    return placed("ps_tensors", fabric, 2, 2 * busiest, busiest)


# ---
# Recursive halving and doubling: in step i, servers that differ in bit i exchange half of a range.
#
# log2 N steps leave every server with the sum of 1/N of the gradient; log2 N more hand it back. If
# N is no power of two, let p be the largest below it: the N - p folded servers first send their
# whole gradient to a partner and get the sum back at the end. This case has a cost but no program:
# `bruck` takes fewer steps and bytes. On BCube(n, k), n a power of two, partners are neighbours and
# one NIC is in use.
# Guarantee: volume 2(N-1)/N, the lower bound for one NIC, in 2·log2 N steps at powers of two. Else
# 2(p-1)/p + 2 in 2·log2 p + 2 steps, and a partner adds one whole gradient more.
# Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; Thakur,
# Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.


def halving_doubling_on(place: BCube | Fabric) -> Collective:
    """Return the cost on a Fat-Tree, or on a BCube, if its n is a power of two."""
    if isinstance(place, BCube) and place.n & (place.n - 1):
        raise NotApplicableError(
            "n",
            "halving_doubling on a BCube needs partners that are neighbours: n must be a power of "
            f"two, got {place.n}",
        )
    levels = place.servers.bit_length() - 1
    core = scattered(1 << levels)
    fold = int(place.servers != 1 << levels)
    steps, volume = 2 * levels + 2 * fold, 2 * core + 2 * fold
    return placed("halving_doubling", place, steps, volume, core + fold)


def halving_doubling_program(ranks: int) -> SymmetricProgram:
    """Return the program; a `NotApplicableError` if the number of ranks is no power of two."""
    if ranks & (ranks - 1):
        raise NotApplicableError(
            "ranks", f"halving_doubling needs a power of two, got {ranks}: bruck takes any number"
        )
    bits = ranks.bit_length() - 1
    return staged(f"halving_doubling({ranks})", (2,) * bits, [range(bits)])


def halving_doubling_bcube_program(bcube: BCube) -> SymmetricProgram:
    """Return the program on a BCube, bit by bit; a `NotApplicableError` if n is no power of two."""
    halving_doubling_on(bcube)  # raises if it does not apply
    bits = (bcube.n.bit_length() - 1) * bcube.k
    name = f"halving_doubling_bcube({bcube.n}, {bcube.k})"
    return staged(name, (2,) * bits, [range(bits)], links=bcube.k, wire=bcube.wire)
