"""Interpreters of MSCCL's XML and of MSCCL++'s execution plans, which know no program of ours.

What happens when a program runs, and what must happen before: races, and runs in any order. Buffers
hold multisets: how often each rank's contribution is in each chunk.

That of MSCCL++ plays what the executor's kernel does, thread by thread: waits, signals and puts are
done by one thread for each channel, additions by all together, and threads of a block wait for each
other at ``nop`` only. A put is read and written later, in the order of its channel. Before a rank
begins, and after its end, its buffers are somebody else's.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from random import Random
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

Event = tuple[Any, ...]


class Access(NamedTuple):
    """Chunks that an event reads or writes."""

    rank: int
    buffer: str
    first: int
    stop: int


class Effect(NamedTuple):
    """What an event does: it puts the sum of what it reads into what it writes."""

    reads: tuple[Access, ...]
    writes: tuple[Access, ...]


@dataclass
class Events:
    """The events of a program on ranks with as many chunks, and those that each of them follows."""

    chunks: list[int]
    after: dict[Event, set[Event]] = field(default_factory=lambda: defaultdict(set))
    effects: dict[Event, Effect] = field(default_factory=dict)
    outside: dict[Event, Effect] = field(default_factory=dict)
    """What happens to buffers before a program begins, and behind its end."""
    issued: dict[Event, list[Event]] = field(default_factory=lambda: defaultdict(list))
    """Events that must keep their order."""

    def races(self) -> set[tuple[Event, Event]]:
        """Return pairs of events that access one chunk, one of them writing, in no fixed order.

        Nor may events that were issued one after the other happen in another order.
        """
        past: dict[Event, int] = {}
        bit: dict[Event, int] = {}
        for event in TopologicalSorter(self.after).static_order():
            bit[event] = past[event] = 1 << len(bit)
            for one in self.after.get(event, ()):
                past[event] |= past[one]
        found: dict[tuple[int, str, int], list[tuple[Event, bool]]] = defaultdict(list)
        for event, effect in (*self.effects.items(), *self.outside.items()):
            for accesses, writes in ((effect.reads, False), (effect.writes, True)):
                for one in accesses:
                    for chunk in range(one.first, one.stop):
                        found[one.rank, one.buffer, chunk].append((event, writes))
        disordered = {
            (one, other)
            for several in self.issued.values()
            for one, other in pairwise(several)
            if not past[other] & bit[one]
        }
        return disordered | {
            (one, other)
            for several in found.values()
            for (one, first), (other, second) in combinations(several, 2)
            if (first or second) and one != other
            if not past[one] & bit[other] and not past[other] & bit[one]
        }

    def sums(self, seed: int = 0, result: str = "i") -> bool:
        """Return whether all contributions are once in each rank's chunks, in some order."""
        draw = Random(seed)
        held = {
            (rank, "i", chunk): Counter({rank: 1})
            for rank, chunks in enumerate(self.chunks)
            for chunk in range(chunks)
        }
        sorter = TopologicalSorter(self.after)
        sorter.prepare()
        ready: list[Event] = []
        while sorter.is_active():
            ready += sorter.get_ready()
            event = ready.pop(draw.randrange(len(ready)))
            sorter.done(event)
            if event not in self.effects:
                continue
            reads, [write] = self.effects[event]
            assert {one.stop - one.first for one in reads} == {write.stop - write.first}
            for place, chunk in enumerate(range(write.first, write.stop)):
                total: Counter[int] = Counter()
                for read in reads:
                    total += held[read.rank, read.buffer, read.first + place]
                held[write.rank, write.buffer, chunk] = total
        whole = Counter(range(len(self.chunks)))
        return all(
            held[rank, result, chunk] == whole
            for rank, chunks in enumerate(self.chunks)
            for chunk in range(chunks)
        )


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
        """Return the action of each step.

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


LIMITS = {"ops": 64, "channels": 16, "at once": 8, "local": 10}
ALL = -1
"""In place of a thread: all of a block."""


class Plan(Events):
    """A plan as events, with those that each of them follows."""

    def __init__(self, text: str) -> None:
        self.document = json.loads(text)
        self.gpus = self.document["gpus"]
        assert [gpu["id"] for gpu in self.gpus] == list(range(len(self.gpus)))
        super().__init__([gpu["input_chunks"] for gpu in self.gpus])
        self.signals: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
        self.waits: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
        for rank, gpu in enumerate(self.gpus):
            self.after["begin", rank] = set()
            buffers = [
                Access(rank, buffer, 0, gpu[f"{name}_chunks"])
                for buffer, name in (("i", "input"), ("s", "scratch"))
            ]
            for event in (("begin", rank), ("end", rank)):  # others may use them there
                self.outside[event] = Effect((), tuple(buffers))
            for block, content in enumerate(gpu["threadblocks"]):
                assert content["id"] == block
                self._block(rank, block, content)
        for key in {*self.signals, *self.waits}:
            assert len(self.signals[key]) == len(self.waits[key]), key
            for signal, wait in zip(self.signals[key], self.waits[key], strict=True):
                self.after[wait].add(signal)

    def _block(self, rank: int, block: int, content: dict[str, Any]) -> None:
        operations = content["ops"]
        [channels] = content["channels"]
        [remotes] = content["remote_buffer_refs"]
        assert len(operations) <= LIMITS["ops"]
        assert len(channels["channel_ids"]) <= LIMITS["channels"]
        assert len(remotes["remote_buffer_ids"]) <= LIMITS["channels"]
        buffers = [self.gpus[rank]["remote_buffers"][one] for one in remotes["remote_buffer_ids"]]
        self.place = rank, buffers
        done: dict[int, Event] = {}  # by thread, its last event
        start: Event = ("start", rank, block)
        self.after[start] = {("begin", rank)}
        since = {start}
        synced = start
        for number, operation in enumerate(operations):
            name = operation["name"]
            if name == "nop":
                synced = ("nop", rank, block, number)
                self.after[synced] |= since
                since, done = {synced}, {}
                continue
            for thread in self._threads(operation):
                event = (name, rank, block, number, thread)
                # Of all threads, each has only its own earlier events behind it.
                self.after[event].add(synced if thread == ALL else done.get(thread, synced))
                since.add(event)
                ends = self._event(event, operation, thread, channels["channel_ids"])
                done[thread] = ends
                since.add(ends)
                self.after["end", rank].add(ends)

    def _threads(self, operation: dict[str, Any]) -> range | tuple[int]:
        name = operation["name"]
        if name == "re":
            return (ALL,)
        if name in ("sem_acquire", "sem_release"):
            return range(len(operation["semaphore_ids"]))
        assert len(set(operation["channel_ids"])) == len(operation["channel_ids"])
        assert len(operation["channel_ids"]) <= LIMITS["at once"]
        return range(len(operation["channel_ids"]))

    def _event(
        self, event: Event, operation: dict[str, Any], thread: int, channels: list[int]
    ) -> Event:
        """Note what an event does; return the one with which its thread goes on."""
        name, rank = event[:2]
        if name.startswith("sem_"):
            key = ("semaphore", rank, operation["semaphore_ids"][thread])
            (self.signals if name == "sem_release" else self.waits)[key].append(event)
        elif name == "wait":
            sender, receiver, number = self._pair(rank, channels[operation["channel_ids"][thread]])
            self.waits[receiver, sender, number].append(event)
            self.issued["wait", receiver, sender, number].append(event)
        elif name == "signal":
            index = channels[operation["channel_ids"][thread]]
            self._signal(event, rank, index)
            self.issued["signal", *self._pair(rank, index)].append(event)
        elif name in ("pws", "pwsf"):
            assert operation["channel_type"] == "port"
            index = channels[operation["channel_ids"][thread]]
            end = self._put(event, operation, thread)
            self._signal(end, rank, index)
            self.issued["signal", *self._pair(rank, index)].append(event)
            return end if name == "pwsf" else event
        else:
            reads = [self._access(one) for one in operation["src_buff"]]
            writes = [self._access(one) for one in operation["dst_buff"]]
            assert len(reads) <= LIMITS["local"]
            [write] = writes
            assert name == "re"
            assert {one.rank for one in (*reads, write)} == {rank}
            self.effects[event] = Effect(tuple(reads), (write,))
        return event

    def _put(self, event: Event, operation: dict[str, Any], thread: int) -> Event:
        """Add the reading and the writing, which come later."""
        read = self._access(operation["src_buff"][thread])
        write = self._access(operation["dst_buff"][thread])
        end = ("written", *event)
        self.after[end].add(event)
        self.effects[end] = Effect((read,), (write,))
        return end

    def _signal(self, event: Event, rank: int, index: int) -> None:
        key = self._pair(rank, index)
        if self.signals[key]:  # a channel keeps its order
            self.after[event].add(self.signals[key][-1])
        self.signals[key].append(event)

    def _pair(self, rank: int, index: int) -> tuple[Any, ...]:
        """Return sender, receiver and the number of a channel among those of the two."""
        [channels] = self.gpus[rank]["channels"]
        peers = channels["connected_to"]
        return rank, peers[index], peers[:index].count(peers[index])

    def _access(self, chunks: dict[str, Any]) -> Access:
        rank, buffers = self.place
        buffer: str = chunks.get("type", "")
        if "buffer_id" in chunks:
            rank, buffer = (buffers[chunks["buffer_id"]][one] for one in ("rank", "type"))
        gpu = self.gpus[rank]
        size = gpu["scratch_chunks" if buffer == "s" else "input_chunks"]
        assert 0 <= chunks["index"] < chunks["index"] + chunks["size"] <= size
        return Access(rank, buffer, chunks["index"], chunks["index"] + chunks["size"])


def without(text: str, rank: int, block: int, number: int) -> str:
    """Return a plan without one operation."""
    document = json.loads(text)
    del document["gpus"][rank]["threadblocks"][block]["ops"][number]
    return json.dumps(document)


def operations(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield the place and the name of every operation."""
    for rank, gpu in enumerate(json.loads(text)["gpus"]):
        for block, content in enumerate(gpu["threadblocks"]):
            for number, operation in enumerate(content["ops"]):
                yield rank, block, number, operation["name"]
