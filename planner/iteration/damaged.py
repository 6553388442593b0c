"""What failures leave of the algorithms on a BCube.

Problem. Servers, NICs, links or switches of a BCube have failed. Which synchronisation algorithms
still work as they are, what does BML's re-plan cost, and what does no algorithm undercut?

Method. An algorithm works as it is if all its messages go between living servers over links that
work. All but the ring send over every NIC; the ring takes those along its cycle. BML's re-plan
(`planner.bml.replan`) is priced from its program: in every step the busiest NIC's bytes and
messages, of both halves the larger number.

Guarantee. Exact for pieces that divide evenly. The bound is that of `planner.bml.damage` on every
all-reduce, divided by two. It holds for a half too: where P parts are summed up P-1 transfers join
them, N'-1 of single servers; and a server that owns a share s of the sums sends 1-s at least, and
receives s, so that its NICs carry 1/2 in one direction.

Complexity. That of the re-plan's program, once for a cluster. Source: own.
"""

from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from planner.bml.damage import Damage
from planner.bml.family import infeasibility_of
from planner.bml.replan import replanned
from planner.clusters import Cluster
from planner.collectives.loads import loads
from planner.collectives.program import Kind
from planner.collectives.ring import gray_cycle
from planner.errors import NotApplicableError
from planner.results import Infeasibility
from planner.topologies import BCube, Failures

__all__ = ["ROUNDS", "Half", "cut_off", "half_of_replan", "least_volume", "refuse_broken"]

ROUNDS = 16
"""Rounds of the re-plan that has some."""

_HALVES: tuple[Kind, ...] = ("reduce_scatter", "all_gather")
_WHOLE: tuple[Kind, ...] = ("all_reduce",)


class Half(NamedTuple):
    """What a half of a program costs.

    Attributes
    ----------
    steps : int
        Its steps.
    volume : Fraction
        Bytes over the busiest NIC, summed over the steps, as a share of the gradient.
    further : int
        Messages of the busiest NIC beside the first of each step.
    shared : bool
        Whether all ranks own as much of the sums.
    """

    steps: int
    volume: Fraction
    further: int
    shared: bool


def cut_off(cluster: Cluster) -> Infeasibility | None:
    """Return why the failures of a cluster leave no way to synchronise, if they do not."""
    if not cluster.failed:
        return None
    cut = infeasibility_of(_damage(cluster))
    if cut is None:
        return None
    return Infeasibility(cut.reason, tuple(f"cluster.{name}" for name in cut.binding))


def refuse_broken(cluster: Cluster, name: str) -> None:
    """Refuse an algorithm that needs what has failed.

    Raises
    ------
    NotApplicableError
        It names the first server, or NIC, that it needs.
    """
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
    """Return what a half of BML's re-plan costs; in rounds, which have none, what all of it does.

    Raises
    ------
    NotApplicableError
        If there is none.
    """
    assert isinstance(cluster.topology, BCube)
    return _half(cluster.topology, cluster.failed, rounds)


@lru_cache(maxsize=16)  # a cluster is asked about again with other start-ups, and other sizes
def _half(bcube: BCube, failed: Failures, rounds: int) -> Half:
    program = replanned(bcube, failed, rounds)
    halves = []
    for kind in _HALVES if rounds == 1 else _WHOLE:
        busy = [step for step in loads(program.half(kind), program.chunks) if step.messages]
        carried = sum(max((*step.sent.values(), *step.received.values())) for step in busy)
        messages = sum(step.messages - 1 for step in busy)
        halves.append((len(busy), Fraction(carried, program.chunks), messages))
    owned = Counter(map(program.owner, range(program.chunks)))
    shared = len(set(map(owned.__getitem__, range(program.ranks)))) == 1
    steps = max(half[0] for half in halves)
    volume = max(half[1] for half in halves)
    further = max(half[2] for half in halves)
    return Half(steps, volume, further, shared and rounds == 1)


def least_volume(cluster: Cluster) -> Fraction:
    """Return what the busiest NIC carries at least in a half, as a share of the gradient."""
    return Fraction(0) if cut_off(cluster) else _damage(cluster).load_bound() / 2


def _damage(cluster: Cluster) -> Damage:
    assert isinstance(cluster.topology, BCube)
    return Damage(cluster.topology, cluster.failed)


def _named(bcube: BCube, server: int) -> str:
    return f"[{', '.join(map(str, bcube.digits(server)))}]"
