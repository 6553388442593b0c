"""One lane of a collective over gloo: it sends, receives and adds as its script says.

A step posts its receives before it waits for sends, because gloo sends only what was asked for.
Received parts are awaited and added in a fixed order.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from planner.families.collectives.script import Script, ScriptHop
from planner.runtime.world.store import first_line
from planner.runtime.world.world import PeerError


class Lane:
    """Runs the scripts of one lane, one tensor after the other.

    `groups` holds for each link this rank's process group and the places of ranks in it; `link` is
    the word for links in messages. Messages carry the lane's number as their tag, because lanes
    share links at different paces.
    """

    def __init__(
        self, number: int, groups: Mapping[int, tuple[Any, Mapping[int, int]]], link: str
    ) -> None:
        self._number = number
        self._groups = groups
        self._link = link
        self._with: ScriptHop | None = None
        self._rooms: list[Tensor] = []

    def follow(self, flat: Tensor, script: Script) -> None:
        """Follow a script; a failed transfer is a `PeerError` that names the link and the rank."""
        try:
            with torch.inference_mode():
                self._follow(flat, script)
        except RuntimeError as error:
            if self._with is None:
                raise
            link, peer = self._with.link, self._with.peer
            raise PeerError(
                f"{self._link} {link}, with rank {peer}: {first_line(error)}", (peer,)
            ) from error

    def _follow(self, flat: Tensor, script: Script) -> None:
        # Forwarded parts are partial sums that start at zero.
        rooms = flat.new_zeros(script.passing), flat
        begun: deque[tuple[list[_Arriving], tuple[int, ...]]] = deque()
        complete = 0
        sent: dict[int, tuple[ScriptHop, Any]] = {}
        number = 0
        # Receives come before sends: two ranks that send to each other would otherwise both wait.
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
        """Wait for the receives of a step, and add or copy them into place."""
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
        """Return a buffer like `part`, reused if possible: new pages take as long as adding."""
        for number, room in enumerate(self._rooms):
            if (room.shape, room.dtype) == (part.shape, part.dtype):
                return self._rooms.pop(number)
        self._rooms.clear()  # other shapes: keep no more memory than the transfers in flight used
        return torch.empty_like(part)

    def _send(self, hop: ScriptHop, part: Tensor) -> Any:
        self._with = hop
        group, places = self._groups[hop.link]
        return group.send([part], places[hop.peer], self._number)

    def _over(self, sent: dict[int, tuple[ScriptHop, Any]], number: int) -> None:
        """Wait for a send exactly once: gloo would take a second wait for the next send."""
        if number in sent:
            self._with, work = sent.pop(number)
            work.wait()


class _Arriving(NamedTuple):
    """A posted receive: its destination `part`, and `place`, the buffer it arrives in."""

    hop: ScriptHop
    work: Any
    part: Tensor
    place: Tensor
