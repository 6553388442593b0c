"""The surviving part of a BCube, bounds on an all-reduce in it, and detours of Algorithm 1.

Problem: sum and broadcast the gradient among the living servers of a BCube(n, k) with failures, at
any size. A NIC is usable if neither it, its server nor its switch has failed, and another NIC on
its switch is usable.
Bounds, in units of the time T_F of one gradient over one link: 2(N'-1)/(usable NICs), 1/(usable
NICs of a server), and 2(P-1)/(usable NICs between P parts). Proof: docs/bml.md, "Why the bounds
with failures hold". Method: a blocked transfer is sent one step earlier, in parts, over other
levels, to servers that would send the same slice anyway; see docs/bml.md, "Why detours are right".

Guarantee: the plan is correct. If no piece can be summed up, the method does not apply
(`planner.families.bml.trees` still does). Not optimal; the lower bound gives the gap.
Complexity: label propagation takes O(k·N) array operations a round, and about as many rounds as the
diameter. Detours O(f·n·k³) for f failed NICs, independent of N; a failed switch counts as n NICs.
Source: own; the bounds generalise that of BML, section 3.2, by the cuts of Tutte and Nash-Williams.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from planner.families.bml.problem import Problem
from planner.families.bml.schedule import Detour, DetourPart, Schedule, slice_of
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube, Failures
from planner.solving.deadline import NEVER, Deadline, until_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRACE_S = 0.35
"""Seconds after the time limit in which a plan may still be checked and priced."""


@dataclass(frozen=True)
class Damage:
    """A BCube with failures.

    Parameters
    ----------
    bcube : BCube
        The topology.
    failed : Failures
        Failed servers, NICs and switches.
    deadline : Deadline
        When properties and methods that visit the whole network raise a `TimeUpError`.
    """

    bcube: BCube
    failed: Failures
    deadline: Deadline = field(default=NEVER, compare=False)

    @property
    def dead(self) -> frozenset[int]:
        """Failed servers."""
        return self.failed.servers

    @property
    def living(self) -> int:
        """Number of living servers, N'."""
        return self.bcube.servers - len(self.dead)

    @cached_property
    def down(self) -> frozenset[tuple[int, int]]:
        """NICs of living servers that cannot be used, as pairs of server and level."""
        bcube = self.bcube
        broken = set(self.failed.nics)
        for level, switch in self.failed.switches:
            servers = until_deadline(bcube.on_switch(level, switch), self.deadline)
            broken.update((server, level) for server in servers)
        suspects = {
            (level, bcube.switch(server, level))
            for server, level in until_deadline(broken, self.deadline)
        }
        suspects.update(
            (level, bcube.switch(server, level)) for server in self.dead for level in range(bcube.k)
        )
        for level, switch in suspects:
            up = [
                server
                for server in until_deadline(bcube.on_switch(level, switch), self.deadline)
                if server not in self.dead and (server, level) not in broken
            ]
            if len(up) == 1:
                broken.add((up[0], level))
        return frozenset(
            (server, level)
            for server, level in until_deadline(broken, self.deadline)
            if server not in self.dead
        )

    @property
    def usable_nics(self) -> int:
        """Number of usable NICs."""
        return self.bcube.k * self.living - len(self.down)

    @cached_property
    def fewest_nics(self) -> int:
        """Fewest usable NICs of a living server."""
        lost = Counter(server for server, _ in self.down)
        return self.bcube.k - max(lost.values(), default=0)

    def load_bound(self) -> Fraction:
        """Return the lower bound on the load of the busiest NIC in each direction, in gradients.

        The network must be connected (`cut_off`).
        """
        if self.living < 2:
            return Fraction(0)
        bcube = self.bcube
        bounds = [Fraction(2 * (self.living - 1), self.usable_nics), Fraction(1, self.fewest_nics)]
        lost = Counter(level for _, level in self.down)
        by_nics = sorted(range(bcube.k), key=lambda level: -lost[level])
        nics = 0
        for count, level in enumerate(by_nics[:-1], 1):
            nics += self.living - lost[level]
            parts = self._parts(by_nics[:count])
            if parts > 1:
                bounds.append(Fraction(2 * (parts - 1), nics))
        return max(bounds)

    def _parts(self, levels: list[int]) -> int:
        """Return the number of non-empty parts of servers that agree in the digits of `levels`."""
        n, k = self.bcube.n, self.bcube.k
        gone = Counter(
            tuple(self.bcube.digit(server, level) for level in levels) for server in self.dead
        )
        size = int(n ** (k - len(levels)))
        return int(n ** len(levels)) - sum(count == size for count in gone.values())

    def hops(self) -> int:
        """Return a lower bound on the largest distance, in links, between two living servers.

        Every server differs in all k digits from equally many others. Unless half of all servers
        have failed, some such pair is alive, at distance k.
        """
        if self.living < 2:
            return 0
        return self.bcube.k if 2 * len(self.dead) < self.bcube.servers else 1

    def cut_off(self) -> tuple[int, ...]:
        """Return the servers outside the largest connected part; () if there is one part."""
        import numpy as np

        if not (self.down or self.dead):
            return ()
        labels = self._labels()
        parts, sizes = np.unique(labels[labels >= 0], return_counts=True)
        if len(parts) < 2:
            return ()
        main = parts[np.argmax(sizes)]
        return tuple(np.flatnonzero((labels >= 0) & (labels != main)).tolist())

    def _labels(self) -> "NDArray[np.int64]":
        """Return the smallest server that each server reaches, -1 for failed ones; shape (N,)."""
        import numpy as np

        bcube = self.bcube
        n, count = bcube.n, bcube.servers
        nobody = np.int64(count)
        labels = np.arange(count, dtype=np.int64)
        labels[list(self.dead)] = nobody
        up = np.ones((bcube.k, count), dtype=bool)
        up[:, list(self.dead)] = False
        for server, level in self.down:
            up[level, server] = False
        while True:
            before = labels.copy()
            for level in range(bcube.k):
                self.deadline.check()
                shape = (-1, n, n**level)
                usable = up[level].reshape(shape)
                seen = np.where(usable, labels.reshape(shape), nobody)
                least = seen.min(axis=1, keepdims=True)
                labels = np.where(usable, least, labels.reshape(shape)).reshape(-1)
            if np.array_equal(labels, before):
                break
        labels[labels == nobody] = -1
        return labels


@lru_cache(maxsize=1)  # method, checker and bound of one solution share it
def damage_of(problem: Problem, deadline: Deadline) -> Damage:
    """Return the surviving network of a problem; it gives up `GRACE_S` after the deadline."""
    return Damage(problem.bcube, problem.failed, deadline.later(GRACE_S))


def detour(damage: Damage) -> Schedule:
    """Return the schedule with detours around failures.

    NotApplicableError if no piece can be summed up with detours of one hop.
    """
    bcube = damage.bcube
    gone: set[int] = set()
    detours = []
    blocked = sorted(set(until_deadline(_blocked(damage), damage.deadline)))
    for thread, step, sender, receiver in blocked:
        damage.deadline.check()
        parts = _parts(damage, thread, step, sender, receiver)
        detours.append(Detour(thread, step, sender, receiver, parts))
        if not parts:
            offset, length = slice_of(bcube, thread, step, receiver)
            first = thread * bcube.servers + offset
            gone.update(range(first, first + length))
    without = gone | {
        thread * bcube.servers + slice_of(bcube, thread, bcube.k - 1, server)[0]
        for server, _ in damage.down
        for thread in range(bcube.k)
    }
    left_out = min((without, gone), key=lambda pieces: len(pieces) == bcube.nics)
    if len(left_out) == bcube.nics:
        raise NotApplicableError(
            "failed", "so much has failed that no piece can be summed up with detours of one hop"
        )
    # Detours of pieces without elements would add a step that sends nothing.
    kept = sorted(left_out)
    schedule = Schedule(bcube, damage.dead, left_out=tuple(kept))
    layout = schedule.layout(bcube.nics, 1)
    needed = tuple(
        way._replace(
            parts=tuple(
                part
                for part in way.parts
                if layout.span(way.thread * bcube.servers + part.offset, part.length)
            )
        )
        for way in detours
    )
    return replace(schedule, detours=needed)


def _blocked(damage: Damage) -> Iterator[tuple[int, int, int, int]]:
    """Yield thread, step, sender and receiver of the transfers that cannot take their link."""
    bcube, k = damage.bcube, damage.bcube.k
    for server, level in damage.down:
        damage.deadline.check()
        for peer in bcube.neighbours(server, level):
            for thread in range(k):
                yield thread, (level - thread) % k, server, peer
                if peer not in damage.dead:
                    yield thread, (level - thread) % k, peer, server
    for server in damage.dead:
        for level in range(k):
            damage.deadline.check()
            for peer in bcube.neighbours(server, level):
                if peer not in damage.dead:
                    for thread in range(k):
                        yield thread, (level - thread) % k, peer, server


def _parts(
    damage: Damage, thread: int, step: int, sender: int, receiver: int
) -> tuple[DetourPart, ...]:
    """Return the transfers that replace a blocked one; none if no neighbour can relay."""
    bcube, dead, down = damage.bcube, damage.dead, damage.down
    n, blocked_level = bcube.n, (thread + step) % bcube.k
    stride: int = n**blocked_level
    apart = (receiver - sender) // stride
    # Transfers with one sender, or one receiver, are spread over different neighbours.
    first = (apart - 1) % n
    takers = []
    for later in range(step + 1, bcube.k):
        level = (thread + later) % bcube.k
        if (sender, level) in down:
            continue
        own, reach = bcube.digit(sender, level), int(n**level)
        for turn in range(n - 1):
            via = sender + ((own + 1 + (first + turn) % (n - 1)) % n - own) * reach
            target = via + apart * stride
            if (
                via not in dead
                and (via, level) not in down
                and (via, blocked_level) not in down
                and target not in dead
                and (target, blocked_level) not in down
            ):
                takers.append((level, via))
                break
    if not takers:
        return ()
    offset, length = slice_of(bcube, thread, step, receiver)
    ends = [offset + length * place // len(takers) for place in range(len(takers) + 1)]
    return tuple(
        DetourPart(level, via, start, stop - start)
        for (level, via), start, stop in zip(takers, ends, ends[1:], strict=False)
        if start < stop
    )
