"""Cost of a plan: sequential phases, each as long as its busiest NIC and busiest machine.

The one place where plans of synchronisation are priced; it depends on no method. Phase times are
exact fractions. The end of each phase is rounded up once. Updating weights takes no time. The
formulas are derived in docs/bigdl.md, "Why phases cost what they do".

Complexity: O(1) for an exchange, O(levels) for a driver.
Source: Venkataraman, Ding and Ermolin, section "Communications in BigDL"; Apache Spark.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

from planner.bigdl.plan import Driver, Exchange, Plan
from planner.bigdl.problem import Problem
from planner.bigdl.slices import largest_slice
from planner.errors import NotApplicableError
from planner.validation import MAX_TOTAL, shown

__all__ = ["Evaluation", "Phase", "evaluate"]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a plan.

    Attributes
    ----------
    name : str
        ``local_sum``, ``aggregate`` and ``gather`` of an exchange; of a driver ``combine`` (one for
        each level of the tree), ``collect``, then ``broadcast``, or ``scatter`` and ``gather``.
    sent_bytes : int
        Bytes that the busiest NIC sends or receives, summed over turns.
    added_bytes : int
        Bytes that the busiest machine adds.
    """

    name: str
    sent_bytes: int
    added_bytes: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost of a plan.

    Attributes
    ----------
    phases : tuple of Phase
        In the order in which they run.
    ends_ns : tuple of int
        The end of each phase.
    times_full_transfer : Fraction
        The unrounded total time, divided by the time of one gradient over one link.
    driver_bytes, driver_added_bytes : int
        Bytes that the driver receives and sends together, and bytes that it adds; 0 without a
        driver.
    """

    phases: tuple[Phase, ...]
    ends_ns: tuple[int, ...]
    times_full_transfer: Fraction
    driver_bytes: int
    driver_added_bytes: int

    @property
    def objective_ns(self) -> int:
        """End of the last phase."""
        return self.ends_ns[-1]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan.

    Raises
    ------
    NotApplicableError
        If the time, or the bytes of a phase or of the driver, do not fit in 63 bits.
    """
    network, size = problem.network, problem.gradient_bytes
    passing, added = 0, 0
    if isinstance(plan, Exchange):
        phases = _exchange(problem, plan)
    else:
        phases = _driver(problem, plan)
        copies = 1 if plan.torrent else problem.nodes
        passing, added = (plan.levels[-1] + copies) * size, (plan.levels[-1] - 1) * size
    _fits(passing, "the bytes that pass the driver")
    moved = max(max(phase.sent_bytes, phase.added_bytes) for phase in phases)
    _fits(moved, "the bytes of a phase")
    ends = list(
        accumulate(
            network.time(phase.sent_bytes, phase.added_bytes, phase.sent_bytes > 0)
            for phase in phases
        )
    )
    _fits(-int(-ends[-1] // 1), "the time of a synchronisation")
    return Evaluation(
        phases,
        tuple(-int(-end // 1) for end in ends),
        ends[-1] / network.time(size),
        passing,
        added,
    )


def _fits(amount: int, what: str) -> None:
    if amount > MAX_TOTAL:
        raise NotApplicableError("elements", f"{what} must fit in 63 bits, got {shown(amount)}")


def _exchange(problem: Problem, plan: Exchange) -> tuple[Phase, ...]:
    size, others = problem.gradient_bytes, problem.nodes - 1
    pulled = others * largest_slice(problem.elements, problem.nodes) * problem.element_bytes
    sent = pulled if plan.order == "rotated" else others * size
    return (
        Phase("local_sum", 0, (problem.partitions_per_node - 1) * size),
        Phase("aggregate", sent, pulled),
        Phase("gather", sent, 0),
    )


def _driver(problem: Problem, plan: Driver) -> tuple[Phase, ...]:
    size, nodes = problem.gradient_bytes, problem.nodes
    phases = []
    for before, after in pairwise(plan.levels):
        each, more = divmod(before, after)
        received = (each - 1) * -(-after // nodes) + -(-more // nodes)
        phases.append(Phase("combine", received * size, received * size))
    collected = plan.levels[-1]
    phases.append(Phase("collect", collected * size, (collected - 1) * size))
    if plan.torrent:
        passed = (nodes - 1) * largest_slice(problem.elements, nodes) * problem.element_bytes
        phases += [Phase("scatter", size, 0), Phase("gather", passed, 0)]
    else:
        phases.append(Phase("broadcast", nodes * size, 0))
    return tuple(phases)
