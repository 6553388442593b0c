"""The algorithms on a network, replayed: each returns the replay when all is done."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import groupby

from planner.families.collectives.exchange import (
    bml_program,
    direct_program,
    halving_doubling_bcube_program,
    halving_doubling_program,
    hierarchical_bcube_program,
    hierarchical_program,
    routed_program,
)
from planner.families.collectives.program import Program
from planner.families.collectives.ring import bruck_program, ring_program
from planner.families.collectives.symmetric import one_link
from planner.model.topologies import BCube
from tests.collectives.replay import Replay, Transfer


def wired(bcube: BCube) -> Callable[[int, int, int], bool]:
    """A NIC of level l reaches the servers that differ in digit l only."""

    def digits(server: int) -> list[int]:
        return [server // int(bcube.n**level) % bcube.n for level in range(bcube.k)]

    def linked(sender: int, receiver: int, nic: int) -> bool:
        pairs = zip(digits(sender), digits(receiver), strict=True)
        return [level for level, (a, b) in enumerate(pairs) if a != b] == [nic]

    return linked


def played(program: Program, bcube: BCube | None = None) -> Replay:
    """Replay a program, on a BCube or where every server reaches every other by each NIC."""
    replay = Replay(program.ranks, wired(bcube) if bcube else lambda a, b, _: a != b)
    for _, together in groupby(sorted(program.messages()), lambda message: message.step):
        replay.step(
            Transfer(
                one.sender, one.receiver, one.link, Fraction(one.stop - one.first, program.chunks)
            )
            for one in together
        )
    return replay


def ring(order: Sequence[int], bcube: BCube | None) -> Replay:
    links, wire = (bcube.k, bcube.wire) if bcube else (1, one_link)
    return played(ring_program(len(order), [list(order)], links=links, wire=wire), bcube)


def halving_doubling(servers: int, bcube: BCube | None = None) -> Replay:
    if bcube is None:
        return played(halving_doubling_program(servers))
    return played(halving_doubling_bcube_program(bcube), bcube)


def bruck(servers: int) -> Replay:
    return played(bruck_program(servers))


def direct(servers: int) -> Replay:
    return played(direct_program(servers))


def in_groups(groups: Sequence[int]) -> Replay:
    return played(hierarchical_program(groups))


def one_thread(bcube: BCube) -> Replay:
    return played(hierarchical_bcube_program(bcube), bcube)


def bml(bcube: BCube) -> Replay:
    return played(bml_program(bcube), bcube)


def routed(bcube: BCube) -> Replay:
    return played(routed_program(bcube), bcube)
