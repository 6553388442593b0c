"""Synchronisation algorithms on a BCube with failures.

Problem: servers, NICs, links or switches have failed. Find the algorithms that still work, the cost
of BML's re-plan, and a lower bound over all algorithms. Method: an algorithm works if all its
messages use working links between working servers. All but the ring send over every NIC; the ring
uses those along its cycle. The re-plan (`planner.families.bml.program`) is priced from its program:
per step the busiest NIC's bytes and messages. Guarantee: exact for pieces that divide evenly. The
bound is half that of `planner.families.bml.reroute`: docs/iteration.md, "Why the bounds hold".
Complexity: that of the re-plan's program, once per cluster. Source: own.
"""

from collections import Counter, defaultdict
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from planner.families.bml.methods import infeasibility_of
from planner.families.bml.program import replanned
from planner.families.bml.reroute import Damage
from planner.families.collectives.program import Kind
from planner.families.collectives.ring import gray_cycle
from planner.model.clusters import Cluster
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube, Failures
from planner.solving.result import Infeasibility

ROUNDS = 16
"""Rounds of the re-plan in rounds (`bml_rounds`)."""

_HALVES: tuple[Kind, ...] = ("reduce_scatter", "all_gather")
_WHOLE: tuple[Kind, ...] = ("all_reduce",)


class Half(NamedTuple):
    """The cost of one half of a program.

    `volume`: bytes over the busiest NIC, summed over the steps, as a share of the gradient.
    `further`: messages of the busiest NIC after the first of each step. `shared`: whether all ranks
    own equal shares of the sums.
    """

    steps: int
    volume: Fraction
    further: int
    shared: bool


def cut_off(cluster: Cluster) -> Infeasibility | None:
    """Return why the failures of a cluster make synchronisation impossible, or None."""
    if not cluster.failed:
        return None
    cut = infeasibility_of(_damage(cluster))
    if cut is None:
        return None
    return Infeasibility(cut.reason, tuple(f"cluster.{name}" for name in cut.binding))


def refuse_broken(cluster: Cluster, name: str) -> None:
    """Raise `NotApplicableError` if an algorithm needs a server or a NIC that has failed."""
    damage, bcube = _damage(cluster), cluster.topology
    assert isinstance(bcube, BCube)
    for server in sorted(damage.dead):
        raise NotApplicableError("failed", f"server {_named(bcube, server)} has failed")
    used: set[tuple[int, int]] | None = None
    if name == "ring":
        cycle = [*gray_cycle(bcube)]
        hops = [*pairwise(cycle), (cycle[-1], cycle[0])]
        used = {(end, bcube.wire(*hop)) for hop in hops for end in hop}
    for server, level in sorted(damage.down):
        if used is None or (server, level) in used:
            raise NotApplicableError(
                "failed",
                f"server {_named(bcube, server)} sends over its link of level {level}, "
                "which does not work",
            )


def half_of_replan(cluster: Cluster, rounds: int = 1) -> Half:
    """Return the cost of a half of BML's re-plan; in rounds, which have no halves, of the whole.

    Raises `NotApplicableError` if there is no re-plan.
    """
    assert isinstance(cluster.topology, BCube)
    return _half(cluster.topology, cluster.failed, rounds)


@lru_cache(maxsize=16)  # the same failures recur with other start-ups and sizes
def _half(bcube: BCube, failed: Failures, rounds: int) -> Half:
    program = replanned(bcube, failed, rounds)
    halves = []
    for kind in _HALVES if rounds == 1 else _WHOLE:
        carried: defaultdict[int, Counter[tuple[int, int, bool]]] = defaultdict(Counter)
        sent: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
        for step, _, sender, receiver, link, first, stop, *_ in program.half(kind).messages():
            carried[step][sender, link, True] += stop - first
            carried[step][receiver, link, False] += stop - first
            sent[step][sender, link] += 1
        busiest = sum(max(nics.values()) for nics in carried.values())
        further = sum(max(nics.values()) - 1 for nics in sent.values())
        halves.append((len(carried), Fraction(busiest, program.chunks), further))
    owned = Counter(map(program.owner, range(program.chunks)))
    shared = len(set(map(owned.__getitem__, range(program.ranks)))) == 1
    steps, volume, further = (max(numbers) for numbers in zip(*halves, strict=True))
    return Half(steps, volume, further, shared and rounds == 1)


def least_volume(cluster: Cluster) -> Fraction:
    """Return the least volume of the busiest NIC in a half, as a share of the gradient."""
    return Fraction(0) if cut_off(cluster) else _damage(cluster).load_bound() / 2


def _damage(cluster: Cluster) -> Damage:
    assert isinstance(cluster.topology, BCube)
    return Damage(cluster.topology, cluster.failed)


def _named(bcube: BCube, server: int) -> str:
    return f"[{', '.join(map(str, bcube.digits(server)))}]"
