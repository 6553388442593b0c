"""An interpreter of MSCCL's XML. It knows no schedule.

`executed` runs thread blocks in one of the orders there are, with real buffers. That no order gives
another result is shown by `races`: of any two accesses to one chunk that are not both reads, one
has ended before the other begins, in every run.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import combinations
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


def executed(program: Program, inputs: list[list[int]], *, in_place: bool) -> list[list[int]]:
    """Return the outputs of all ranks.

    A send reads when it begins; a receive reads what it adds to when it takes its message, and
    writes when it ends.
    """
    outputs = inputs if in_place else [[-(10**30)] * len(row) for row in inputs]
    steps = {key: (block, step) for key, block, step in keys(program)}
    pipes: dict[Key, deque[list[int]]] = defaultdict(deque)
    held: dict[Key, list[int]] = {}
    for key, event in TopologicalSorter(order(program, rendezvous=False)).static_order():
        block, step = steps[key]
        buffers = {"i": inputs[key[0]], "o": outputs[key[0]]}
        ours = buffers[step.source][step.source_chunk : step.source_chunk + step.length]
        if step.kind == "s" and event == 0:
            held[key] = ours
        elif step.kind == "s":
            pipes[key[0], block.send, block.channel].append(held[key])
        elif event == 1 and step.kind != "nop":
            data = pipes[block.receive, key[0], block.channel].popleft()
            added = step.kind == "rrc"
            held[key] = [a + b for a, b in zip(ours, data, strict=True)] if added else data
        elif event == 2:
            buffers[step.target][step.target_chunk : step.target_chunk + step.length] = held[key]
    return outputs
