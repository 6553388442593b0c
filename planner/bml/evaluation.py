"""What there is to say of a plan: its time, its steps, and its busiest NIC.

Complexity. That of `planner.bml.pricing`, and as much for the layers all together.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from planner.bml.layout import EvenLayout, Layout
from planner.bml.loads import loads
from planner.bml.plan import Stage
from planner.bml.pricing import busiest_intact, is_intact, time_ns
from planner.bml.problem import Problem
from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Evaluation", "StepLoad", "busiest_load", "evaluate", "steps_of"]


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
    return Evaluation(time_ns(problem, plan), busiest_load(plan), steps_of(problem, plan))


def steps_of(problem: Problem, plan: Schedule | TreePlan) -> tuple[StepLoad, ...]:
    """Return the busiest NIC of every step, those of the aggregation first."""
    sizes = Counter(size // problem.element_bytes for size in problem.chunks)
    layouts = [(times, plan.layout(size, problem.element_bytes)) for size, times in sizes.items()]
    pieces, bytes_ = (_busiest(plan, parts) for parts in ([(1, _units(plan))], layouts))
    names: list[tuple[Stage, int]] = [
        (stage, step) for stage in ("aggregate", "broadcast") for step in range(plan.steps)
    ]
    return tuple(StepLoad(*name, *one) for name, *one in zip(names, pieces, bytes_, strict=True))


def busiest_load(plan: Schedule | TreePlan) -> Fraction:
    """Return what the busiest NIC carries in one direction, × the gradient.

    On its way down a piece loads the other direction of the links of its way up.
    """
    if is_intact(plan):
        servers, levels = plan.bcube.servers, plan.bcube.k
        return Fraction(2 * (servers - 1), levels * servers)
    if isinstance(plan, TreePlan):
        carried: dict[tuple[int, int], Fraction] = {}
        for tree, share in zip(plan.trees, plan.shares, strict=True):
            for _, sender, receiver, level in tree.branches:
                for nic in ((sender, level), (receiver, level)):
                    carried[nic] = carried.get(nic, Fraction(0)) + share
        return max(carried.values(), default=Fraction(0))
    layout = plan.layout(plan.total_weight, 1)
    both = sum(one.sent + one.received for one in loads(plan, layout))
    return Fraction(_most(both), plan.total_weight)


def _units(plan: Schedule | TreePlan) -> EvenLayout:
    """Return the layout in which every piece that is in use is one byte."""
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    return EvenLayout(plan.threads, plan.pieces, plan.left_out, in_use, 1)


def _most(amounts: "NDArray[np.int64] | int") -> int:
    """Return the largest amount; nothing at all is 0."""
    return amounts if isinstance(amounts, int) else int(amounts.max(initial=0))


def _busiest(plan: Schedule | TreePlan, layouts: Sequence[tuple[int, Layout]]) -> list[int]:
    """Return what the busiest NIC carries in each step, of layouts that occur so many times."""
    if is_intact(plan):
        ways = [(times, busiest_intact(plan, layout)) for times, layout in layouts]
        return [sum(times * way[step][0] for times, way in ways) for step in range(2 * plan.steps)]
    total = [
        [(times * one.sent, times * one.received) for one in loads(plan, layout)]
        for times, layout in layouts
    ]
    up = [
        max(_most(sum(sent for sent, _ in same)), _most(sum(received for _, received in same)))
        for same in zip(*total, strict=True)
    ]
    return up + up[::-1]
