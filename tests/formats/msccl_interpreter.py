"""An interpreter of MSCCL's XML. It knows no schedule."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.formats.program_events import Access, Effect, Event, Events


class Key(NamedTuple):
    """Where a step stands."""

    rank: int
    block: int
    number: int


@dataclass(frozen=True)
class Step:
    """A step, with the peers and the channel of its thread block.

    `source` and `target` are a buffer and the first chunk; `wait` is the step that it waits for.
    """

    send: int
    receive: int
    channel: int
    kind: str
    source: tuple[str, int]
    target: tuple[str, int]
    length: int
    wait: Key | None
    awaited: bool

    @property
    def last(self) -> int:
        """The number of its last event: a send begins and ends, a receive also takes."""
        return 2 if self.kind in ("r", "rrc") else 1


@dataclass(frozen=True)
class Program:
    """The steps of all ranks, of which each has as many chunks."""

    ranks: int
    chunks: int
    steps: dict[Key, Step]

    @cached_property
    def blocks(self) -> dict[tuple[int, int], list[Step]]:
        """The steps of each thread block, by its rank and number."""
        found: dict[tuple[int, int], list[Step]] = defaultdict(list)
        for key, step in self.steps.items():
            found[key.rank, key.block].append(step)
        return found

    def events(self, *, in_place: bool = True, rendezvous: bool = False) -> Events:
        """Return what each step does.

        A send reads when it begins; a receive reads what it adds to when it takes its message, and
        writes when it ends.
        """
        made = Events([self.chunks] * self.ranks)
        sends: dict[Event, list[tuple[Key, Access]]] = defaultdict(list)
        receives: dict[Event, list[tuple[Key, Access, list[Access]]]] = defaultdict(list)
        for key, step in self.steps.items():
            events = [(*key, event) for event in range(step.last + 1)]
            for before, event in pairwise(events):
                made.after[event] = {before}
            waits = [] if step.wait is None else [step.wait]
            if key.number:
                waits.append(key._replace(number=key.number - 1))
            made.after[events[0]] = {(*one, self.steps[one].last) for one in waits}
            source, target = (
                Access(key.rank, "i" if in_place else buffer, chunk, chunk + step.length)
                for buffer, chunk in (step.source, step.target)
            )
            held = Access(key.rank, f"held by {key}", 0, step.length)
            if step.kind == "s":
                made.effects[events[0]] = Effect((source,), (held,))
                sends[key.rank, step.send, step.channel].append((key, held))
            elif step.kind != "nop":
                made.effects[events[2]] = Effect((held,), (target,))
                added = [source] if step.kind == "rrc" else []
                receives[step.receive, key.rank, step.channel].append((key, held, added))
        for pipe, ends in sends.items():
            for (send, sent), (receive, held, added) in zip(ends, receives[pipe], strict=True):
                made.effects[*receive, 1] = Effect((sent, *added), (held,))
                made.after[*receive, 1].add((*send, 1))
                if rendezvous:
                    made.after[*send, 1].add((*receive, 0))
        return made


def parse(text: str) -> Program:
    """Read the program of every rank."""
    algo, steps = ET.fromstring(text), {}
    for rank, gpu in enumerate(algo):
        for block, tb in enumerate(gpu):
            assert len(tb), "a block without steps"
            send, receive, channel = (int(tb.attrib[name]) for name in ("send", "recv", "chan"))
            for number, step in enumerate(tb):
                found = step.attrib
                waits = Key(rank, int(found["depid"]), int(found["deps"]))
                steps[Key(rank, block, number)] = Step(
                    send,
                    receive,
                    channel,
                    found["type"],
                    (found["srcbuf"], int(found["srcoff"])),
                    (found["dstbuf"], int(found["dstoff"])),
                    int(found["cnt"]),
                    None if waits.block < 0 else waits,
                    found["hasdep"] == "1",
                )
    return Program(len(algo), int(algo.attrib["nchunksperloop"]), steps)
