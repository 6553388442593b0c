"""Lower bound on the makespan of every order and merging: heads, tails and preemptive machines.

Bound: the longest of Jackson's preemptive schedules of the rank and of each channel, where a
collective takes its bytes at the best rate that merging allows. A guessed makespan limits what can
be merged, and is raised while it is refuted. Proof: docs/overlap.md, "Why the bound holds".
Guarantee: valid for every plan and any memory.
Complexity: O(n²) up to `MAX_EXACT` nodes; beyond, chains and loads only, O(n log n).
Source: Carlier, J., "The one-machine sequencing problem" (1982); own for merging.
"""

from collections import Counter
from collections.abc import Sequence

from planner.families.overlap.problem import Kind, Problem, followers
from planner.solving.deadline import Deadline
from planner.solving.jackson import preemptive

MAX_EXACT = 20_000
"""Most nodes for which all ancestors of each node are stored: one bit per pair."""

_STEPS = 24
"""Most bisection steps of the guessed makespan."""


def lower_bound_ns(problem: Problem, deadline: Deadline) -> tuple[int, bool]:
    """Return a lower bound on the makespan, and whether the deadline cut it short."""
    loads = _Loads(problem)
    best = loads.simple()
    if len(problem.nodes) > MAX_EXACT or not problem.collectives:
        return best, False
    heads = _heads(loads.after, loads.work, loads.lag, loads.machine, loads.machines, deadline)
    if heads is None:
        return best, True
    later = followers(loads.after)
    count = len(later)
    mirrored = [[count - 1 - other for other in later[count - 1 - node]] for node in range(count)]
    tails = _heads(
        mirrored,
        loads.work[::-1],
        loads.lag[::-1],
        loads.machine[::-1],
        loads.machines,
        deadline,
    )
    if tails is None:
        return best, True
    tails = tails[::-1]
    best = max(best, loads.jackson(heads, tails, loads.work))
    return max(best, _guessed(problem, loads, heads, tails, best, deadline)), deadline.passed


class _Loads:
    """The graph with an extra node for each transfer, between its start and its wait.

    `machine` is 0 for the rank, or a channel; `work` the least time (ns) on it; `lag` the least
    time (ns) from a node's begin to that of its successors; `transfer` the node of each
    collective's transfer.
    """

    def __init__(self, problem: Problem) -> None:
        channels = {name: number for number, name in enumerate(problem.channels, 1)}
        starts = {it.start: number for number, it in enumerate(problem.collectives)}
        waits = {it.wait: number for number, it in enumerate(problem.collectives)}
        most, count = Counter[int](), Counter[int]()  # bytes and collectives of each kind
        for it in problem.collectives:
            most[it.kind] += it.size_bytes
            count[it.kind] += 1
        self.machines = len(channels) + 1
        self.after: list[list[int]] = []
        self.machine: list[int] = []
        self.work: list[int] = []
        self.lag: list[int] = []
        self.transfer = [0] * len(problem.collectives)
        place = [0] * len(problem.nodes)
        for node, about in enumerate(problem.nodes):
            earlier = [place[other] for other in dict.fromkeys(about.after)]
            if node in waits:
                earlier.append(self.transfer[waits[node]])
            place[node] = self._add(earlier, 0, about.duration_ns, about.duration_ns)
            if node in starts:
                it = problem.collectives[starts[node]]
                kind = problem.kinds[it.kind]
                self.transfer[starts[node]] = self._add(
                    [place[node]],
                    channels[kind.channel],
                    least_ns(kind, it.size_bytes, most[it.kind], count[it.kind]),
                    kind.time_ns(it.size_bytes),
                )

    def _add(self, after: list[int], machine: int, work: int, lag: int) -> int:
        self.after.append(after)
        self.machine.append(machine)
        self.work.append(work)
        self.lag.append(lag)
        return len(self.after) - 1

    def simple(self) -> int:
        """Return the longest load of a machine or the longest chain (ns)."""
        loads = [0] * self.machines
        ends = [0] * len(self.after)
        for node, earlier in enumerate(self.after):
            loads[self.machine[node]] += self.work[node]
            ends[node] = max((ends[other] for other in earlier), default=0) + self.lag[node]
        return max(*loads, *ends)

    def jackson(self, heads: Sequence[int], tails: Sequence[int], work: Sequence[int]) -> int:
        """Return the longest preemptive schedule of a machine (ns)."""
        best = 0
        for machine in range(self.machines):
            jobs = [
                (heads[node], work[node], tails[node])
                for node in range(len(work))
                if self.machine[node] == machine and work[node]
            ]
            best = max(best, preemptive(jobs))
        return best


def least_ns(kind: Kind, size: int, most: int, count: int) -> int:
    """Return the least time of a collective's share of a transfer (ns).

    `most` are the bytes of the `count` collectives that may be merged, this one among them.
    """
    if not kind.mergeable or count == 1:
        return kind.time_ns(size)
    if not size:
        return 0
    sizes = {size, most, *(at for at, _ in kind.times if size <= at <= most)}
    # Time per byte is monotone on a line, so the best rate is at a point. Rounded down: a bound.
    return min(kind.time_ns(at) * size // at for at in sizes)


def _heads(
    after: Sequence[Sequence[int]],
    work: Sequence[int],
    lag: Sequence[int],
    machine: Sequence[int],
    machines: int,
    deadline: Deadline,
) -> list[int] | None:
    """Return the earliest begin of each node; None if time is up.

    From each moment on, a machine must still do all of the node's ancestors on it that cannot begin
    earlier.
    """
    import numpy as np  # here, so that the command line starts without it

    count = len(after)
    heads = [0] * count
    width = (count + 7) // 8
    masks = np.zeros((count, width), dtype=np.uint8)
    works = np.array(work, dtype=np.int64)
    places = np.array(machine)
    on = [(places == number) & (works > 0) for number in range(machines)]
    known = np.zeros(count, dtype=np.int64)
    for node, earlier in enumerate(after):
        if not node % 64 and deadline.passed:
            return None
        if not earlier:
            continue
        mask = masks[node]
        for other in earlier:
            mask |= masks[other]
            mask[other >> 3] |= 128 >> (other & 7)
        head = max(heads[other] + lag[other] for other in earlier)
        # A node without work behind a single node without work inherits that node's head.
        if len(earlier) > 1 or work[node] or machine[node] or work[earlier[0]]:
            chosen = np.unpackbits(mask, count=count).view(bool)
            for number in range(machines):
                mine = np.flatnonzero(chosen & on[number])
                if mine.size:
                    starts = known[mine]
                    order = np.argsort(starts, kind="stable")[::-1]
                    sums = np.cumsum(works[mine[order]])
                    head = max(head, int((starts[order] + sums).max()))
        heads[node] = known[node] = head
    return heads


def _guessed(
    problem: Problem,
    loads: _Loads,
    heads: Sequence[int],
    tails: Sequence[int],
    proven: int,
    deadline: Deadline,
) -> int:
    """Return the largest refuted makespan plus one, or the proven bound."""
    alone = list(loads.work)
    for number, it in enumerate(problem.collectives):
        alone[loads.transfer[number]] = problem.kinds[it.kind].time_ns(it.size_bytes)
    low, high = proven, max(proven, loads.jackson(heads, tails, alone))
    by_kind: dict[int, list[int]] = {}
    for number, it in enumerate(problem.collectives):
        by_kind.setdefault(it.kind, []).append(number)
    for _ in range(_STEPS):
        if high - low <= max(1, low // 10_000) or deadline.passed:
            break
        guess = (low + high) // 2
        work = list(loads.work)
        for kind, members in by_kind.items():
            nodes = [loads.transfer[member] for member in members]
            sizes = [problem.collectives[member].size_bytes for member in members]
            _within(problem.kinds[kind], sizes, nodes, heads, tails, guess, work)
        if loads.jackson(heads, tails, work) > guess:
            low = guess + 1
        else:
            high = guess
    return low


def _within(
    times: Kind,
    sizes: Sequence[int],
    nodes: Sequence[int],
    heads: Sequence[int],
    tails: Sequence[int],
    guess: int,
    work: list[int],
) -> None:
    """Set the least work of a kind's transfers in plans that end by `guess`.

    Two can be merged only if the later head, the longer transfer and the longer tail fit.
    """
    if not times.mergeable:
        return
    import numpy as np

    amount = np.array(sizes, dtype=np.int64)
    begin = np.array([heads[node] for node in nodes], dtype=np.int64)
    end = np.array([tails[node] for node in nodes], dtype=np.int64)
    alone = np.array([times.time_ns(size) for size in sizes], dtype=np.int64)
    for place, node in enumerate(nodes):
        first = np.maximum(begin, begin[place])
        last = np.maximum(end, end[place])
        fits = first + last + np.maximum(alone, alone[place]) <= guess
        fits[place] = True
        work[node] = least_ns(times, sizes[place], int(amount[fits].sum()), int(fits.sum()))
