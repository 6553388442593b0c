"""The algorithms, transfer by transfer, for `Replay`; each returns the replay when all is done."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product

from planner.model.topologies import BCube
from tests.collectives.replay import Key, Replay, Transfer


def anywhere(nics: int = 1) -> Callable[[int, int, int], bool]:
    """Full bisection bandwidth: every server reaches every other by each of its NICs."""
    return lambda _sender, _receiver, nic: 0 <= nic < nics


def digits(bcube: BCube, server: int) -> list[int]:
    """Base-n digits, the lowest first, in another way than the library's."""
    found = []
    for _ in range(bcube.k):
        server, digit = divmod(server, bcube.n)
        found.append(digit)
    return found


def wired(bcube: BCube) -> Callable[[int, int, int], bool]:
    """A NIC of level l reaches the servers that differ in digit l only."""

    def linked(sender: int, receiver: int, nic: int) -> bool:
        pairs = zip(digits(bcube, sender), digits(bcube, receiver), strict=True)
        return [level for level, (a, b) in enumerate(pairs) if a != b] == [nic]

    return linked


def level_between(bcube: BCube, one: int, other: int) -> int:
    pairs = zip(digits(bcube, one), digits(bcube, other), strict=True)
    [level] = [level for level, (a, b) in enumerate(pairs) if a != b]
    return level


def fill(replay: Replay, buffers: Sequence[Key]) -> None:
    """Give every server its own contribution to every buffer."""
    for server, buffer in product(range(replay.servers), buffers):
        replay.held[server, buffer] = replay.own(server)


def ring(order: Sequence[int], bcube: BCube | None) -> Replay:
    count = len(order)
    replay = Replay(count, wired(bcube) if bcube else anywhere())
    fill(replay, range(count))
    for adds in (True, False):
        for turn in range(count - 1):
            shift = turn if adds else turn - 1
            replay.step(
                Transfer(
                    server,
                    order[(place + 1) % count],
                    level_between(bcube, server, order[(place + 1) % count]) if bcube else 0,
                    (place - shift) % count,
                    Fraction(1, count),
                    adds=adds,
                )
                for place, server in enumerate(order)
            )
    replay.finish(range(count))
    return replay


def halving_doubling(servers: int, bcube: BCube | None = None) -> Replay:
    levels = servers.bit_length() - 1
    core = 1 << levels
    extra = servers - core
    replay = Replay(servers, wired(bcube) if bcube else anywhere())
    fill(replay, range(core))
    piece = Fraction(1, core)

    def nic(server: int, partner: int) -> int:
        return level_between(bcube, server, partner) if bcube else 0

    def exchange(bit: int, *, adds: bool) -> Iterator[Transfer]:
        for server in range(core):
            partner = server ^ 1 << bit
            owner = partner if adds else server
            # Bits 0 … bit of a piece's number are settled once this level has been summed.
            mask = (1 << bit + 1) - 1
            for buffer in range(core):
                if buffer & mask == owner & mask:
                    yield Transfer(server, partner, nic(server, partner), buffer, piece, adds=adds)

    def fold(*, adds: bool) -> list[Transfer]:
        pairs = [(core + place, place) for place in range(extra)]
        return [
            Transfer(*(pair if adds else pair[::-1]), 0, buffer, piece, adds=adds)
            for pair in pairs
            for buffer in range(core)
        ]

    if extra:
        replay.step(fold(adds=True))
    for bit in range(levels):
        replay.step(exchange(bit, adds=True))
    for bit in reversed(range(levels)):
        replay.step(exchange(bit, adds=False))
    if extra:
        replay.step(fold(adds=False))
    replay.finish(range(core))
    return replay


def bruck(servers: int) -> Replay:
    """By who has what: in each step of the second half all get what the one ahead of them has."""
    replay = Replay(servers, anywhere())
    fill(replay, range(servers))
    has = [{server} for server in range(servers)]
    handed: list[list[tuple[int, int, int]]] = []
    while len(has[0]) < servers:
        far = len(has[0])
        handed.append(
            [
                (ahead, server, share)
                for server in range(servers)
                for ahead in [(server + far) % servers]
                for share in sorted(has[ahead] - has[server])
            ]
        )
        for _, server, share in handed[-1]:
            has[server].add(share)
    size = Fraction(1, servers)
    for step in reversed(handed):
        replay.step(Transfer(b, a, 0, share, size, adds=True) for a, b, share in step)
    for step in handed:
        replay.step(Transfer(a, b, 0, share, size) for a, b, share in step)
    replay.finish(range(servers))
    return replay


def direct(servers: int, nics: int = 1) -> Replay:
    """Shuffle, parameter servers and k NICs on a fabric: NIC t carries part t of every piece."""
    replay = Replay(servers, anywhere(nics))
    buffers = list(product(range(nics), range(servers)))
    fill(replay, buffers)
    size = Fraction(1, nics * servers)
    for adds in (True, False):
        replay.step(
            Transfer(a, b, part, (part, b if adds else a), size, adds=adds)
            for part in range(nics)
            for a, b in product(range(servers), repeat=2)
            if a != b
        )
    replay.finish(buffers)
    return replay


def in_groups(groups: Sequence[int]) -> Replay:
    """Reduce-scatter in groups of servers that differ in one mixed-radix digit, then backwards."""
    strides = [1]
    for size in groups:
        strides.append(strides[-1] * size)
    servers = strides[-1]
    replay = Replay(servers, anywhere())
    return _grouped(replay, groups, strides, lambda _: 0)


def one_thread(bcube: BCube) -> Replay:
    """One thread of BML."""
    replay = Replay(bcube.servers, wired(bcube))
    strides = [bcube.n**level for level in range(bcube.k + 1)]
    return _grouped(replay, [bcube.n] * bcube.k, strides, lambda level: level)


def _grouped(
    replay: Replay, groups: Sequence[int], strides: Sequence[int], nic: Callable[[int], int]
) -> Replay:
    servers = replay.servers
    fill(replay, range(servers))
    order = [level for level, size in enumerate(groups) if size > 1]

    def level_step(level: int, *, adds: bool) -> Iterator[Transfer]:
        stride, size, above = strides[level], groups[level], strides[level + 1]
        for server in range(servers):
            own = server // stride % size
            for value in range(size):
                peer = server + (value - own) * stride
                owner = peer if adds else server
                for buffer in range(servers):
                    if value != own and buffer % above == owner % above:
                        yield Transfer(
                            server, peer, nic(level), buffer, Fraction(1, servers), adds=adds
                        )

    for level in order:
        replay.step(level_step(level, adds=True))
    for level in reversed(order):
        replay.step(level_step(level, adds=False))
    replay.finish(range(servers))
    return replay


def bml(bcube: BCube) -> Replay:
    """Every piece in each step by the in-tree of its root, as in the paper's section 3.2."""
    n, k = bcube.n, bcube.k
    replay = Replay(bcube.servers, wired(bcube))
    buffers = list(product(range(k), range(bcube.servers)))
    fill(replay, buffers)
    size = Fraction(1, k * bcube.servers)

    def agrees(server: int, root: int, levels: Sequence[int]) -> bool:
        one, other = digits(bcube, server), digits(bcube, root)
        return all(one[level] == other[level] for level in levels)

    def exchange(step: int, *, adds: bool) -> Iterator[Transfer]:
        for thread, root in buffers:
            settled = [(thread + turn) % k for turn in range(step)]
            level = (thread + step) % k
            for server in range(bcube.servers):
                if not agrees(server, root, settled):
                    continue
                digit, wanted = digits(bcube, server)[level], digits(bcube, root)[level]
                if digit == wanted:
                    continue
                parent = server + (wanted - digit) * n**level
                sender, receiver = (server, parent) if adds else (parent, server)
                yield Transfer(sender, receiver, level, (thread, root), size, adds=adds)

    for step in range(k):
        replay.step(exchange(step, adds=True))
    for step in reversed(range(k)):
        replay.step(exchange(step, adds=False))
    replay.finish(buffers)
    return replay


def routed(bcube: BCube) -> Replay:
    """Parameter servers on a BCube: each ordered pair's parts, hop by hop, summed at the end."""
    n, k, servers = bcube.n, bcube.k, bcube.servers
    replay = Replay(servers, wired(bcube))
    size = Fraction(1, k * servers)
    buffers = list(product(range(k), range(servers)))
    fill(replay, buffers)
    messages = [
        (part, a, b) for part in range(k) for a, b in product(range(servers), repeat=2) if a != b
    ]

    def carry(what: str, owner: int) -> None:
        """Take a message from every server to every other one; `owner` says whose piece it is."""
        at = {message: message[1] for message in messages}
        for part, a, b in messages:
            key = (part, (a, b)[owner])
            replay.held[a, (what, part, a, b)] = replay.held[a, key]
        for turn in range(k):
            moves = []
            for message, server in at.items():
                level = (message[0] + turn) % k
                wanted = digits(bcube, message[2])[level]
                digit = digits(bcube, server)[level]
                if digit != wanted:
                    peer = server + (wanted - digit) * n**level
                    moves.append(Transfer(server, peer, level, (what, *message), size))
                    at[message] = peer
            replay.step(moves)
        assert all(at[message] == message[2] for message in messages)

    carry("push", 1)
    for server in range(servers):
        for part, a, b in messages:
            if b == server:
                had, new = replay.held[b, (part, b)], replay.held[b, ("push", part, a, b)]
                replay.held[b, (part, b)] = tuple(x + y for x, y in zip(had, new, strict=True))
    replay.reduced = size * sum(b == 0 for _, _, b in messages)  # the same for every server
    carry("pull", 0)
    for part, a, b in messages:
        replay.held[b, (part, a)] = replay.held[b, ("pull", part, a, b)]
    replay.finish(buffers)
    return replay


def whole_tensors(placed: Sequence[int], sizes: Sequence[int], servers: int) -> Replay:
    """Tensor i lives on server placed[i]; all push it there, and pull it."""
    replay = Replay(servers, anywhere())
    fill(replay, range(len(sizes)))
    whole = sum(sizes)
    for adds in (True, False):
        replay.step(
            Transfer(
                *((worker, place) if adds else (place, worker)),
                0,
                tensor,
                Fraction(size, whole),
                adds=adds,
            )
            for tensor, (place, size) in enumerate(zip(placed, sizes, strict=True))
            for worker in range(servers)
            if worker != place
        )
    replay.finish(range(len(sizes)))
    return replay
