"""One thread of a synchronisation over gloo: sends, receives and adds what its script says.

It asks for what a step brings before it sends, as gloo sends only what was asked for; waits for it
in a fixed order, and adds it in that order. What it has sent it waits for at the end: nobody writes
to that before it has arrived, since all that comes back is made of it.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from planner.runtime.collectives.scripts import NeighbourHop, Step
from planner.runtime.world.world import blaming

__all__ = ["ScriptThread"]

Steps = tuple[Step, ...]


class ScriptThread(threading.Thread):
    """Goes through one thread's steps for one tensor after the other.

    Parameters
    ----------
    number : int
        Which one; its messages carry it, as threads share links and are not in step.
    groups : mapping
        The process group of this rank's switch at each level.
    ranks : mapping
        The rank of each server.
    answers : SimpleQueue
        Gets None for a job that is done, or what went wrong.
    """

    def __init__(
        self,
        number: int,
        groups: Mapping[int, Any],
        ranks: Mapping[int, int],
        answers: "SimpleQueue[Exception | None]",
    ) -> None:
        super().__init__(name=f"planner-bcube-{number}", daemon=True)
        self.jobs: SimpleQueue[tuple[Tensor, Steps] | None] = SimpleQueue()
        self._number = number
        self._groups = groups
        self._ranks = ranks
        self._answers = answers
        self.start()

    def run(self) -> None:
        """Do jobs until there is None."""
        with torch.inference_mode():
            while (job := self.jobs.get()) is not None:
                try:
                    self._follow(*job)
                except Exception as error:  # noqa: BLE001 - whoever waits gets it
                    self._answers.put(error)
                    return
                self._answers.put(None)

    def _follow(self, flat: Tensor, steps: Steps) -> None:
        begun: deque[list[_Arriving]] = deque()
        complete = 0
        sent: list[tuple[NeighbourHop, Any]] = []
        # Gloo sends only what was asked for: a step asks before it sends, else two ranks that send
        # to each other would both wait.
        for step in steps:
            while complete <= step.after:
                self._finish(begun.popleft())
                complete += 1
            begun.append([self._receive(hop, flat[hop.start : hop.stop]) for hop in step.receives])
            sent += [(hop, self._send(hop, flat[hop.start : hop.stop])) for hop in step.sends]
        while begun:
            self._finish(begun.popleft())
        for hop, work in sent:
            self._wait(hop, work)

    def _finish(self, arriving: "Sequence[_Arriving]") -> None:
        """Wait for what a step receives, and add what is to be added."""
        for expected in arriving:
            self._wait(expected.hop, expected.work)
            if expected.hop.adds:
                expected.part.add_(expected.place)

    def _receive(self, hop: NeighbourHop, part: Tensor) -> "_Arriving":
        place = torch.empty_like(part) if hop.adds else part
        with self._with(hop):
            group = self._groups[hop.level]
            work = distributed.irecv(place, self._ranks[hop.peer], group, self._number)
        return _Arriving(hop, work, part, place)

    def _send(self, hop: NeighbourHop, part: Tensor) -> Any:
        with self._with(hop):
            group = self._groups[hop.level]
            return distributed.isend(part, self._ranks[hop.peer], group, self._number)

    def _wait(self, hop: NeighbourHop, work: Any) -> None:
        with self._with(hop):
            work.wait()

    def _with(self, hop: NeighbourHop) -> AbstractContextManager[None]:
        """Say with whom a transfer failed."""
        peer = self._ranks[hop.peer]
        return blaming(peer, f"level {hop.level}, with rank {peer}: ")


class _Arriving(NamedTuple):
    """What was asked for, where it goes until it is complete, and where it belongs."""

    hop: NeighbourHop
    work: Any
    part: Tensor
    place: Tensor
