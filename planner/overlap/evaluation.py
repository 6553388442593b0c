"""What a plan costs: the one simulator that prices every order, ours and the compiler's.

The rank issues node after node. A start hands its transfer to its channel once the last start of
its group has been issued, and packing has been done; a wait blocks the rank until its transfer has
ended, and is followed by unpacking. As every transfer is waited for, the rank ends last.
Complexity: O(nodes + collectives + readers of tensors).
"""

from dataclasses import dataclass

from planner.overlap.plan import Plan
from planner.overlap.problem import Problem

__all__ = ["Evaluation", "Transfer", "evaluate", "peak_memory"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """When a transfer occupies its channel.

    Attributes
    ----------
    members : tuple of int
        The collectives it carries.
    channel : str
        What it occupies.
    start_ns, end_ns : int
        Its time.
    """

    members: tuple[int, ...]
    channel: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a plan costs.

    Attributes
    ----------
    makespan_ns : int
        When everything has ended.
    exposed_ns : int
        How much of it no operation of the graph computes: waiting, packing, and the end.
    peak_bytes : int
        Most memory held at once.
    peak_at : int
        Place in the order where that is.
    begins_ns, ends_ns : tuple of int
        When each node, by its number, occupies the rank, with packing and unpacking; a wait begins
        when the rank no longer waits.
    transfers : tuple of Transfer
        In the order of their starts.
    """

    makespan_ns: int
    exposed_ns: int
    peak_bytes: int
    peak_at: int
    begins_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]
    transfers: tuple[Transfer, ...]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Simulate a plan whose structure has been checked."""
    nodes, collectives = problem.nodes, problem.collectives
    starts = {it.start: number for number, it in enumerate(collectives)}
    waits = {it.wait: number for number, it in enumerate(collectives)}
    group: dict[int, tuple[int, ...]] = {m: members for members in plan.merged for m in members}
    unstarted = {members: len(members) for members in plan.merged}
    done: dict[int, int] = {}
    free = dict.fromkeys(problem.channels, 0)
    begins, ends = [0] * len(nodes), [0] * len(nodes)
    transfers: list[Transfer] = []
    now = 0
    for node in plan.order:
        begins[node] = now
        if node in starts:
            number = starts[node]
            members = group.get(number, (number,))
            if len(members) > 1:
                now += collectives[number].pack_ns
                unstarted[members] -= 1
            if not unstarted.get(members):
                kind = problem.kinds[collectives[number].kind]
                begin = max(now, free[kind.channel])
                size = sum(collectives[member].size_bytes for member in members)
                end = free[kind.channel] = begin + kind.time_ns(size)
                transfers.append(Transfer(members, kind.channel, begin, end))
                done.update(dict.fromkeys(members, end))
        elif node in waits:
            number = waits[node]
            begins[node] = now = max(now, done[number])
            if number in group:
                now += collectives[number].unpack_ns
        else:
            now += nodes[node].duration_ns
        ends[node] = now
    peak, peak_at = peak_memory(problem, plan)
    return Evaluation(
        now,  # every transfer has been waited for
        now - problem.computation_ns,
        peak,
        peak_at,
        tuple(begins),
        tuple(ends),
        tuple(transfers),
    )


def peak_memory(problem: Problem, plan: Plan) -> tuple[int, int]:
    """Return the most memory a plan holds at once, and at which place of its order."""
    count = len(plan.order)
    place = [0] * count
    for number, node in enumerate(plan.order):
        place[node] = number
    more, less = [0] * (count + 1), [0] * (count + 1)
    for tensor in problem.tensors:
        first = 0 if tensor.producer is None else place[tensor.producer]
        more[first] += tensor.size_bytes
        stays = tensor.kept or (tensor.producer is None and not tensor.readers)
        if not stays:
            less[max((place[reader] for reader in tensor.readers), default=first)] += (
                tensor.size_bytes
            )
    for members in plan.merged:
        chosen = [problem.collectives[member] for member in members]
        first = min(place[it.start] for it in chosen)
        waits = [place[it.wait] for it in chosen]
        packed = sum(it.pack_bytes for it in chosen)
        unpacked = sum(it.unpack_bytes for it in chosen)
        more[first] += packed
        more[min(waits)] += unpacked
        less[max(waits)] += packed + unpacked
    held = peak = peak_at = 0
    for number in range(count):
        held += more[number]
        if held > peak:
            peak, peak_at = held, number
        held -= less[number]
    return peak, peak_at
