"""An interpreter of MSCCL's XML. It knows no schedule."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.formats.program_events import Access, Effect, Event, Events


class Key(NamedTuple):
    """Where a step stands."""

    rank: int
    block: int
    step: int


@dataclass
class Step:
    """A step; `wait` is the block and the step that it waits for."""

    kind: str
    source: str
    source_chunk: int
    target: str
    target_chunk: int
    length: int
    wait: tuple[int, int] | None
    awaited: bool

    @property
    def last(self) -> int:
        """The number of its last event: a send begins and ends, a receive also takes."""
        return 2 if self.kind in ("r", "rrc") else 1


@dataclass(frozen=True)
class Block:
    """A thread block."""

    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    """The thread blocks of each rank, which has as many chunks."""

    chunks: int
    blocks: tuple[tuple[Block, ...], ...]

    def __iter__(self) -> Iterator[tuple[Key, Block, Step]]:
        for rank, blocks in enumerate(self.blocks):
            for number, block in enumerate(blocks):
                for index, step in enumerate(block.steps):
                    yield Key(rank, number, index), block, step

    def events(self, *, in_place: bool = True, rendezvous: bool = False) -> Events:
        """Return what each step does.

        A send reads when it begins; a receive reads what it adds to when it takes its message, and
        writes when it ends.
        """
        made = Events([self.chunks] * len(self.blocks))
        sends: dict[Event, list[Key]] = defaultdict(list)
        receives: dict[Event, list[tuple[Key, Access, tuple[Access, ...]]]] = defaultdict(list)
        for key, block, step in self:
            events = [(*key, event) for event in range(step.last + 1)]
            for event, before in zip(events[1:], events, strict=False):
                made.after[event] = {before}
            made.after[events[0]] = set()
            waits = [] if step.wait is None else [step.wait]
            if key.step:
                waits.append((key.block, key.step - 1))
            for number, index in waits:
                last = self.blocks[key.rank][number].steps[index].last
                made.after[events[0]].add((key.rank, number, index, last))
            source, target = (
                Access(key.rank, "i" if in_place else buffer, chunk, chunk + step.length)
                for buffer, chunk in (
                    (step.source, step.source_chunk),
                    (step.target, step.target_chunk),
                )
            )
            held = Access(key.rank, f"held by {key}", 0, step.length)
            if step.kind == "s":
                made.effects[events[0]] = Effect((source,), (held,))
                sends[key.rank, block.send, block.channel].append(key)
            elif step.kind != "nop":
                made.effects[events[2]] = Effect((held,), (target,))
                pipe = block.receive, key.rank, block.channel
                receives[pipe].append((key, held, (source,) if step.kind == "rrc" else ()))
        for pipe, ends in sends.items():
            for send, (receive, held, added) in zip(ends, receives[pipe], strict=True):
                sent = held._replace(rank=send.rank, buffer=f"held by {send}")
                made.effects[*receive, 1] = Effect((sent, *added), (held,))
                made.after[*receive, 1].add((*send, 1))
                if rendezvous:
                    made.after[*send, 1].add((*receive, 0))
        return made


def parse(text: str) -> Program:
    """Read the program of every rank."""
    algo = ET.fromstring(text)
    blocks = tuple(
        tuple(
            Block(
                int(tb.attrib["send"]),
                int(tb.attrib["recv"]),
                int(tb.attrib["chan"]),
                tuple(_step(step.attrib) for step in tb),
            )
            for tb in gpu
        )
        for gpu in algo
    )
    return Program(int(algo.attrib["nchunksperloop"]), blocks)


def _step(found: dict[str, str]) -> Step:
    depid, deps = int(found["depid"]), int(found["deps"])
    return Step(
        found["type"],
        found["srcbuf"],
        int(found["srcoff"]),
        found["dstbuf"],
        int(found["dstoff"]),
        int(found["cnt"]),
        None if depid < 0 else (depid, deps),
        found["hasdep"] == "1",
    )
