"""The graph with merged collectives: nodes that are issued together become one unit.

Complexity: O(nodes + dependences + readers).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.families.overlap.evaluation import Plan
from planner.families.overlap.problem import Problem, cycle_of, followers


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


def contract(problem: Problem, merged: Sequence[Sequence[int]]) -> Units | None:
    """Return the units of a problem under a merging; None if they form a cycle."""
    count, collectives = len(problem.nodes), problem.collectives
    groups = tuple(tuple(sorted(members, key=lambda m: collectives[m].start)) for members in merged)
    head = list(range(count))  # the node that stands for the unit
    for members in groups:
        for member in members:
            head[collectives[member].start] = collectives[members[0]].start
            head[collectives[member].wait] = collectives[members[0]].wait
    number = [-1] * count
    members_of: list[list[int]] = []
    for node in range(count):
        if head[node] == node:
            number[node] = len(members_of)
            members_of.append([])
    unit = [number[head[node]] for node in range(count)]
    for node in range(count):
        members_of[unit[node]].append(node)
    size = len(members_of)
    after: list[set[int]] = [set() for _ in range(size)]
    for node, about in enumerate(problem.nodes):
        mine = unit[node]
        for other in about.after:
            if unit[other] != mine:
                after[mine].add(unit[other])
    sorted_after = [sorted(earlier) for earlier in after]
    if groups and cycle_of(sorted_after):
        return None
    busy = [problem.nodes[nodes[0]].duration_ns for nodes in members_of]
    transfer, channel, wait_of = [0] * size, [-1] * size, [-1] * size
    waits, peaks, allocates, releases = [False] * size, [0] * size, [0] * size, [0] * size
    channels = {name: place for place, name in enumerate(problem.channels)}
    grouped = {member for members in groups for member in members}
    alone = [(member,) for member in range(len(collectives)) if member not in grouped]
    for members in (*groups, *alone):
        chosen = [collectives[member] for member in members]
        start, wait = unit[chosen[0].start], unit[chosen[0].wait]
        kind = problem.kinds[chosen[0].kind]
        transfer[start] = kind.time_ns(sum(it.size_bytes for it in chosen))
        channel[start] = channel[wait] = channels[kind.channel]
        wait_of[start], waits[wait] = wait, True
        if len(members) > 1:
            busy[start] = sum(it.pack_ns for it in chosen)
            busy[wait] = sum(it.unpack_ns for it in chosen)
            packed = sum(it.pack_bytes for it in chosen)
            allocates[start], releases[wait] = packed, packed
            peaks[wait] = sum(it.unpack_bytes for it in chosen)
    reads: list[list[int]] = [[] for _ in range(size)]
    readers, freed, resident = [], [], 0
    for place, tensor in enumerate(problem.tensors):
        using = {unit[reader] for reader in tensor.readers}
        if tensor.producer is None:
            resident += tensor.size_bytes
        else:
            allocates[unit[tensor.producer]] += tensor.size_bytes
        for reader in using:
            reads[reader].append(place)
        readers.append(len(using))
        freed.append(0 if tensor.kept else tensor.size_bytes)
        if not using and not tensor.kept and tensor.producer is not None:
            releases[unit[tensor.producer]] += tensor.size_bytes
    return Units(
        members_of,
        [len(earlier) for earlier in sorted_after],
        followers(sorted_after),
        busy,
        transfer,
        channel,
        wait_of,
        waits,
        allocates,
        peaks,
        releases,
        reads,
        readers,
        freed,
        resident,
        groups,
    )
