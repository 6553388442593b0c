"""Algorithm 1 of the BML paper, literally: the oracle of the closed form.

Problem. What thread t on server a of a BCube(n, k) sends to whom in every step, as sets of pieces.
A piece <e, v_{k-1}, …, v_0> is summed by thread e on server [v_{k-1}, …, v_0].

Complexity. O(k·n·N) a thread of a server and step set: every call of `CalcGset` looks at all k·N
pieces. The closed form (`planner.families.bml.schedule`) needs O(1) a transfer.

Source. Wang et al., "BML: A High-performance, Low-cost Gradient Synchronization Algorithm for DML
Training", NeurIPS 2018, section 3.2, Algorithm 1; lines are numbered as there.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from planner.model.topologies import BCube

Id = tuple[int, ...]
"""A piece: its thread, then the digits of its server, the highest first."""


class Sent(NamedTuple):
    """One transmission of a thread: what it sends to one neighbour in one step.

    Attributes
    ----------
    stage : str
        "aggregate" or "broadcast".
    step : int
        w, from 0 in each stage.
    level : int
        The level of the link, l.
    peer : int
        The neighbour s.
    pieces : frozenset of tuple
        The pieces a.G.
    """

    stage: str
    step: int
    level: int
    peer: int
    pieces: frozenset[Id]


def run_thread(bcube: BCube, thread: int, server: int) -> Iterator[Sent]:
    """Run thread `thread` (t) of `server` (a)."""
    n, k = bcube.n, bcube.k
    full = [(e, *digits) for e in range(k) for digits in product(range(n), repeat=k)]  # line 1
    for w in range(k):  # line 2: RunAggregation(w)
        level = (w + thread) % k  # line 6
        for peer in _on_level(bcube, server, level):  # line 7
            pieces = _calc_gset(bcube, peer, w, full, thread)  # line 8
            yield Sent("aggregate", w, level, peer, pieces)  # line 9
    for w in range(k):  # line 4: RunBroadcast(w)
        level = (k - 1 - w + thread) % k  # line 11
        pieces = _calc_gset(bcube, server, k - 1 - w, full, thread)  # line 12
        for peer in _on_level(bcube, server, level):  # line 13
            yield Sent("broadcast", w, level, peer, pieces)  # line 14


def _on_level(bcube: BCube, server: int, level: int) -> list[int]:
    """Return N_l(a): who shares the level-l switch with a server."""
    own = bcube.digits(server)
    place = bcube.k - 1 - level
    return [
        bcube.server([*own[:place], value, *own[place + 1 :]])
        for value in range(bcube.n)
        if value != own[place]
    ]


def _calc_gset(bcube: BCube, s: int, w: int, full: list[Id], thread: int) -> frozenset[Id]:
    """CalcGset: lines 16 to 20."""
    digits = bcube.digits(s)
    return frozenset(g for g in full if _check_digits(bcube.k, g, digits, w, thread))


def _check_digits(k: int, g: Id, s: Id, w: int, thread: int) -> bool:
    """CheckDigits: lines 21 to 25."""
    for i in range(w + 1):
        j = (i + thread) % k
        if g[k - j] != s[k - 1 - j] or g[0] != thread:  # digit j of g stands behind its thread
            return False
    return True
