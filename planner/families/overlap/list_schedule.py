"""List scheduling with look-ahead: transfers start as late as possible if memory is short.

Method: each unit has a due time along a given order; units are issued by due time, waits are filled
with computation, and idle channels start early. Waits come when their results are due or memory is
short. A banker's check keeps the given order feasible within the memory limit. Details:
docs/overlap.md, "How the list schedule looks ahead".
Guarantee: the plan keeps to the limit; there is a plan if the given order keeps to the limit.
Complexity: O(n log n) for n units and dependences, and O(n) more for each unit far ahead of its
place, or far behind the first one that is ready.
Source: own; due dates after the rules of list scheduling (Graham, 1966).
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from planner.families.overlap.evaluation import Plan
from planner.solving.deadline import NEVER, Deadline

if TYPE_CHECKING:
    import numpy as np


_NOTHING = -(2**62)
"""Stands for the memory at a place that has been issued, so that it is never the maximum."""

_OVERSHOOT = 4
"""Computation fills a wait if it takes up to this many times as long."""

_LOOKED_AT = 16
"""Ready units tested for one that fits."""

_Waiting = list[tuple[float, int]]
"""Pairs of a key and a unit, both negated, rising: the next unit is the last in the list."""


@dataclass(frozen=True, slots=True)
class Units:
    """The graph of a problem under a merging; lists are by unit unless said otherwise."""

    members: list[list[int]]  # nodes, in order of issue
    missing: list[int]  # number of predecessors
    later: list[list[int]]  # successors
    busy_ns: list[int]  # time on the rank: computation, packing or unpacking
    transfer_ns: list[int]  # of starts; else 0
    channel: list[int]  # of starts and waits; else -1
    wait_of: list[int]  # of starts: the unit of the wait; else -1
    waits: list[bool]  # whether it is a wait
    allocates: list[int]  # bytes held from its issue on
    peaks: list[int]  # bytes held only during its issue
    releases: list[int]  # bytes freed after its issue, whatever else has been issued
    reads: list[list[int]]  # tensors it reads
    readers: list[int]  # by tensor: number of units that read it
    freed: list[int]  # by tensor: bytes freed after the last reader
    resident: int  # bytes held from the begin
    merged: tuple[tuple[int, ...], ...]

    def plan(self, order: Sequence[int]) -> Plan:
        """Return the plan that issues the units in an order."""
        return Plan(tuple(node for unit in order for node in self.members[unit]), self.merged)


@dataclass(frozen=True, slots=True)
class Rules:
    """Look-ahead of a list schedule."""

    reserve: float = 1.0  # transfers are due earlier by this multiple of their time
    lead: float = 1.0  # and by this multiple of their channel's longest transfer, which may block
    ahead: float = inf  # but those that need memory by this share of all computation at most
    behind: float = 0.0  # computation that is not urgent is due later by this share of it all


@dataclass(frozen=True, slots=True)
class Profile:
    """Properties of a given order of the units."""

    order: Sequence[int]
    place: list[int]  # of each unit
    memory: "np.ndarray[tuple[int], np.dtype[np.int64]]"  # bytes while each place is issued
    last: list[int]  # by tensor: the place after which it is freed; -1 if it is kept


def profile_of(units: Units, order: Sequence[int]) -> Profile:
    """Return the profile of an order; O(n log n)."""
    place = [0] * len(order)
    for number, unit in enumerate(order):
        place[unit] = number
    held, left, row = units.resident, list(units.readers), []
    last = [-1] * len(left)
    for number, unit in enumerate(order):
        held += units.allocates[unit]
        row.append(held + units.peaks[unit])
        for tensor in units.reads[unit]:
            last[tensor] = number
        held -= sum(size for _, size in _freed(units, unit, left))
    import numpy as np  # here, so that the command line starts without it

    return Profile(order, place, np.array(row, dtype=np.int64), last)


def _freed(units: Units, unit: int, left: list[int]) -> list[tuple[int, int]]:
    """Count a unit's reads; return (tensor or -1, bytes) of all memory that it frees."""
    freed = [(-1, units.releases[unit])] if units.releases[unit] else []
    for tensor in units.reads[unit]:
        left[tensor] -= 1
        if not left[tensor] and units.freed[tensor]:
            freed.append((tensor, units.freed[tensor]))
    return freed


def topological(units: Units, keys: Sequence[float]) -> list[int]:
    """Return a topological order of the units, smallest key first."""
    missing = list(units.missing)
    ready: list[tuple[float, int]] = []
    for unit, count in enumerate(missing):
        if not count:
            heappush(ready, (keys[unit], unit))
    order = []
    while ready:
        _, unit = heappop(ready)
        order.append(unit)
        for other in units.later[unit]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (keys[other], other))
    return order


def due_keys(units: Units, order: Sequence[int], rules: Rules) -> tuple[list[float], list[float]]:
    """Return when each unit is due along an order, and when its result is needed."""
    count = len(order)
    moment, now = [0.0] * count, 0
    for unit in order:
        moment[unit] = now
        now += units.busy_ns[unit] if units.channel[unit] < 0 else 0
    # Views and waits take no time of their own: they are due when their readers are.
    need = [float(now)] * count
    behind = rules.behind * now
    due = [float(now)] * count
    for unit in reversed(order):
        soonest = min(map(due.__getitem__, units.later[unit]), default=float(now))
        need[unit] = soonest
        fixed = units.busy_ns[unit] > 0 and units.channel[unit] < 0
        due[unit] = min(moment[unit], soonest) if fixed else soonest
    launch: dict[int, float] = {}
    starts = sorted(
        (unit for unit in reversed(order) if units.wait_of[unit] >= 0),
        key=lambda unit: -need[units.wait_of[unit]],
    )
    following: dict[int, float] = {}
    longest: dict[int, int] = {}
    for unit in starts:
        channel = units.channel[unit]
        longest[channel] = max(longest.get(channel, 0), units.transfer_ns[unit])
    for unit in starts:
        channel = units.channel[unit]
        end = min(need[units.wait_of[unit]], following.get(channel, float(now)))
        following[channel] = end - units.transfer_ns[unit]
        launch[unit] = end - (1 + rules.reserve) * units.transfer_ns[unit]
        launch[unit] -= rules.lead * longest[channel]
    keys = [0.0] * count
    for unit in reversed(order):
        soonest = min(map(keys.__getitem__, units.later[unit]), default=float(now))
        if unit in launch:
            keys[unit] = min(moment[unit], launch[unit])
        elif units.busy_ns[unit] > 0 and units.channel[unit] < 0:
            keys[unit] = min(moment[unit] + behind, soonest - units.busy_ns[unit])
        else:
            keys[unit] = soonest
    return keys, need


def list_schedule(
    units: Units,
    profile: Profile,
    rules: Rules,
    limit: int | None,
    deadline: Deadline = NEVER,
) -> list[int] | None:
    """Return the order of a list schedule along the profile's; None if memory or time runs out."""
    return _Listing(units, profile, rules, limit).run(deadline)


class _Listing:
    """State of one list schedule."""

    def __init__(self, units: Units, profile: Profile, rules: Rules, limit: int | None) -> None:
        self.units, self.profile, self.rules, self.limit = units, profile, rules, limit
        self.keys, self.need = due_keys(units, profile.order, rules)
        spent = zip(units.busy_ns, units.channel, strict=True)
        self.most_early = rules.ahead * sum(busy for busy, channel in spent if channel < 0)
        self.computed = 0  # without packing and unpacking
        self.early: list[tuple[float, int]] = []  # starts that it is too early for
        self.now = 0
        self.held = units.resident
        self.left = list(units.readers)
        self.missing = list(units.missing)
        self.order: list[int] = []
        self.ready: _Waiting = []  # computation
        channels = max(units.channel, default=-1) + 1
        self.starts: list[_Waiting] = [[] for _ in range(channels)]
        self.free = [0] * channels
        self.flying: list[tuple[int, int]] = []  # when a transfer ends, its wait
        self.due: list[tuple[float, int]] = []  # the key of a wait, the wait
        self.end: dict[int, int] = {}
        self.load = profile.memory.copy()  # memory if the rest is issued in the given order
        self.most = max(limit or 0, int(self.load.max()))
        self.room = self.most if limit is None else limit  # that ended transfers may fill
        self.short = False  # whether what could be issued now lacks memory
        self.full = [-1] * len(units.missing)  # by unit: a place where it did not fit; -1: none
        self.issued = [False] * len(units.missing)
        self.low = 0  # everything before this place of the given order has been issued
        first = [unit for unit, count in enumerate(self.missing) if not count]
        for unit in sorted(first, key=lambda unit: (-self.keys[unit], -unit)):
            self.enter(unit)

    def enter(self, unit: int) -> None:
        """Make a unit ready whose predecessors have all been issued."""
        units = self.units
        if units.wait_of[unit] >= 0:
            need = self.need[units.wait_of[unit]]
            if need > self.computed + self.most_early and self.grows(unit):
                heappush(self.early, (need, unit))
            else:
                insort(self.starts[units.channel[unit]], (-self.keys[unit], -unit))
        elif not units.waits[unit]:
            insort(self.ready, (-self.keys[unit], -unit))

    def grows(self, unit: int) -> bool:
        """Return whether a start needs much more memory than it frees."""
        units = self.units
        freed = sum(units.freed[tensor] for tensor in units.reads[unit])
        return units.allocates[unit] > 2 * freed

    def fits(self, unit: int) -> bool:
        return self.limit is None or self.needs(unit) <= self.limit

    def needs(self, unit: int) -> int:
        """Return the memory while a unit is issued."""
        return self.held + self.units.allocates[unit] + self.units.peaks[unit]

    def issue(self, unit: int) -> None:
        units = self.units
        self.order.append(unit)
        self.held += units.allocates[unit]
        if units.waits[unit]:
            self.now = max(self.now, self.end[unit])
        self.now += units.busy_ns[unit]
        if units.channel[unit] < 0:
            self.computed += units.busy_ns[unit]
        while self.early and self.early[0][0] <= self.computed + self.most_early:
            self.enter(heappop(self.early)[1])
        if units.wait_of[unit] >= 0:
            channel, wait = units.channel[unit], units.wait_of[unit]
            self.free[channel] = end = max(self.now, self.free[channel]) + units.transfer_ns[unit]
            self.end[wait] = end
        self.settle(unit)
        for other in units.later[unit]:
            self.missing[other] -= 1
            if not self.missing[other]:
                self.enter(other)
                if units.waits[other]:
                    heappush(self.flying, (self.end[other], other))
                    heappush(self.due, (self.keys[other], other))
        self.end.pop(unit, None)

    def settle(self, unit: int) -> None:
        """Update the memory held, and the memory of the rest in the given order."""
        units, place = self.units, self.profile.place[unit]
        self.issued[unit] = True
        self.load[place] = _NOTHING
        if place > self.low and units.allocates[unit]:
            self.load[self.low : place] += units.allocates[unit]
        for tensor, size in _freed(units, unit, self.left):
            self.held -= size
            last = place if tensor < 0 else self.profile.last[tensor]
            if last >= self.low:
                self.load[self.low : last + 1] -= size
        order = self.profile.order
        while self.low < len(order) and self.issued[order[self.low]]:
            self.low += 1

    def affordable(self, unit: int) -> bool:
        """Return whether a unit fits, and the rest could then follow in the given order."""
        if self.limit is None:
            return True
        place, amount = self.profile.place[unit], self.units.allocates[unit]
        if self.needs(unit) > self.limit:
            return False
        if place <= self.low or not amount:
            return True
        full = self.full[unit]  # most units that did not fit are asked for again soon
        if full >= self.low and self.load[full] + amount > self.most:
            return False
        full = self.low + int(self.load[self.low : place].argmax())
        self.full[unit] = full
        return bool(self.load[full] + amount <= self.most)

    def run(self, deadline: Deadline) -> list[int] | None:
        total = len(self.missing)
        while len(self.order) < total:
            if not self.step() or (not len(self.order) % 512 and deadline.passed):
                return None
        return self.order

    def step(self) -> bool:
        """Issue a unit; return whether that was possible."""
        while self.flying and self.flying[0][1] not in self.end:
            heappop(self.flying)
        self.short = False
        ready = self.pop(self.ready)
        self.short |= ready is not None and self.needs(ready) > self.room
        frontier = self.frontier(ready)
        ahead = self.units.busy_ns[ready] if ready is not None else 0
        if self.make_room() or self.launch(frontier, ahead) or self.make_room():
            self.push_ready(ready)
            return True
        late = self.earliest_due()
        if ready is not None:
            if late is None or self.keys[late] >= self.keys[ready]:
                self.issue(ready)
                return True
            stall = self.end[late] - self.now
            if self.units.busy_ns[ready] <= _OVERSHOOT * stall or not self.fits(late):
                self.issue(ready)
                return True
            self.push_ready(ready)
            return self.end_transfer(late) or self.rescue()
        if late is not None and self.end_transfer(late):
            return True
        return self.rescue()

    def pop(self, units: _Waiting, latest: float = inf) -> int | None:
        """Take the first of the first few units that is affordable, with a key up to `latest`."""
        place, tried = len(units) - 1, 0
        while place >= 0 and tried < _LOOKED_AT and -units[place][0] <= latest:
            unit = -units[place][1]
            done = self.issued[unit]
            if done or self.affordable(unit):
                del units[place]
                if not done:
                    return unit
            else:
                tried += 1
                self.short = True
            place -= 1
        return None

    def push_ready(self, unit: int | None) -> None:
        if unit is not None:
            insort(self.ready, (-self.keys[unit], -unit))

    def frontier(self, ready: int | None) -> float:
        late = self.earliest_due()
        keys = [self.keys[unit] for unit in (ready, late) if unit is not None]
        return min(keys, default=inf)

    def earliest_due(self) -> int | None:
        while self.due and self.due[0][1] not in self.end:
            heappop(self.due)
        return self.due[0][1] if self.due else None

    def make_room(self) -> bool:
        """Wait for the transfer that ended first, if memory is short; return whether it was.

        A wait that comes later blocks less if its transfer takes longer than planned.
        """
        ended = self.short and self.flying and self.flying[0][0] <= self.now
        return bool(ended) and self.end_transfer(self.flying[0][1])

    def end_transfer(self, wait: int) -> bool:
        if not self.affordable(wait):
            return False
        self.issue(wait)
        return True

    def launch(self, frontier: float, ahead: int) -> bool:
        """Start a transfer that is due, or whose channel would become idle."""
        for channel, starts in enumerate(self.starts):
            idle = self.free[channel] < self.now + max(ahead, 1)
            chosen = self.pop(starts, inf if idle else frontier)
            if chosen is not None:
                self.issue(chosen)
                return True
        return False

    def rescue(self) -> bool:
        """Issue the next unit of the given order if nothing else fits; return whether it fits."""
        unit = self.profile.order[self.low]
        if self.missing[unit] or not self.fits(unit):
            return False
        self.issue(unit)
        return True
