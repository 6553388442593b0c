"""What a program costs, message by message: the closed forms are held against it.

A step lasts as long as its busiest NIC sends or receives, plus the time in which the busiest rank
adds what arrives. At depth d the data is cut into d parts, each one step behind the part before.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

from planner.families.collectives import Program
from planner.families.collectives.program import sizes_of
from planner.families.collectives.symmetric import SymmetricProgram
from planner.model.clusters import Cluster
from planner.model.network import Network
from planner.model.topologies import BCube, Rails
from planner.model.validation import integer

Key = tuple[str, int, int]
"""In or out, a rank and its NIC."""


class Load(NamedTuple):
    """The load of a step: bytes by rank and NIC; bytes added by rank."""

    sent: Counter[tuple[int, int]]
    received: Counter[tuple[int, int]]
    added: Counter[int]


def loads(program: Program, elements: int, element_bytes: int = 1) -> list[Load]:
    """Return the load of every step, for a tensor of `elements` elements.

    For a symmetric program with chunks of one size it is that of rank 0 only.
    """
    layout = program.layout(elements, element_bytes)
    steps = [Load(Counter(), Counter(), Counter()) for _ in range(program.steps)]
    alike = isinstance(program, SymmetricProgram) and elements % program.chunks == 0
    for rank in range(1 if alike else program.ranks):
        for message in program.sends(rank):
            if length := layout.span(message.first, message.stop - message.first):
                steps[message.step].sent[rank, message.link] += length
        for message in program.receives(rank):
            if length := layout.span(message.first, message.stop - message.first):
                steps[message.step].received[rank, message.link] += length
                steps[message.step].added[rank] += length * message.adds
    return steps


def time_of(
    program: Program,
    networks: Sequence[Network],
    elements: int,
    element_bytes: int = 1,
    depth: int = 1,
) -> int:
    """Return the time of a program (ns), rounded up once.

    `networks` are the speed and start-up cost of each NIC of a rank; one if all are alike. The
    first one gives the time of adding a byte. At a depth of d, d parts follow each other.
    """
    integer(depth, "depth", minimum=1)
    parts = min(depth, elements)
    if not parts:
        return 0
    each = list(networks) * program.links if len(networks) == 1 else list(networks)
    sizes = sizes_of(elements, parts)
    kinds = {size: loads(program, size, element_bytes) for size in {*sizes}}
    time, nothing = Fraction(0), Counter[Any]()
    for moment in range(program.steps + parts - 1):
        under_way = [
            kinds[sizes[part]][moment - part]
            for part in range(max(0, moment - program.steps + 1), min(parts, moment + 1))
        ]
        sent, received, added = (sum(them, nothing) for them in zip(*under_way, strict=True))
        loaded = [*sent.items(), *received.items()]
        time += max((each[link].step(size) for (_, link), size in loaded), default=0)
        time += max(added.values(), default=0) * each[0].reduce_ns_per_byte
    return ceil(time)


class Half(NamedTuple):
    """Steps, start-up cost (ns) and time per byte of the gradient (ns)."""

    steps: int
    startup_ns: int
    ns_per_byte: Fraction


def half_of(program: Program, cluster: Cluster) -> Half:
    """Add up the messages of one half on a cluster: the slower of NICs and links counts."""
    topology, nic = cluster.topology, cluster.nic
    rails = topology if isinstance(topology, Rails) else None
    # On a switch every message is cut in as many pieces as a machine has NICs.
    stripes = 1 if rails or isinstance(topology, BCube) else nic.per_machine
    steps, startup, rate = 0, 0, Fraction(0)
    for _, together in groupby(sorted(program.messages()), lambda message: message.step):
        near, far, partners = Counter[Key](), Counter[Key](), defaultdict[Key, set[int]](set)
        everything = Fraction(0)
        for one in together:
            size = Fraction(one.stop - one.first, program.chunks)
            everything += size
            inside = rails is not None and not one.link
            ends: list[Key] = [("out", one.sender, one.link), ("in", one.receiver, one.link)]
            for end in ends:
                (near if inside else far)[end] += size / stripes  # type: ignore[assignment]
            if not inside:
                partners[ends[0]].add(one.receiver)
        times = [max(far.values(), default=0) / nic.bytes_per_s]
        if rails:
            times.append(max(near.values(), default=0) / rails.link_bytes_per_s)
        if cluster.shared_bytes_per_s is not None:
            times.append(everything / cluster.shared_bytes_per_s)
        rate += 10**9 * max(times)
        startup += nic.startup_ns if far or not rails else rails.link_startup_ns
        startup += nic.message_ns * max((len(them) - 1 for them in partners.values()), default=0)
        steps += 1
    return Half(steps, startup, rate)
