"""BML's synchronisation over gloo: all-reduces that keep every NIC of a BCube busy.

Problem. Gloo's all-reduce is a ring over one NIC. On BCube(n, k) each rank has k NICs, and BML says
who sends what over which of them (`planner.bml`), also where some have failed.

Method. Rank r is server r, or the r-th of those that live. Each switch has a process group of its
own, on the NIC of its level. k worker threads (`script_thread`), one for each thread of the
algorithm, go through their scripts (`routes`), each at its own pace.

Guarantee. Sums are the same on all ranks, as each element is summed up on one of them, and the same
in every run, as it is summed up in a fixed order. After a failure the object does nothing any more;
threads that still wait end when the time-out of their transfer has passed.

Complexity. 2(N-1)/(kN) of the tensor over each NIC in each direction; memory for up to (n-1)/n of
it beside the tensor.

Source. Wang et al., "BML", NeurIPS 2018, section 3.2.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch import Tensor, distributed

from planner.bml.plan import Plan
from planner.errors import InvalidInputError, PlannerError
from planner.jsonio.bml_answer import BmlAnswer
from planner.runtime.collectives.routes import routes_of
from planner.runtime.collectives.script_thread import ScriptThread
from planner.runtime.collectives.scripts import Script
from planner.runtime.world.world import World
from planner.topologies import BCube

__all__ = ["BcubeAllReduce"]

_LOOK_S = 0.1
_KEPT_SCRIPTS = 1024
_PARTS = 8
"""Parts of large tensors: with one part, the links of a thread that is behind stand still."""
_MESSAGE_BYTES = 2**16
"""Messages are not made smaller for that."""


class BcubeAllReduce:
    """Sums up tensors over the ranks of a BCube(n, k).

    Every rank has to make it, at the same place in its program::

        world = join(interfaces=["eth0", "eth1"])
        bcube = BcubeAllReduce(world, 3, 2)
        bcube.all_reduce(tensor)
        executor = attach(model, plan, optimizer, world, all_reduce=bcube)

    Parameters
    ----------
    world : World
        With a network interface for each level, or none, where all go over gloo's choice.
    n, k : int
        Ports of a switch, and levels.
    plan : bytes, mapping, answer or plan, optional
        What to follow instead of Algorithm 1. A plan of `planner.bml` is for tensors of all sizes;
        an answer of ``planner solve`` with ``"schedule": "all"``, as JSON or plain values, for
        tensors of its size. Failed servers have no rank; NICs it does not use need not work.

    Raises
    ------
    InvalidInputError
        If the plan, the job and BCube(n, k) do not fit together.
    DisagreementError
        If ranks differ in n, k or plan; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """

    def __init__(
        self,
        world: World,
        n: int,
        k: int,
        plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None = None,
    ) -> None:
        self._world = world
        try:
            routes = routes_of(BCube(n, k), plan)
        except InvalidInputError as error:
            world.watch.failed(str(error), at_fault=True)
            raise
        self._name = routes.name
        world.agree("the network and the plan of the all-reduce", self._name)
        servers = routes.servers
        if world.size != len(servers):
            raise InvalidInputError(
                "world",
                f"expected a rank for each of {len(servers)} servers of BCube({n}, {k}) that take "
                f"part, got {world.size} ranks",
            )
        nics: tuple[str | None, ...] = world.interfaces or (None,) * k
        if len(nics) != k:
            raise InvalidInputError(
                "interfaces", f"expected one for each of {k} levels, got {len(nics)}"
            )
        self._server = servers[world.rank]
        self._ranks = {server: rank for rank, server in enumerate(servers)}
        self._groups: dict[int, Any] = {}
        for level, _, members in routes.groups():
            group = world.new_group([self._ranks[server] for server in members], nics[level])
            if group is not None:
                self._groups[level] = group
        self._script = lru_cache(_KEPT_SCRIPTS)(routes.script)
        self._answers: SimpleQueue[Exception | None] = SimpleQueue()
        self._error: Exception | None = None
        self._busy = threading.Lock()
        self._threads = [
            ScriptThread(number, self._groups, self._ranks, self._answers) for number in range(k)
        ]

    @property
    def name(self) -> str:
        """What ranks compare before the first transfer: n, k and the plan."""
        return self._name

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Replace a one-dimensional, contiguous tensor by the sum of all ranks' tensors.

        Every rank calls it for the same sizes in the same order, from one thread at a time.

        Parameters
        ----------
        flat : Tensor
            On the CPU.
        depth : int
            In how many parts to send each piece at least, each one step behind the part before it.
            Large tensors are sent in 8 anyway, so that threads which do not keep pace leave no link
            idle. An answer says itself how many parts there are.

        Raises
        ------
        PeerError
            If a transfer fails; it says on which level, and with which rank.
        CommunicationError
            If another rank has stopped.
        InvalidInputError
            If the plan is not for tensors of this size.
        """
        if not self._busy.acquire(blocking=False):
            raise InvalidInputError("", "called from two threads at once")
        try:
            self._sum(flat, depth)
        finally:
            self._busy.release()

    def all_reduce(self, tensor: Tensor, *, average: bool = False) -> Tensor:
        """Replace a tensor of any shape by the sum, or the mean, of all ranks' tensors.

        Parameters
        ----------
        tensor : Tensor
            On the CPU, of the same shape and type on all ranks; it is returned.
        average : bool
            Whether to divide by the number of ranks.

        Raises
        ------
        CommunicationError
            If a transfer fails, or another rank has stopped.
        InvalidInputError
            If it cannot be summed up: sparse, not on the CPU, of a size that the plan is not for;
            or it has no mean.
        """
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise InvalidInputError(
                "tensor", f"expected a dense one on the CPU, got {tensor.layout}, {tensor.device}"
            )
        if average and not (tensor.is_floating_point() or tensor.is_complex()):
            raise InvalidInputError("average", f"no mean of {tensor.dtype}")
        plain = tensor.detach()
        flat = plain.reshape(-1)  # a copy where the tensor is not contiguous
        self._checked(flat, 1)  # what is refused before a transfer stops nobody
        with self._world.transferring():
            self(flat)
        if average:
            flat /= self._world.size
        if not plain.is_contiguous():
            plain.copy_(flat.view(plain.shape))
        return tensor

    def close(self) -> None:
        """End the threads and the groups. Every rank has to call it, or none."""
        for thread in self._threads:
            thread.jobs.put(None)
        for thread in self._threads:
            # A process that ends while a thread is inside gloo may abort.
            thread.join(timeout=self._world.timeout_s + 1)
        if self._error is None:
            self._error = PlannerError("this all-reduce was closed")
            if self._world.watch.error is None:
                for group in self._groups.values():
                    distributed.destroy_process_group(group)
        self._groups = {}

    def _sum(self, flat: Tensor, depth: int) -> None:
        script = self._checked(flat, depth)
        jobs = [(thread, steps) for thread, steps in zip(self._threads, script, strict=True)]
        for thread, steps in jobs:
            thread.jobs.put((flat, steps))
        for _ in jobs:
            try:
                error = self._answer()
            except PlannerError as stopped:
                error = stopped
            if error is not None:
                self._error = error
                raise error

    def _checked(self, flat: Tensor, depth: int) -> Script:
        """Return what to do with a tensor, if all is well."""
        self._world.watch.check()  # says more than what was noticed here
        if self._error is not None:
            raise self._error
        elements, width = flat.numel(), flat.element_size()
        least = elements * width // (len(self._threads) * self._world.size)  # the least message
        rounds = max(depth, 1, min(_PARTS, least // _MESSAGE_BYTES))
        return self._script(self._server, elements, width, rounds)

    def _answer(self) -> Exception | None:
        """Return what a thread says once it has ended; raise what another rank says before."""
        while True:
            with suppress(Empty):
                return self._answers.get(timeout=_LOOK_S)
            self._world.watch.check()
