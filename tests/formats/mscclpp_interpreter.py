"""An interpreter of MSCCL++'s execution plans. It knows no program of this package.

It plays what the executor's kernel does, thread by thread: waits, signals and puts are done by one
thread for each channel, additions by all together, and threads of a block wait for each other at
``nop`` only. A put is read and written later, in the order of its channel. Before a rank begins,
and after its end, its buffers are somebody else's.
Buffers hold multisets: how often each rank's contribution is in each chunk.

`graph` says which event is always before which. `races` are the accesses to one chunk, one of them
writing, that nothing orders; `replayed` carries a plan out in one of the orders there are.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from random import Random
from typing import Any, NamedTuple

LIMITS = {"ops": 64, "channels": 16, "at once": 8, "local": 10}
ALL = -1
"""In place of a thread: all of a block."""

Event = tuple[Any, ...]


class Access(NamedTuple):
    """Chunks that an event reads or writes."""

    rank: int
    buffer: str
    first: int
    stop: int


class Effect(NamedTuple):
    """What an event does: it puts the sum of what it reads into what it writes."""

    event: Event
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()


class Plan:
    """A plan as events, with those that each of them follows."""

    def __init__(self, text: str) -> None:
        self.document = json.loads(text)
        self.gpus = self.document["gpus"]
        assert [gpu["id"] for gpu in self.gpus] == list(range(len(self.gpus)))
        self.after: dict[Event, set[Event]] = defaultdict(set)
        self.effects: dict[Event, Effect] = {}
        self.signals: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
        self.waits: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
        self.outside: dict[Event, Effect] = {}
        self.issued: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
        for rank, gpu in enumerate(self.gpus):
            self.after["begin", rank] = set()
            buffers = [
                Access(rank, buffer, 0, gpu[f"{name}_chunks"])
                for buffer, name in (("i", "input"), ("s", "scratch"))
            ]
            for event in (("begin", rank), ("end", rank)):  # others may use them there
                self.outside[event] = Effect(event, (), tuple(buffers))
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
            self.effects[event] = Effect(event, tuple(reads), (write,))
        return event

    def _put(self, event: Event, operation: dict[str, Any], thread: int) -> Event:
        """Add the reading and the writing, which come later."""
        read = self._access(operation["src_buff"][thread])
        write = self._access(operation["dst_buff"][thread])
        end = ("written", *event)
        self.after[end].add(event)
        self.effects[end] = Effect(end, (read,), (write,))
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


def races(plan: Plan) -> set[tuple[Event, Event]]:
    """Return pairs of events that access one chunk, one of them writing, in no fixed order.

    Nor may signals of one channel, or waits, be given in another order than that of the list.
    """
    past: dict[Event, int] = {}
    bit: dict[Event, int] = {}
    for event in TopologicalSorter(plan.after).static_order():
        bit[event] = past[event] = 1 << len(bit)
        for one in plan.after.get(event, ()):
            past[event] |= past[one]
    found: dict[tuple[int, str, int], list[tuple[Event, bool]]] = defaultdict(list)
    for effect in (*plan.effects.values(), *plan.outside.values()):
        for accesses, writes in ((effect.reads, False), (effect.writes, True)):
            for one in accesses:
                for chunk in range(one.first, one.stop):
                    found[one.rank, one.buffer, chunk].append((effect.event, writes))
    disordered = {
        (one, other)
        for several in plan.issued.values()
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


def replayed(plan: Plan, seed: int) -> list[dict[int, Counter[int]]]:
    """Carry a plan out in some order; return what is in the chunks of each rank's gradient."""
    draw = Random(seed)
    held: list[dict[tuple[str, int], Counter[int]]] = [
        {("i", chunk): Counter({rank: 1}) for chunk in range(gpu["input_chunks"])}
        for rank, gpu in enumerate(plan.gpus)
    ]
    sorter = TopologicalSorter(plan.after)
    sorter.prepare()
    ready: list[Event] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        event = ready.pop(draw.randrange(len(ready)))
        sorter.done(event)
        effect = plan.effects.get(event)
        if effect is None:
            continue
        [write] = effect.writes
        for place, chunk in enumerate(range(write.first, write.stop)):
            total: Counter[int] = Counter()
            for read in effect.reads:
                assert read.stop - read.first == write.stop - write.first
                total += held[read.rank][read.buffer, read.first + place]
            held[write.rank][write.buffer, chunk] = total
    return [{chunk: what for (buffer, chunk), what in one.items() if buffer == "i"} for one in held]


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
