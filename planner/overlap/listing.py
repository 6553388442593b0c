"""List scheduling with look-ahead: transfers as late as the computation allows, if memory is short.

Every unit has a key: the moment of pure computation, along a given order, at which it is due. The
start of a collective is due before its result is needed, by the time that it and all later
transfers of its channel take; what only prepares it is due before it. Units are issued by key.
While a transfer that is due is waited for, other computation fills the time. A start is issued
before its key if its channel would fall idle. Before anything is issued early, it is made sure that
the rest could still go on in the given order within the memory limit, as a banker would.

Guarantee: the plan keeps to the limit; there is one if the given order keeps to it. Complexity:
O(n log n) for n units and dependences, and O(n) more for each that is far ahead of its place.
Source: own; due dates after the rules of list scheduling (Graham, 1966).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from planner.deadline import NEVER, Deadline
from planner.overlap.units import Units

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Profile", "Rules", "due_keys", "list_schedule", "profile_of", "topological"]


_NOTHING = -(2**62)
"""The memory at a place that has been issued."""

_LOOKED_AT = 16
"""How many ready units are looked at for one that fits."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How far a list schedule looks ahead.

    Attributes
    ----------
    reserve : float
        Transfers are due earlier by this multiple of their time.
    lead : float
        And by this multiple of the longest transfer of their channel, which may be in the way.
    patience : float
        A wait is not filled with computation longer than this multiple of it.
    eager : bool
        Whether starts go before their key when the channel would fall idle.
    ahead : float
        Share of the spare memory that early starts may take.
    """

    reserve: float = 1.0
    lead: float = 1.0
    patience: float = 1.0
    eager: bool = True
    ahead: float = 1.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a given order of the units.

    Attributes
    ----------
    order : sequence of int
        The order.
    place : list of int
        The place of each unit.
    memory : array
        The memory held while each place is issued.
    last : list of int
        By tensor: the place after which it is freed; -1 if it is kept.
    """

    order: Sequence[int]
    place: list[int]
    memory: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    last: list[int]


def profile_of(units: Units, order: Sequence[int]) -> Profile:
    """Return what there is to know of an order. O(n log n)."""
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
    import numpy as np  # where it is needed: the command line starts without

    return Profile(order, place, np.array(row, dtype=np.int64), last)


def _freed(units: Units, unit: int, left: list[int]) -> list[tuple[int, int]]:
    """Count a unit's reading; return tensors that are freed by it, or -1, and their bytes."""
    freed = [(-1, units.releases[unit])] if units.releases[unit] else []
    for tensor in units.reads[unit]:
        left[tensor] -= 1
        if not left[tensor] and units.freed[tensor]:
            freed.append((tensor, units.freed[tensor]))
    return freed


def topological(units: Units, keys: Sequence[float]) -> list[int]:
    """Return the units in an order that respects dependences, the smallest key first."""
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
    """Return when each unit is due along an order, and when what it makes is needed."""
    count = len(order)
    moment, now = [0.0] * count, 0
    for unit in order:
        moment[unit] = now
        now += units.busy_ns[unit] if units.channel[unit] < 0 else 0
    # When the result of each unit is needed; views and waits are due when their readers are.
    need = [float(now)] * count
    due = [float(now)] * count
    for unit in reversed(order):
        soonest = min((due[other] for other in units.later[unit]), default=float(now))
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
        soonest = min((keys[other] for other in units.later[unit]), default=float(now))
        if unit in launch:
            keys[unit] = min(moment[unit], launch[unit])
        elif units.busy_ns[unit] > 0 and units.channel[unit] < 0:
            keys[unit] = min(moment[unit], soonest - units.busy_ns[unit])
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
    """Return the units in the order of a list schedule; None if memory or time runs out on the way.

    Parameters
    ----------
    units : Units
        The graph.
    profile : Profile
        Of the order that keys follow.
    rules : Rules
        How far to look ahead.
    limit : int or None
        Most bytes held at once.
    deadline : Deadline
        When to give up.
    """
    keys, need = due_keys(units, profile.order, rules)
    return _Listing(units, profile, rules, limit, keys, need).run(deadline)


class _Listing:
    """The state of one list schedule."""

    def __init__(
        self,
        units: Units,
        profile: Profile,
        rules: Rules,
        limit: int | None,
        keys: list[float],
        need: list[float],
    ) -> None:
        self.units, self.profile, self.rules = units, profile, rules
        self.limit, self.keys, self.need = limit, keys, need
        self.now = 0
        self.held = units.resident
        self.left = list(units.readers)
        self.missing = list(units.missing)
        self.order: list[int] = []
        self.ready: list[tuple[float, int]] = []  # computation
        channels = max(units.channel, default=-1) + 1
        self.starts: list[list[tuple[float, int]]] = [[] for _ in range(channels)]
        self.free = [0] * channels
        self.flying: list[tuple[int, int]] = []  # when a transfer ends, its wait
        self.due: list[tuple[float, int]] = []  # the key of a wait, the wait
        self.end: dict[int, int] = {}
        self.load = profile.memory.copy()  # what issuing the rest in the given order would hold
        self.plain = int(self.load.max())
        self.issued = [False] * len(units.missing)
        self.low = 0  # everything before this place of the given order has been issued
        for unit, count in enumerate(self.missing):
            if not count:
                self.enter(unit)

    def enter(self, unit: int) -> None:
        """Note that nothing stands before a unit any more."""
        units = self.units
        if units.wait_of[unit] >= 0:
            heappush(self.starts[units.channel[unit]], (self.keys[unit], unit))
        elif not units.waits[unit]:
            heappush(self.ready, (self.keys[unit], unit))

    def fits(self, unit: int) -> bool:
        return self.limit is None or (
            self.held + self.units.allocates[unit] + self.units.peaks[unit] <= self.limit
        )

    def issue(self, unit: int) -> None:
        units = self.units
        self.order.append(unit)
        self.held += units.allocates[unit]
        if units.waits[unit]:
            self.now = max(self.now, self.end[unit])
        self.now += units.busy_ns[unit]
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
        """Keep count of the memory that is held, and of what the rest would hold at its places."""
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
        """Whether a unit fits, and all that is left could follow it in the given order."""
        if self.limit is None:
            return True
        place, amount = self.profile.place[unit], self.units.allocates[unit]
        if self.held + amount + self.units.peaks[unit] > self.limit:
            return False
        if place <= self.low or not amount:
            return True
        most = int(self.load[self.low : place].max())
        spare = (self.limit - self.plain) * self.rules.ahead + self.plain
        return most + amount <= max(spare, self.plain)

    def run(self, deadline: Deadline) -> list[int] | None:
        total = len(self.missing)
        while len(self.order) < total:
            if not self.step() or (not len(self.order) % 512 and deadline.passed):
                return None
        return self.order

    def step(self) -> bool:
        """Issue something; return whether that was possible."""
        while self.flying and self.flying[0][1] not in self.end:
            heappop(self.flying)
        if self.flying and self.flying[0][0] <= self.now and self.end_transfer(self.flying[0][1]):
            return True
        ready = self.pop_ready(self.affordable)
        frontier = self.frontier(ready)
        ahead = self.units.busy_ns[ready] if ready is not None else 0
        if self.launch(frontier, ahead):
            self.push_ready(ready)
            return True
        late = self.earliest_due()
        if ready is not None:
            if late is None or self.keys[late] >= self.keys[ready]:
                self.issue(ready)
                return True
            stall = self.end[late] - self.now
            if self.units.busy_ns[ready] <= self.rules.patience * stall or not self.fits(late):
                self.issue(ready)
                return True
            self.push_ready(ready)
            return self.end_transfer(late) or self.rescue()
        if late is not None and self.end_transfer(late):
            return True
        return self.rescue()

    def pop_ready(self, fits: Callable[[int], bool]) -> int | None:
        """Take the first ready unit that fits, of the first few."""
        aside: list[int] = []
        chosen = None
        while self.ready and chosen is None and len(aside) < _LOOKED_AT:
            unit = heappop(self.ready)[1]
            if self.issued[unit]:
                continue
            if fits(unit):
                chosen = unit
            else:
                aside.append(unit)
        for unit in aside:
            self.push_ready(unit)
        return chosen

    def push_ready(self, unit: int | None) -> None:
        if unit is not None:
            heappush(self.ready, (self.keys[unit], unit))

    def frontier(self, ready: int | None) -> float:
        late = self.earliest_due()
        keys = [self.keys[unit] for unit in (ready, late) if unit is not None]
        return min(keys, default=float("inf"))

    def earliest_due(self) -> int | None:
        while self.due and self.due[0][1] not in self.end:
            heappop(self.due)
        return self.due[0][1] if self.due else None

    def end_transfer(self, wait: int) -> bool:
        if not self.affordable(wait):
            return False
        self.issue(wait)
        return True

    def launch(self, frontier: float, ahead: int) -> bool:
        """Start a transfer that is due, or whose channel would fall idle."""
        for channel, starts in enumerate(self.starts):
            idle = self.rules.eager and self.free[channel] < self.now + max(ahead, 1)
            aside: list[int] = []
            chosen = None
            while starts and chosen is None and len(aside) < _LOOKED_AT:
                if not idle and starts[0][0] > frontier:
                    break
                unit = heappop(starts)[1]
                if self.issued[unit]:
                    continue
                if self.affordable(unit):
                    chosen = unit
                else:
                    aside.append(unit)
            for unit in aside:
                heappush(starts, (self.keys[unit], unit))
            if chosen is not None:
                self.issue(chosen)
                return True
        return False

    def rescue(self) -> bool:
        """Go on in the given order where nothing else fits; it keeps to the limit if that does."""
        unit = self.profile.order[self.low]
        if self.missing[unit] or not self.fits(unit):
            return False
        self.issue(unit)
        return True
