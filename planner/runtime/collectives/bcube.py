"""BML all-reduce over gloo, which uses every NIC of a BCube.

Gloo's own all-reduce is a ring over one NIC. On BCube(n, k) each rank has k NICs; `planner.bml`
schedules the transfers over them, also around failed ones. Rank r is server r, or the r-th live
one.
"""

from collections.abc import Mapping
from typing import Any

from planner.families.bml.trees import Plan
from planner.jsonio.bml_answer import BmlAnswer
from planner.model.topologies import BCube
from planner.programs.collectives import bcube_program
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.world.world import World


class BcubeAllReduce(Interpreter):
    """All-reduce of tensors over the ranks of a BCube(n, k).

    Every rank has to create it, at the same place in its program::

        world = join(interfaces=["eth0", "eth1"])
        bcube = BcubeAllReduce(world, 3, 2)
        bcube.all_reduce(tensor)
        executor = attach(model, plan, optimizer, world, all_reduce=bcube)

    Parameters
    ----------
    world : World
        With a network interface for each level, or with at most one, which all levels share.
    n, k : int
        Ports of a switch, and levels.
    plan : bytes, mapping, answer or plan, optional
        The plan to follow in place of Algorithm 1. A plan of `planner.bml` fits tensors of all
        sizes; so does an answer of ``planner solve`` that names its program, as JSON or plain
        values. A plan around failures, with ``"schedule": "all"``, fits tensors of its own size.
        Failed servers have no rank. Unused NICs need not work.

    Raises
    ------
    InvalidInputError
        If the plan, the job and BCube(n, k) do not fit together.
    DisagreementError
        If ranks differ in n, k or plan; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """

    _link = "level"

    def __init__(
        self,
        world: World,
        n: int,
        k: int,
        plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None = None,
    ) -> None:
        with world.refusing():
            program, depth, size = bcube_program(BCube(n, k), plan)
        super().__init__(world, program, depth=depth, size_bytes=size)
