"""What else ran on the machine of rank 0 while a job was measured. Needs no torch."""

import json
import platform
from typing import TYPE_CHECKING

from planner import machine
from planner.disturbances import Circumstances

if TYPE_CHECKING:
    from planner.runtime.world.world import World

__all__ = ["machine_of", "together"]


def machine_of(world: "World", threads: int, before: machine.Load) -> Circumstances:
    """Return what is known of the machine of rank 0. Every rank has to call it.

    Parameters
    ----------
    world : World
        The job.
    threads : int
        Threads this rank computes with.
    before : Load
        When the measurement began.
    """
    now = machine.Load.now()
    own_s = now.own_s - before.own_s
    own = json.dumps([platform.node(), threads, own_s, sorted(machine.affinity())])
    return together(world.gather("what computed", own), before, now)


def together(texts: tuple[str, ...], before: machine.Load, now: machine.Load) -> Circumstances:
    """Return what the ranks of one machine, that of the first, make of it.

    Parameters
    ----------
    texts : tuple of str
        Of each rank: its machine, its threads, what it computed, where it may run.
    before, now : Load
        When the measurement began and ended, on the first rank.
    """
    ranks = [json.loads(text) for text in texts]
    here = [rank for rank in ranks if rank[0] == ranks[0][0]]
    return Circumstances(
        threads=sum(rank[1] for rank in here),
        processors=len({number for rank in here for number in rank[3]}),
        others=now.others(before, sum(rank[2] for rank in here)),
        ranks=len(here),
        each=tuple(rank[1] for rank in ranks),
    )
