"""Plans as searches see them: what each transfer carries, and what that costs at a glance.

A load lists (parameter, bytes) of one transfer; where in the parameter the bytes lie does not
matter for its time. The searches compare lists of loads by `LoadPricer`, whose values the returned
plan must confirm when it is checked and priced (`planner.caramel.evaluation`).

Complexity: O(parts) a list of loads.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from planner.caramel.problem import Group, OpOrder, Part, Plan, Problem
from planner.caramel.windows import Windows
from planner.costs import DepthCost, TransferCost
from planner.robustness import NOMINAL, Step, Strain, end_under, strained

__all__ = ["Load", "LoadPricer", "groups_of", "loads_of", "plan_of"]

Load = tuple[tuple[int, int], ...]
"""Pairs (parameter, bytes) of one transfer."""

MANY, MANY_EACH = 1000, 4
"""Transfers that every plan may have, or so many a parameter, before searches look at fewer."""

FEW_EACH = 32
"""Transfers of each parameter beyond which searches look at fewer plans, even below `MANY`: a huge
parameter can be cut into a thousand pieces, each as good as the next."""


class LoadPricer:
    """Prices lists of loads for one set of windows and one cost."""

    def __init__(self, windows: Windows, cost: TransferCost) -> None:
        self.windows = windows
        self._cost_ns = cost.cost_ns
        self._known: dict[int, int] = {}

    @property
    def many(self) -> int:
        """Transfers of a plan up to which searches look at as many as they ever do."""
        return max(MANY_EACH * len(self.windows.sizes), MANY)

    def looks(self, budget: int, loads: Sequence[Load]) -> int:
        """Return how many plans like one to look at, of a budget.

        Each takes longer the more transfers there are, and there are more of them: fewer by both.
        """
        full = min(self.many, FEW_EACH * len(self.windows.sizes))
        most = max(full, len(loads))
        return budget * full**2 // most**2

    def cost_ns(self, size: int) -> int:
        """Return the time of one transfer of `size` bytes."""
        if size not in self._known:
            self._known[size] = self._cost_ns(size)
        return self._known[size]

    def rate(self, size: int) -> Fraction:
        """Return the time per byte of one transfer of `size` bytes."""
        return Fraction(self.cost_ns(size), size)

    def iteration_ns(self, loads: Sequence[Load]) -> int:
        """Return what an iteration lasts."""
        return self.under(NOMINAL, loads)

    def under(self, strain: Strain, loads: Sequence[Load]) -> int:
        """Return what an iteration lasts under a strain."""
        return end_under(strain, self._steps(loads), self.windows.compute_ns)

    def strained(self, loads: Sequence[Load]) -> tuple[int, ...]:
        """Return what an iteration lasts under each strain."""
        return strained(list(self._steps(loads)), self.windows.compute_ns)

    def rank(self, loads: Sequence[Load]) -> tuple[int, int, int]:
        """Return what the best of several lists has least: time, then transfers, then parts."""
        return self.iteration_ns(loads), len(loads), sum(map(len, loads))

    def _steps(self, loads: Sequence[Load]) -> Iterator[Step]:
        heads, tails = self.windows.heads, self.windows.tails
        for load in loads:
            if len(load) == 1:  # most are, where there are thousands of transfers
                ((j, size),) = load
                yield Step(heads[j], self.cost_ns(size), tails[j])
                continue
            head = tail = size = 0
            for j, part in load:
                head = max(head, heads[j])
                tail = max(tail, tails[j])
                size += part
            yield Step(head, self.cost_ns(size), tail)


def plan_of(problem: Problem, order: OpOrder, loads: Sequence[Load]) -> Plan:
    """Return the plan that sends these loads, each at the depth that suits it best."""
    sizes = [parameter.size_bytes for parameter in problem.graph.parameters]
    groups = groups_of(loads, sizes, problem.element_bytes, problem.cost)
    return Plan(groups, (order.backward,), order.forward)


def groups_of(
    loads: Sequence[Load], sizes: Sequence[int], element_bytes: int, cost: TransferCost
) -> tuple[Group, ...]:
    """Return transfers that carry these loads, each at the depth that suits it best.

    Parameters
    ----------
    loads : sequence of Load
        In transfer order.
    sizes : sequence of int
        Bytes of each parameter.
    element_bytes : int
        Parameters are cut at multiples of so many bytes.
    cost : TransferCost
        What a transfer costs.
    """
    reached: dict[int, int] = {}
    groups = []
    for load in loads:
        together: dict[int, int] = {}
        for j, size in load:
            together[j] = together.get(j, 0) + size
        parts = []
        for j, size in together.items():
            if size % element_bytes:  # only the end of a parameter is no whole number of elements
                parts.append(Part(j, sizes[j] - size, sizes[j]))
                continue
            start = reached.get(j, 0)
            reached[j] = start + size
            parts.append(Part(j, start, start + size))
        size = sum(together.values())
        depth = cost.best_depth(size) if isinstance(cost, DepthCost) else 1
        groups.append(Group(tuple(parts), depth))
    return tuple(groups)


def loads_of(plan: Plan) -> list[Load]:
    """Return what each transfer of a plan carries."""
    return [
        tuple((part.parameter, part.stop - part.start) for part in group.parts)
        for group in plan.groups
    ]
