"""What else ran on the machine of rank 0 while a job was measured. Needs no torch."""

import json
import platform
from typing import TYPE_CHECKING

from planner import machine
from planner.disturbances import Measured

if TYPE_CHECKING:
    from planner.runtime.world.world import World

__all__ = ["machine_of", "together"]


def machine_of(world: "World", threads: int, before: machine.Load) -> Measured:
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
    said = json.dumps([platform.node(), threads, own_s, sorted(machine.affinity())])
    return together(world.gather("what computed", said), before, now)


def together(said: tuple[str, ...], before: machine.Load, now: machine.Load) -> Measured:
    """Return what the ranks of one machine, that of the first, make of it.

    Parameters
    ----------
    said : tuple of str
        Of each rank: its machine, its threads, what it computed, where it may run.
    before, now : Load
        When the measurement began and ended, on the first rank.
    """
    ranks = [json.loads(text) for text in said]
    here = [rank for rank in ranks if rank[0] == ranks[0][0]]
    return Measured(
        threads=sum(rank[1] for rank in here),
        processors=len({number for rank in here for number in rank[3]}),
        others=now.others(before, sum(rank[2] for rank in here)),
        ranks=len(here),
    )
