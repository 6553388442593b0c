"""One thread of a collective over gloo: sends, receives and adds what its script says.

It asks for what a step brings before it waits for what the step sends, as gloo sends only what was
asked for; waits for it in a fixed order, and adds it in that order.
"""

import threading
from collections import deque
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from planner.collectives.script import Script, ScriptHop
from planner.runtime.world.store import first_line
from planner.runtime.world.world import PeerError

__all__ = ["Lane"]


class Lane(threading.Thread):
    """Goes through one thread's scripts for one tensor after the other.

    Parameters
    ----------
    number : int
        Which one; its messages carry it, as threads share links and are not in step.
    groups : mapping
        For each link the process group of this rank, and the places of ranks in it.
    link : str
        What links are called.
    answers : SimpleQueue
        Gets None for a job that is done, or what went wrong.
    """

    def __init__(
        self,
        number: int,
        groups: Mapping[int, tuple[Any, Mapping[int, int]]],
        link: str,
        answers: "SimpleQueue[Exception | None]",
    ) -> None:
        super().__init__(name=f"planner-lane-{number}", daemon=True)
        self.jobs: SimpleQueue[tuple[Tensor, Script] | None] = SimpleQueue()
        self._number = number
        self._groups = groups
        self._link = link
        self._answers = answers
        self._with: ScriptHop | None = None
        self._rooms: list[Tensor] = []
        self.start()

    def run(self) -> None:
        """Do jobs until there is None."""
        with torch.inference_mode():
            while (job := self.jobs.get()) is not None:
                try:
                    self._follow(*job)
                except Exception as error:  # whoever waits gets it
                    self._answers.put(self._blaming(error))
                    return
                self._answers.put(None)

    def _follow(self, flat: Tensor, script: Script) -> None:
        # What is passed on may be added up on the way: to nothing at first.
        rooms = flat.new_zeros(script.passing), flat
        begun: deque[tuple[list[_Arriving], tuple[int, ...]]] = deque()
        complete = 0
        sent: dict[int, tuple[ScriptHop, Any]] = {}
        number = 0
        # A step asks before it sends, else two ranks that send to each other would both wait.
        for step in script.steps:
            while complete <= step.before:
                self._finish(*begun.popleft(), sent)
                complete += 1
            for cleared in step.clear:
                self._over(sent, cleared)
            arriving = [
                self._ask(hop, rooms[hop.own][hop.start : hop.stop]) for hop in step.receives
            ]
            begun.append((arriving, step.held))
            while complete <= step.after:
                self._finish(*begun.popleft(), sent)
                complete += 1
            for hop in step.sends:
                sent[number] = hop, self._send(hop, rooms[hop.own][hop.start : hop.stop])
                number += 1
        while begun:
            self._finish(*begun.popleft(), sent)
        for left in tuple(sent):
            self._over(sent, left)

    def _finish(
        self,
        arriving: "list[_Arriving]",
        held: tuple[int, ...],
        sent: dict[int, tuple[ScriptHop, Any]],
    ) -> None:
        """Wait for what a step receives, and put it in its place."""
        for number in held:
            self._over(sent, number)
        for hop, work, part, place in arriving:
            self._with = hop
            work.wait()
            if hop.adds:
                part.add_(place)
            elif hop.aside:
                part.copy_(place)
            if place is not part:
                self._rooms.append(place)

    def _ask(self, hop: ScriptHop, part: Tensor) -> "_Arriving":
        place = self._room(part) if hop.adds or hop.aside else part
        self._with = hop
        group, places = self._groups[hop.link]
        return _Arriving(hop, group.recv([place], places[hop.peer], self._number), part, place)

    def _room(self, part: Tensor) -> Tensor:
        """Return room for as much, used before if there is: new pages take as long as adding."""
        for number, room in enumerate(self._rooms):
            if (room.shape, room.dtype) == (part.shape, part.dtype):
                return self._rooms.pop(number)
        self._rooms.clear()  # those of other messages: no more is kept than was under way
        return torch.empty_like(part)

    def _send(self, hop: ScriptHop, part: Tensor) -> Any:
        self._with = hop
        group, places = self._groups[hop.link]
        return group.send([part], places[hop.peer], self._number)

    def _over(self, sent: dict[int, tuple[ScriptHop, Any]], number: int) -> None:
        """Wait for a send, once: gloo would wait for another one then."""
        if number in sent:
            self._with, work = sent.pop(number)
            work.wait()

    def _blaming(self, error: Exception) -> Exception:
        """Say with whom a transfer failed."""
        if self._with is None or not isinstance(error, RuntimeError):
            return error
        peer = self._with.peer
        told = PeerError(
            f"{self._link} {self._with.link}, with rank {peer}: {first_line(error)}", (peer,)
        )
        told.__cause__ = error
        return told


class _Arriving(NamedTuple):
    """What was asked for, where it belongs, and where it is until it is complete."""

    hop: ScriptHop
    work: Any
    part: Tensor
    place: Tensor
