"""Overlap plans, and the simulator that prices every order, ours and the compiler's.

The rank issues node after node. A transfer goes to its channel when the last start of its group has
packed. A wait blocks the rank until the transfer has ended, then unpacks. Every transfer is waited
for, so the rank ends last. Details: docs/overlap.md, "The problem".
Complexity: O(nodes + collectives + readers of tensors).
"""

from dataclasses import dataclass

from planner.families.overlap.problem import Problem, read_until_waits
from planner.model.errors import BrokenConstraintError, InvalidPlanError

# ---
# Plans of a compiled graph: an order of its nodes, and merged collectives.


@dataclass(frozen=True, slots=True)
class Plan:
    """The order in which the rank issues nodes, and merged collectives.

    Parameters
    ----------
    order : tuple of int
        Every node once. Starts of merged collectives are adjacent, and so are their waits.
    merged : tuple of tuples of int
        Collectives of one kind that are one transfer, at least two each; the others go alone.
    """

    order: tuple[int, ...]
    merged: tuple[tuple[int, ...], ...] = ()


def own_order(problem: Problem) -> Plan:
    """Return the graph's original order, with nothing merged."""
    return Plan(tuple(range(len(problem.nodes))))


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer of some collectives, and when it occupies its channel."""

    members: tuple[int, ...]
    channel: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost, schedule and memory of a plan.

    Attributes
    ----------
    makespan_ns : int
        When everything has ended.
    exposed_ns : int
        Time in which no operation of the graph computes: waiting, packing and unpacking.
    peak_bytes : int
        Peak memory.
    peak_at : int
        Place in the order of the peak.
    begins_ns, ends_ns : tuple of int
        When each node occupies the rank, by its number, including packing and unpacking; a wait
        begins when the rank no longer waits.
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
    """Simulate a plan of verified structure."""
    makespan, begins, ends, transfers = _simulated(problem, plan)
    peak, peak_at = peak_memory(problem, plan)
    return Evaluation(
        makespan,
        makespan - problem.computation_ns,
        peak,
        peak_at,
        tuple(begins),
        tuple(ends),
        tuple(transfers),
    )


def makespan_ns(problem: Problem, plan: Plan) -> int:
    """Return the makespan of a plan of verified structure."""
    return _simulated(problem, plan)[0]


def _simulated(problem: Problem, plan: Plan) -> tuple[int, list[int], list[int], list[Transfer]]:
    """Return the makespan, when each node begins and ends, and the transfers."""
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
    return now, begins, ends, transfers  # every transfer has been waited for


def peak_memory(problem: Problem, plan: Plan) -> tuple[int, int]:
    """Return the peak memory of a plan (bytes), and its place in the order."""
    count = len(plan.order)
    place = [0] * count
    for number, node in enumerate(plan.order):
        place[node] = number
    more, less = [0] * (count + 1), [0] * (count + 1)
    read = read_until_waits(problem, (member for group in plan.merged for member in group))
    for number, tensor in enumerate(problem.tensors):
        first = 0 if tensor.producer is None else place[tensor.producer]
        more[first] += tensor.size_bytes
        stays = tensor.kept or (tensor.producer is None and not tensor.readers)
        if not stays:
            readers = (*tensor.readers, *read.get(number, ()))
            less[max((place[reader] for reader in readers), default=first)] += tensor.size_bytes
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


# ---
# Verify plans: each node once, after its dependences; merged collectives adjacent; memory limit.
#
# Complexity: O(nodes + dependences).


def check(problem: Problem, plan: Plan) -> Evaluation:
    """Verify a plan, and return its evaluation.

    Raises
    ------
    InvalidPlanError
        Naming the place, and the nodes.
    """
    check_structure(problem, plan)
    check_memory(problem, plan)
    return evaluate(problem, plan)


def check_structure(problem: Problem, plan: Plan) -> None:
    """Verify that a rank can issue the plan, ignoring memory."""
    count = len(problem.nodes)
    if sorted(plan.order) != list(range(count)):
        raise InvalidPlanError("order", f"expected each of the nodes 0 to {count - 1} once")
    place = [0] * count
    for number, node in enumerate(plan.order):
        place[node] = number
    for node, about in enumerate(problem.nodes):
        for other in about.after:
            if place[other] > place[node]:
                raise InvalidPlanError(
                    f"order[{place[node]}]",
                    f"{about.name} comes before {problem.nodes[other].name}, which it needs",
                )
    taken: set[int] = set()
    for number, group in enumerate(plan.merged):
        _check_group(problem, group, place, taken, f"merged[{number}]")


def _check_group(
    problem: Problem, group: tuple[int, ...], place: list[int], taken: set[int], path: str
) -> None:
    if len(group) < 2:
        raise InvalidPlanError(path, "expected at least two collectives")
    for number, member in enumerate(group):
        if not 0 <= member < len(problem.collectives) or member in taken:
            raise InvalidPlanError(f"{path}[{number}]", "expected each collective at most once")
        taken.add(member)
    members = [problem.collectives[member] for member in group]
    if len({member.kind for member in members}) > 1:
        raise InvalidPlanError(path, "expected collectives of one kind")
    if not problem.kinds[members[0].kind].mergeable:
        raise InvalidPlanError(path, f"{problem.kinds[members[0].kind].name} cannot be merged")
    for what, nodes in (
        ("starts", [member.start for member in members]),
        ("waits", [member.wait for member in members]),
    ):
        places = [place[node] for node in nodes]
        if max(places) - min(places) != len(places) - 1:
            raise InvalidPlanError(path, f"expected the {what} side by side in the order")


def check_memory(problem: Problem, plan: Plan) -> None:
    """Raise `BrokenConstraintError` if a plan of verified structure exceeds the memory limit."""
    limit = problem.memory_limit_bytes
    if limit is None:
        return
    peak, place = peak_memory(problem, plan)
    if peak > limit:
        message = f"{peak} bytes are held here, more than {limit}"
        raise BrokenConstraintError(f"order[{place}]", message, "memory_limit_bytes")
