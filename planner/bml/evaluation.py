"""What a plan costs: the one place where time is computed, whoever made the plan.

A step lasts as its busiest NIC takes to carry what it has to, and as the busiest server takes to
add what arrives (`planner.network`). With one round the steps come one after the other, first
those of the aggregation, then those of the broadcast. With R rounds each piece is cut in R parts,
and part j takes every step j steps later: in each step links carry several parts, on their ways up
and down. Layers are synchronised one after the other. The sum of all steps is rounded up once.

Complexity. Without failures O(k) a layer of a size of its own. Else O(D·k·N) for each of about 6·D
different sets of parts that are under way at once, D being the steps of the aggregation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from planner.bml.layout import EvenLayout, Layout
from planner.bml.loads import Loads, loads
from planner.bml.plan import Stage
from planner.bml.problem import Problem
from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan
from planner.network import Network

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Evaluation", "StepLoad", "evaluate"]


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The busiest NIC of one step.

    Attributes
    ----------
    stage, step
        Which.
    pieces : int
        Pieces it sends or receives.
    bytes : int
        The most bytes a NIC sends or receives, all layers together.
    """

    stage: Stage
    step: int
    pieces: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a plan costs.

    Attributes
    ----------
    time_ns : int
        Of the whole synchronisation.
    load : Fraction
        What the busiest NIC carries in one direction, in all steps together, × the gradient.
    steps : tuple of StepLoad
        The aggregation, then the broadcast.
    """

    time_ns: int
    load: Fraction
    steps: tuple[StepLoad, ...]


def evaluate(problem: Problem, plan: Schedule | TreePlan) -> Evaluation:
    """Return what `plan` costs."""
    sizes = Counter(size // problem.element_bytes for size in problem.chunks)
    layouts = {size: plan.layout(size, problem.element_bytes) for size in sizes}
    units = _units(plan)
    if isinstance(plan, Schedule) and not plan.changed and plan.rounds == 1:
        ways = [_intact(plan, layout) for layout in layouts.values()]
        time = sum(
            times * sum(problem.network.step(*carried) for carried in way)
            for times, way in zip(sizes.values(), ways, strict=True)
        )
        bytes_ = [
            sum(times * way[place][0] for times, way in zip(sizes.values(), ways, strict=True))
            for place in range(2 * plan.steps)
        ]
        pieces = [carried for carried, _ in _intact(plan, units)]
        load = Fraction(sum(pieces), plan.threads * plan.pieces)
        return Evaluation(ceil(time), load, _steps(plan, pieces, bytes_))
    time = sum(
        times * _chunk(problem, plan, elements) for elements, times in sizes.items() if elements
    )
    pieces = _busiest(plan, [(1, units)])
    bytes_ = _busiest(plan, [(times, layouts[size]) for size, times in sizes.items()])
    return Evaluation(ceil(time), _load(plan), _steps(plan, pieces, bytes_))


def _units(plan: Schedule | TreePlan) -> EvenLayout:
    """Return the layout in which every piece that is in use is one byte."""
    count = plan.threads * plan.pieces
    return EvenLayout(count, plan.left_out, count - len(plan.left_out), 1)


def _intact(schedule: Schedule, layout: Layout) -> list[tuple[int, int]]:
    """Return what the busiest NIC carries, and the busiest server adds, in each step.

    Long pieces come first. So the first slice of thread 0 is a largest one, and n - 1 such slices
    arrive at whoever it belongs to; and the first slices of all threads belong to one server.
    """
    n, k = schedule.bcube.n, schedule.bcube.k
    found = []
    for w in range(k):
        length = int(n ** (k - 1 - w))
        firsts = [layout.span(thread * schedule.pieces, length) for thread in range(k)]
        found.append(((n - 1) * firsts[0], (n - 1) * sum(firsts)))
    return found + [(carried, 0) for carried, _ in reversed(found)]


def _chunk(problem: Problem, plan: Schedule | TreePlan, elements: int) -> Fraction:
    """Return the time of one layer, or of a gradient that is not cut into layers."""
    quotient, long_rounds = divmod(elements, plan.rounds)
    # The ways of a part, on the way up and down; the first `long_rounds` parts have one more.
    of_long, of_short = (
        _ways(plan, plan.layout(size, problem.element_bytes)) if size else []
        for size in (quotient + 1 if long_rounds else 0, quotient)
    )
    count = 2 * plan.steps
    windows: Counter[tuple[int, int, int]] = Counter()
    for step in range(plan.rounds + count - 1):
        first, last = max(0, step - plan.rounds + 1), min(count - 1, step)
        # In this step part j is on hop step - j: the long parts are those ahead.
        windows[first, last, min(max(step - long_rounds, first - 1), last)] += 1
    time = Fraction(0)
    for (first, last, cut), times in windows.items():
        under_way = of_short[first : cut + 1] + of_long[cut + 1 : last + 1]
        time += times * _window(problem.network, under_way)
    return time


def _ways(plan: Schedule | TreePlan, layout: Layout) -> list[tuple[Loads, bool]]:
    """Return what NICs carry on the way up, where what arrives is added, and on the way down."""
    up = list(loads(plan, layout))
    down = [Loads(one.received, one.sent) for one in reversed(up)]
    return [(one, True) for one in up] + [(one, False) for one in down]


def _window(network: Network, under_way: Sequence[tuple[Loads, bool]]) -> Fraction:
    """Return the time of a step in which these hops are taken at once."""
    if not under_way:
        return Fraction(0)
    sent = sum(one.sent for one, _ in under_way)
    received = sum(one.received for one, _ in under_way)
    added = sum(one.received.sum(axis=0) for one, adds in under_way if adds)
    carried = max(_most(sent), _most(received))
    return network.step(carried, _most(added))


def _most(amounts: "NDArray[np.int64] | int") -> int:
    """Return the largest amount; nothing at all is 0."""
    return amounts if isinstance(amounts, int) else int(amounts.max(initial=0))


def _busiest(plan: Schedule | TreePlan, layouts: Sequence[tuple[int, Layout]]) -> list[int]:
    """Return what the busiest NIC carries in each step, of layouts that occur so many times."""
    total = [
        [(times * one.sent, times * one.received) for one in loads(plan, layout)]
        for times, layout in layouts
    ]
    up = [
        max(_most(sum(sent for sent, _ in same)), _most(sum(received for _, received in same)))
        for same in zip(*total, strict=True)
    ]
    return up + up[::-1]


def _load(plan: Schedule | TreePlan) -> Fraction:
    """Return what the busiest NIC carries in one direction, × the gradient.

    On its way down a piece loads the other direction of the links of its way up.
    """
    if isinstance(plan, TreePlan):
        carried: Counter[tuple[int, int]] = Counter()
        for tree, share in zip(plan.trees, plan.shares, strict=True):
            for _, sender, receiver, level in tree.branches:
                carried[sender, level] += share  # type: ignore[assignment]
                carried[receiver, level] += share  # type: ignore[assignment]
        return max(map(Fraction, carried.values()), default=Fraction(0))
    units = _units(plan)
    return Fraction(
        _most(sum(one.sent + one.received for one in loads(plan, units))), units.elements
    )


def _steps(
    plan: Schedule | TreePlan, pieces: Sequence[int], bytes_: Sequence[int]
) -> tuple[StepLoad, ...]:
    names: list[tuple[Stage, int]] = [
        (stage, step) for stage in ("aggregate", "broadcast") for step in range(plan.steps)
    ]
    return tuple(StepLoad(*name, *one) for name, *one in zip(names, pieces, bytes_, strict=True))
