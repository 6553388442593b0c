"""Which links of a BCube still carry something: ranks knock at each other's doors.

Problem. A link that fails need not take its interface down: a switch may swallow everything. Who
cannot reach whom, and which NICs does that come from?

Method. Every rank listens on each of its interfaces and tells the others where. Then it connects to
each of its neighbours, from the interface of their level: a handshake needs both directions. Of the
pairs that fail, those of interfaces that are down are explained; as long as some are left, the NIC
in most of them is taken to have failed.

Guarantee. Without the NICs named no pair is left that failed. They are the fewest where one NIC, or
all of a switch, has failed; a pair alone does not say which of its two ends it is, and the first is
named.

Complexity. k(n-1) connections a rank, all at once, within a few seconds. Source: own; the choice of
NICs is the greedy one for vertex covers.
"""

import json
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from planner.runtime.world.verdict import down
from planner.runtime.world.world import World
from planner.topologies import BCube

__all__ = ["broken_nics", "probe"]

_SIOCGIFADDR = 0x8915
_LIMIT_S = 3.0
"""How long a neighbour may take to answer; a handshake takes milliseconds, unless all compute."""

Nic = tuple[int, int]
"""A server and a level."""


def probe(
    world: World, bcube: BCube, servers: Sequence[int], known: Iterable[Nic] = ()
) -> frozenset[Nic]:
    """Return the NICs that do not work, as all ranks see it.

    Every rank has to call it.

    Parameters
    ----------
    world : World
        The job. Without an interface for each level nobody knows more than is known.
    bcube : BCube
        Its network.
    servers : sequence of int
        The server of each rank.
    known : iterable of (int, int)
        NICs that are known not to work.
    """
    if len(world.interfaces) != bcube.k:
        return frozenset(known)
    dead = down(world.interfaces)
    with ExitStack() as doors:
        mine: list[tuple[str, int] | None] = []
        for name in world.interfaces:
            address = None if name in dead else _address(name)
            door = address and doors.enter_context(socket.create_server((address, 0)))
            mine.append(door.getsockname() if door else None)
        told = {"down": [name in dead for name in world.interfaces], "doors": mine}
        others = list(map(json.loads, world.gather("where ranks listen", json.dumps(told))))
        ranks = {server: rank for rank, server in enumerate(servers)}
        own = servers[world.rank]
        calls = [
            (peer, level, name, others[ranks[peer]]["doors"][level])
            for level, name in enumerate(world.interfaces)
            for peer in bcube.neighbours(own, level)
            if peer in ranks and mine[level] and others[ranks[peer]]["doors"][level]
        ]
        limit_s = min(_LIMIT_S, world.timeout_s / 2)
        with ThreadPoolExecutor(max(len(calls), 1)) as threads:
            answered = threads.map(lambda call: _answers(call[2], call[3], limit_s), calls)
            silent = [call[:2] for call, there in zip(calls, answered, strict=True) if not there]
        heard = world.gather("who does not answer", json.dumps(silent))  # till then doors are open
    seen = {
        (server, level)
        for server, other in zip(servers, others, strict=True)
        for level, is_down in enumerate(other["down"])
        if is_down
    }
    pairs = {
        (level, *sorted((server, peer)))
        for server, text in zip(servers, heard, strict=True)
        for peer, level in json.loads(text)
    }
    return broken_nics({*known, *seen}, pairs)


def broken_nics(known: Iterable[Nic], pairs: Iterable[tuple[int, ...]]) -> frozenset[Nic]:
    """Return what explains the pairs (level, server, server) that do not reach each other.

    Parameters
    ----------
    known : iterable of (int, int)
        NICs that are known not to work.
    pairs : iterable of (int, int, int)
        Who does not reach whom.
    """
    broken = set(known)
    left = {((sender, level), (receiver, level)) for level, sender, receiver in pairs}
    while left := {pair for pair in left if not broken.intersection(pair)}:
        counts = Counter(nic for pair in left for nic in pair)
        broken.add(min(counts, key=lambda nic: (-counts[nic], nic)))
    return frozenset(broken)


def _answers(name: str, door: tuple[str, int], limit_s: float) -> bool:
    """Tell whether somebody is reached from an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        with suppress(OSError, AttributeError):  # where the system allows it; else routes decide
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())
        caller.settimeout(limit_s)
        try:
            caller.bind((_address(name) or "", 0))
            caller.connect(tuple(door))
        except OSError:
            return False
        return True


def _address(name: str) -> str | None:
    """Return the IPv4 address of an interface, if it has one and the system says so."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("256s", name.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(asking, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None
