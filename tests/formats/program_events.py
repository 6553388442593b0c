"""What happens when a program runs, and what must happen before: races, and runs in any order.

Buffers hold multisets: how often each rank's contribution is in each chunk.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from random import Random
from typing import Any, NamedTuple

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
