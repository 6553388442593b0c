"""Reroutes around failures: Algorithm 1 with as few changes as possible.

Problem: sum and broadcast the gradient among the living servers of a BCube(n, k) with failures, at
any size. Method: a blocked transfer is sent one step earlier, in parts, over other levels, to
servers that would send the same slice anyway; see docs/bml.md, "Why detours are right".

Guarantee: the plan is correct. If every slice has nowhere to go, the method does not apply
(`planner.families.bml.trees` still does). Not optimal; the lower bound gives the gap.
Complexity: O(f·n·k³) for f failed NICs, independent of N, where few neighbours have failed too; a
failed switch counts as n NICs, a server as k.
Source: own. The paper does not treat failures; that servers relay for each other is BCube's idea.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.families.bml.damage import Damage
from planner.families.bml.schedule import Detour, DetourPart, Schedule, slice_of
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube
from planner.solving.deadline import watched


def detour(damage: Damage) -> Schedule:
    """Return the schedule with detours around failures.

    Raises
    ------
    NotApplicableError
        If no piece can be summed up with detours of one hop.
    """
    bcube = damage.bcube
    gone: set[int] = set()
    detours = []
    blocked = sorted(set(watched(_blocked(damage), damage.deadline)))
    for thread, step, sender, receiver in blocked:
        damage.deadline.check()
        parts = _parts(damage, thread, step, sender, receiver)
        detours.append(Detour(thread, step, sender, receiver, parts))
        if not parts:
            offset, length = slice_of(bcube, thread, step, receiver)
            first = thread * bcube.servers + offset
            gone.update(range(first, first + length))
    without = gone | {
        thread * bcube.servers + _number(bcube, thread, server)
        for server in damage.degraded
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


def _number(bcube: BCube, thread: int, server: int) -> int:
    """Return the number of the piece of a thread that a server owns."""
    return slice_of(bcube, thread, bcube.k - 1, server)[0]
