"""Other load on the machine of rank 0 during a measurement. Needs no torch."""

import json
import platform
from typing import TYPE_CHECKING

from planner.model import machine
from planner.solving.diagnostics import Circumstances

if TYPE_CHECKING:
    from planner.runtime.world.world import World


def machine_of(world: "World", threads: int, before: machine.Load) -> Circumstances:
    """Return the circumstances on the machine of rank 0 since `before`. Every rank has to call it.

    `threads` is the number of threads this rank computes with.
    """
    now = machine.Load.now()
    own_s = now.own_s - before.own_s
    own = json.dumps([platform.node(), threads, own_s, sorted(machine.affinity())])
    return together(world.gather("what computed", own), before, now)


def together(texts: tuple[str, ...], before: machine.Load, now: machine.Load) -> Circumstances:
    """Combine the ranks' reports for the machine of the first rank.

    `texts` hold for each rank its machine, threads, processor time (s) and allowed processors.
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
