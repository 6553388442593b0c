"""An interpreter of MSCCL's XML. It knows no schedule.

It runs thread blocks in any order, with real buffers. What runs cannot show, that no order at all
gives another result, is shown by `races`: of any two accesses to one chunk that are not both
reads, one has ended before the other begins, in every run.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import combinations
from random import Random
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

Key = tuple[int, int, int]
"""Rank, thread block and step."""


class Step(NamedTuple):
    """A step; `wait` is the step it waits for."""

    kind: str
    source: str
    source_chunk: int
    target: str
    target_chunk: int
    length: int
    wait: tuple[int, int] | None
    awaited: bool


@dataclass(frozen=True)
class Block:
    """A thread block."""

    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


Program = tuple[tuple[Block, ...], ...]


def parse(text: str) -> Program:
    """Read the program of every rank."""
    return tuple(
        tuple(
            Block(
                int(tb.attrib["send"]),
                int(tb.attrib["recv"]),
                int(tb.attrib["chan"]),
                tuple(_step(step.attrib) for step in tb),
            )
            for tb in gpu
        )
        for gpu in ET.fromstring(text)
    )


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


def keys(program: Program) -> Iterator[tuple[Key, Block, Step]]:
    for rank, blocks in enumerate(program):
        for number, block in enumerate(blocks):
            for index, step in enumerate(block.steps):
                yield (rank, number, index), block, step


def with_step(program: Program, key: Key, **changes: Any) -> Program:
    """Return the program with one step changed."""
    rank, number, index = key
    blocks = list(program[rank])
    steps = list(blocks[number].steps)
    steps[index] = steps[index]._replace(**changes)
    blocks[number] = replace(blocks[number], steps=tuple(steps))
    return (*program[:rank], tuple(blocks), *program[rank + 1 :])


EVENTS = {"s": 2, "nop": 2, "r": 3, "rrc": 3}
"""A send begins, when it reads, and ends; a receive begins, takes its message, and ends."""


@dataclass
class Run:
    """One run, event by event.

    A receive reads what it adds to when it takes its message, and writes when it ends. With
    `rendezvous`, a send ends only when its receive has begun; without, it never blocks.
    """

    program: Program
    in_place: bool
    rendezvous: bool
    inputs: list[list[int]]
    outputs: list[list[int]] = field(init=False)
    messages: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chunks = len(self.inputs[0])
        self.inputs = [list(row) for row in self.inputs]
        self.outputs = self.inputs if self.in_place else [[-(10**30)] * chunks for _ in self.inputs]
        self.at = {
            (rank, number): (0, 0)  # step and event
            for rank, blocks in enumerate(self.program)
            for number in range(len(blocks))
        }
        self.held: dict[tuple[int, int], list[int]] = {}
        self.pipes: dict[Key, deque[list[int]]] = defaultdict(deque)
        self.receivers = {
            (block.receive, rank, block.channel): (rank, number)
            for rank, blocks in enumerate(self.program)
            for number, block in enumerate(blocks)
            if block.receive >= 0
        }

    def go(self, choose: "Choice") -> str:
        """Run to the end; `choose` says which of the thread blocks that can move moves."""
        while ready := [one for one in self.at if self._ready(one)]:
            self._move(choose(self, ready))
        if any(index < len(self.program[r][b].steps) for (r, b), (index, _) in self.at.items()):
            return "deadlock"
        return "unread" if any(self.pipes.values()) else "done"

    def _ready(self, one: tuple[int, int]) -> bool:
        rank, number = one
        block = self.program[rank][number]
        index, event = self.at[one]
        if index == len(block.steps):
            return False
        step = block.steps[index]
        if event == 0:
            return step.wait is None or self.at[rank, step.wait[0]][0] > step.wait[1]
        if event == 1 and step.kind in ("r", "rrc"):
            return bool(self.pipes[block.receive, rank, block.channel])
        if step.kind == "s" and self.rendezvous:
            pipe = (rank, block.send, block.channel)
            other = self.receivers[pipe]
            index, event = self.at[other]
            receives = self.program[other[0]][other[1]].steps[index:]
            return event == 1 and receives[0].kind != "nop" and not self.pipes[pipe]
        return True

    def _move(self, one: tuple[int, int]) -> None:
        rank, number = one
        block = self.program[rank][number]
        index, event = self.at[one]
        step = block.steps[index]
        self.at[one] = (index, event + 1) if event + 1 < EVENTS[step.kind] else (index + 1, 0)
        buffers = {"i": self.inputs[rank], "o": self.outputs[rank]}
        source = slice(step.source_chunk, step.source_chunk + step.length)
        if step.kind == "s" and event == 0:
            self.held[one] = buffers[step.source][source]
        elif step.kind == "s":
            self.pipes[rank, block.send, block.channel].append(self.held[one])
            self.messages.append((rank, block.send, tuple(self.held[one])))
        elif event == 1 and step.kind != "nop":
            data = self.pipes[block.receive, rank, block.channel].popleft()
            if step.kind == "rrc":
                ours = buffers[step.source][source]
                data = [one + other for one, other in zip(ours, data, strict=False)]
            self.held[one] = data
        elif event == 2:
            target = slice(step.target_chunk, step.target_chunk + step.length)
            buffers[step.target][target] = self.held[one]


Choice = Callable[[Run, list[tuple[int, int]]], tuple[int, int]]


def drawn(seed: int) -> Choice:
    draw = Random(seed)
    return lambda _, ready: draw.choice(ready)


def overtaking(late: Key, waiting: Key) -> Choice:
    """Return the choice that puts off the end of one step, and, if it can, overtakes it there.

    What comes last is `late`, which may take its message; what comes before it is `waiting`.
    """

    def rank(run: Run, one: tuple[int, int]) -> int:
        index, event = run.at[one]
        if (*one, index) == late:
            return 2 if event + 1 == EVENTS[run.program[late[0]][late[1]].steps[index].kind] else 0
        return int((*one, index) == waiting)

    return lambda run, ready: min(ready, key=lambda one: rank(run, one))


Event = tuple[Key, int]


def last(key: Key, step: Step) -> Event:
    return key, EVENTS[step.kind] - 1


def order(program: Program, *, rendezvous: bool) -> dict[Event, set[Event]]:
    """Return what must have happened right before each event, in every run."""
    before: dict[Event, set[Event]] = {}
    sends: dict[Key, list[Key]] = defaultdict(list)
    receives: dict[Key, list[Key]] = defaultdict(list)
    for key, block, step in keys(program):
        rank, number, index = key
        before[key, 0] = set()
        for event in range(1, EVENTS[step.kind]):
            before[key, event] = {(key, event - 1)}
        if index:
            before[key, 0].add(last((rank, number, index - 1), block.steps[index - 1]))
        if step.wait is not None:
            awaited = program[rank][step.wait[0]].steps[step.wait[1]]
            before[key, 0].add(last((rank, *step.wait), awaited))
        if step.kind == "s":
            sends[rank, block.send, block.channel].append(key)
        elif step.kind != "nop":
            receives[block.receive, rank, block.channel].append(key)
    for pipe, ends in sends.items():
        for send, receive in zip(ends, receives[pipe], strict=True):
            before[receive, 1].add((send, 1))
            if rendezvous:
                before[send, 1].add((receive, 0))
    return before


class Access(NamedTuple):
    """What a step does to a chunk, what has happened before it does, and when it has."""

    key: Key
    writes: bool
    past: int
    end: int


def races(program: Program, *, in_place: bool) -> set[frozenset[Key]]:
    """Return the pairs of steps that access one chunk in an order that is not fixed."""
    before = order(program, rendezvous=False)
    bit: dict[Event, int] = {}
    past: dict[Event, int] = {}
    for event in TopologicalSorter(before).static_order():
        bit[event] = 1 << len(bit)
        past[event] = bit[event]
        for one in before[event]:
            past[event] |= past[one]
    accesses: dict[tuple[int, str, int], list[Access]] = defaultdict(list)
    for key, _, step in keys(program):
        spans = []
        if step.kind in ("s", "rrc"):
            spans.append((step.source, step.source_chunk, False))
        if step.kind in ("r", "rrc"):
            spans.append((step.target, step.target_chunk, True))
        first, final = (key, 0 if step.kind == "s" else 1), last(key, step)
        for buffer, start, writes in spans:
            for chunk in range(start, start + step.length):
                place = key[0], "o" if in_place else buffer, chunk
                accesses[place].append(Access(key, writes, past[first], bit[final]))
    return {
        frozenset((one.key, other.key))
        for found in accesses.values()
        for one, other in combinations(found, 2)
        if (one.writes or other.writes) and one.key != other.key
        if not one.past & other.end
        if not other.past & one.end
    }
