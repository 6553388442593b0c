"""Merging of collectives: neighbours by due date that can all start before any is needed.

Nodes of a merged graph that are issued together become one unit.
Complexity: O(n log n) per merging, O(nodes + dependences + readers) for its units.
"""

from collections.abc import Iterator, Mapping, Sequence

from planner.families.overlap.list_schedule import Rules, Units, due_keys, topological
from planner.families.overlap.problem import (
    Problem,
    followers,
    is_acyclic,
    read_until_waits,
)


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
    later = followers(sorted_after)
    if groups and not is_acyclic(sorted_after, later):
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
    read = read_until_waits(problem, grouped)
    for place, tensor in enumerate(problem.tensors):
        using = {unit[reader] for reader in (*tensor.readers, *read.get(place, ()))}
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
        later,
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


def unmerged(problem: Problem) -> Units:
    """Return the units of a problem with nothing merged: its nodes."""
    units = contract(problem, ())
    assert units is not None  # the nodes of a problem have no cycle
    return units


Groups = tuple[tuple[int, ...], ...]


def merge_order(problem: Problem, units: Units) -> tuple[list[int], list[int]]:
    """Return each node's place with early starts and late waits, and collectives by due date.

    `units` are those with nothing merged, so that they equal the nodes.
    """
    count = len(units.missing)
    far = Rules(reserve=0.0, lead=0.0)
    keys, need = due_keys(units, range(count), far)
    span = float(sum(units.busy_ns) + sum(units.transfer_ns) + 1)
    early = list(keys)
    for node in reversed(range(count)):
        if units.wait_of[node] >= 0:
            early[node] -= span
        early[node] = min(
            [early[node], *(early[other] for other in units.later[node] if not units.waits[other])]
        )
    place = [0] * count
    for number, unit in enumerate(topological(units, early)):
        place[unit] = number
    by_need = sorted(
        range(len(problem.collectives)),
        key=lambda c: (need[problem.collectives[c].wait], problem.collectives[c].start),
    )
    return place, by_need


Level = tuple[int, int]
"""Powers of 2 that limit merging: a merged transfer carries at most its kind's bytes / 2^first.

Only collectives of at most this limit / 2^second are merged: a small one saves as much start-up as
a large one, and takes less time to pack."""


def groups_up_to(
    problem: Problem, place: Sequence[int], by_need: Sequence[int], levels: Mapping[int, Level]
) -> Groups:
    """Merge neighbours of one kind by due date, up to the sizes of the kind's level.

    `place` and `by_need` come from `merge_order`. Kinds without a level stay unmerged.
    """
    total = mergeable_bytes(problem)
    most = {kind: total[kind] >> power for kind, (power, _) in levels.items()}
    small = {kind: most[kind] >> power for kind, (_, power) in levels.items()}
    opened: dict[int, list[int]] = {}
    held: dict[int, tuple[int, int, int]] = {}
    closed: list[tuple[int, ...]] = []
    for number in by_need:
        it = problem.collectives[number]
        if it.size_bytes > small.get(it.kind, -1):
            continue
        start, wait = place[it.start], place[it.wait]
        members = opened.setdefault(it.kind, [])
        size, last, first = held.get(it.kind, (0, -1, 1 << 62))
        last, first = max(last, start), min(first, wait)
        if members and (size + it.size_bytes > most[it.kind] or last >= first):
            closed.append(tuple(members))
            members.clear()
            size, last, first = 0, start, wait
        members.append(number)
        held[it.kind] = (size + it.size_bytes, last, first)
    closed += [tuple(members) for members in opened.values()]
    return tuple(members for members in closed if len(members) > 1)


MAX_LEVEL = 10
"""Largest first power of a `Level` that is tried."""

SMALL = 4
"""Second power of a `Level`, where only small collectives are merged."""


def mergings_by_size(problem: Problem) -> Iterator[Groups]:
    """Yield mergings whose transfers carry up to their kind's bytes, half of them, and so on."""
    place, by_need = merge_order(problem, unmerged(problem))
    kinds = mergeable_bytes(problem)
    for level in same_levels():
        yield groups_up_to(problem, place, by_need, dict.fromkeys(kinds, level))


def same_levels() -> Iterator[Level]:
    """Yield the levels that are tried for all kinds alike: all collectives, then small ones."""
    for small in (0, SMALL):
        yield from ((power, small) for power in range(MAX_LEVEL))


def mergeable_bytes(problem: Problem) -> dict[int, int]:
    """Return the bytes of all collectives of each kind that can be merged."""
    total: dict[int, int] = {}
    for it in problem.collectives:
        if problem.kinds[it.kind].mergeable:
            total[it.kind] = total.get(it.kind, 0) + it.size_bytes
    return total


def split_or_join(
    groups: Groups, by_need: Sequence[int], kinds: Sequence[int], pick: float, cut: float
) -> Groups:
    """Return another merging: one transfer joined with the next of its kind, or cut in two.

    `pick` and `cut`, from 0 to 1, choose the transfer and where it is cut; a cut of 0 joins.
    """
    lists: dict[int, list[tuple[int, ...]]] = {}
    group_of = {member: members for members in groups for member in members}
    for number in by_need:
        members = group_of.get(number, (number,))
        if members[0] == number:
            lists.setdefault(kinds[number], []).append(members)
    transfers = [(kind, place) for kind, items in lists.items() for place in range(len(items))]
    if not transfers:
        return groups
    kind, place = transfers[min(int(pick * len(transfers)), len(transfers) - 1)]
    items = lists[kind]
    if not cut:
        items[place : place + 2] = [
            tuple(m for members in items[place : place + 2] for m in members)
        ]
    elif len(items[place]) > 1:
        at = 1 + min(int(cut * (len(items[place]) - 1)), len(items[place]) - 2)
        items[place : place + 1] = [items[place][:at], items[place][at:]]
    return tuple(m for items in lists.values() for m in items if len(m) > 1)
