"""An interpreter of MSCCL++'s execution plans. It knows no program of this package.

It plays what the executor's kernel does, thread by thread: waits, signals and puts are done by one
thread for each channel, additions by all together, and threads of a block wait for each other at
``nop`` only. A put is read and written later, in the order of its channel. Before a rank begins,
and after its end, its buffers are somebody else's.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.formats.program_events import Access, Effect, Event, Events

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
