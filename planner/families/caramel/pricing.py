"""Loads: the contents of transfers as searches see them, and their fast pricing.

A load lists (parameter, bytes) of one transfer; which bytes of the parameter they are does not
change its time. Searches compare lists of loads by `LoadPricer`;
`planner.families.caramel.evaluation` must confirm the value of the returned plan.

Complexity: O(parts) per list of loads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from planner.families.caramel.problem import OpOrder, Plan, Problem
from planner.families.caramel.windows import Windows
from planner.model.costs import DepthCost, TransferCost
from planner.solving.tie_break import NOMINAL, Delay, Step, delayed_makespan, delayed_makespans
from planner.solving.transfers import Kind, Part, Transfer

Load = tuple[tuple[int, int], ...]
"""Pairs (parameter, bytes) of one transfer."""

MANY, MANY_EACH = 1000, 4
"""Transfers per plan, or per parameter, that searches allow before they examine fewer plans."""

FEW_EACH = 32
"""Transfers per parameter beyond which searches examine fewer plans, even below `MANY`: a huge
parameter can be cut into a thousand equally good pieces."""


class LoadPricer:
    """Prices lists of loads for one set of windows and one cost."""

    def __init__(self, windows: Windows, cost: TransferCost) -> None:
        self.windows = windows
        self._cost_ns = cost.cost_ns
        self._known: dict[int, int] = {}

    @property
    def many(self) -> int:
        """Largest number of transfers for which searches may use their full budget."""
        return max(MANY_EACH * len(self.windows.sizes), MANY)

    def looks(self, budget: int, loads: Sequence[Load]) -> int:
        """Return the number of plans of this length that a search may examine within a budget.

        It falls quadratically: with more transfers a price takes longer, and neighbours are more.
        """
        full = min(self.many, FEW_EACH * len(self.windows.sizes))
        most = max(full, len(loads))
        return budget * full**2 // most**2

    def cost_ns(self, size: int) -> int:
        """Return the time of one transfer of `size` bytes (ns)."""
        if size not in self._known:
            self._known[size] = self._cost_ns(size)
        return self._known[size]

    def iteration_ns(self, loads: Sequence[Load]) -> int:
        """Return the iteration time (ns)."""
        return self.under(NOMINAL, loads)

    def under(self, delay: Delay, loads: Sequence[Load]) -> int:
        """Return the iteration time under a delay scenario (`delay`)."""
        return delayed_makespan(delay, self.steps(loads), self.windows.compute_ns)

    def delayed_makespans(self, loads: Sequence[Load]) -> tuple[int, ...]:
        """Return the iteration time under each delay scenario."""
        return delayed_makespans(list(self.steps(loads)), self.windows.compute_ns)

    def rank(self, loads: Sequence[Load]) -> tuple[int, int, int]:
        """Return the key by which lists are compared: time, then transfers, then parts."""
        return self.iteration_ns(loads), len(loads), sum(map(len, loads))

    def steps(self, loads: Sequence[Load]) -> Iterator[Step]:
        """Yield each transfer's release time, duration and tail."""
        heads, tails = self.windows.heads, self.windows.tails
        for load in loads:
            if len(load) == 1:  # most loads, if there are thousands of transfers
                ((j, size),) = load
                yield Step(heads[j], self.cost_ns(size), tails[j])
                continue
            head = tail = size = 0
            for j, part in load:
                head = max(head, heads[j])
                tail = max(tail, tails[j])
                size += part
            yield Step(head, self.cost_ns(size), tail)


def merged_loads(pricer: LoadPricer, loads: Sequence[Load], most_ns: int) -> list[Load]:
    """Return the loads with neighbours merged wherever the iteration stays within `most_ns`.

    Greedy from the first to the last: a merged transfer must end by the latest time at which the
    next transfer may start; earlier merges do not change this time. O(parts).
    """
    steps = list(pricer.steps(loads))
    latest = [most_ns]  # at which the link must be free for the transfers from each place on
    for _, lasts, tail in reversed(steps):
        latest.append(min(latest[-1], most_ns - tail) - lasts)
    latest.reverse()
    made: list[dict[int, int]] = []
    end = free = head = tail = size = 0  # of the last load made; free: when the link is free
    for load, step, then in zip(loads, steps, latest[1:], strict=True):
        own = sum(part for _, part in load)
        start = max(free, head, step.ready_ns)
        both = start + pricer.cost_ns(size + own)
        if made and both <= min(then, most_ns - max(tail, step.tail_ns)):
            end, head, tail = both, max(head, step.ready_ns), max(tail, step.tail_ns)
            size += own
        else:
            made.append({})
            free, (head, lasts, tail), size = end, step, own
            end = max(free, head) + lasts
        for j, part in load:
            made[-1][j] = made[-1].get(j, 0) + part
    return [tuple(parts.items()) for parts in made]


def is_free(problem: Problem, plan: Plan) -> bool:
    """Return whether a plan's price depends on its loads and one op order only."""
    plain = len(plan.backward_orders) == 1 and not (plan.barrier or plan.late) and plan.traffic == 1
    delayed = any(group.not_before_ns for group in plan.groups)
    return plain and not delayed and problem.target is None and problem.interference.is_none


def plan_of(problem: Problem, order: OpOrder, loads: Sequence[Load]) -> Plan:
    """Return the plan that sends these loads, each at its cheapest depth."""
    sizes = [parameter.size_bytes for parameter in problem.graph.parameters]
    groups = groups_of(loads, sizes, problem.element_bytes, problem.cost)
    return Plan(groups, (order.backward,), order.forward)


def groups_of(
    loads: Iterable[Load],
    sizes: Sequence[int],
    element_bytes: int,
    cost: TransferCost | None = None,
    kind: Kind = "all_reduce",
) -> tuple[Transfer, ...]:
    """Return transfers of one kind that carry these loads, each at its cheapest depth.

    The pieces of a parameter leave in the order of its bytes. The last bytes of a parameter that
    ends inside an element belong to one piece, at any place.
    """
    reached: dict[int, int] = {}
    groups = []
    for load in loads:
        together: dict[int, int] = {}
        for j, size in load:
            together[j] = together.get(j, 0) + size
        parts = []
        for j, size in together.items():
            if size % element_bytes:
                parts.append(Part(j, sizes[j] - size, sizes[j]))
                continue
            start = reached.get(j, 0)
            reached[j] = start + size
            parts.append(Part(j, start, start + size))
        size = sum(together.values())
        depth = cost.best_depth(size) if isinstance(cost, DepthCost) else 1
        groups.append(Transfer(tuple(parts), depth, kind=kind))
    return tuple(groups)


def loads_of(plan: Plan) -> list[Load]:
    """Return the load of each transfer of a plan."""
    return [
        tuple((part.parameter, part.stop - part.start) for part in group.parts)
        for group in plan.groups
    ]


def merged(problem: Problem, plan: Plan, place: int) -> Plan | None:
    """Return the plan with a group and the next group sent together, or None if there are gaps."""
    first, second = plan.groups[place : place + 2]
    parts = joined(first.parts, second.parts)
    if parts is None:
        return None
    size = first.size_bytes + second.size_bytes
    depth = problem.cost.best_depth(size) if isinstance(problem.cost, DepthCost) else 1
    both = Transfer(parts, depth, max(first.not_before_ns, second.not_before_ns))
    return replace(plan, groups=(*plan.groups[:place], both, *plan.groups[place + 2 :]))


def joined(first: Sequence[Part], second: Sequence[Part]) -> tuple[Part, ...] | None:
    """Return the parts of two transfers, one part per parameter, or None if there are gaps."""
    parts: dict[int, Part] = {}
    for part in (*first, *second):
        own = parts.get(part.parameter, part)
        if own is not part and own.stop != part.start and part.stop != own.start:
            return None
        start, stop = min(own.start, part.start), max(own.stop, part.stop)
        parts[part.parameter] = Part(part.parameter, start, stop)
    return tuple(parts.values())
