"""What a plan costs: phase after phase, each as long as its busiest NIC and its busiest machine.

The one place where plans of synchronisation are priced; it knows no method.

An exchange has three phases. (1) Each node adds up the gradients of its partitions. (2) Each node
pulls its slice of the N-1 others' gradients and adds them. (3) Each node pulls the N-1 other
updated slices. Pulling takes turns: a turn ends when the busiest NIC has, and the next pull is
requested while the last one arrives, so that a phase pays one start-up.

* *rotated*: in each of N-1 turns some node moves a largest slice and none moves more, in either
  direction; so a phase moves ``(N-1)·⌈E/N⌉`` elements through its busiest NIC. That is also the
  most a NIC carries in the whole phase, so waiting for turns costs nothing.
* *same*: in turn t node t serves all others, ``E - s_t`` elements in phase 2 and ``(N-1)·s_t`` in
  phase 3, and N turns add up to ``(N-1)·E`` in either: N times as much.

Through the driver: partial sum i of a level is merged into partial sum ``i mod m`` of the next,
which has m. Partial sums lie on the nodes in turn (i on node ``i mod N``), sum j of the next level
is made where sum j was, and all others that go into it count as sent over the network. Node 0 has
most to receive and to add: at least the mean, ``⌈(b-m)/N⌉`` of b sums that become m, and no node
sends more than that. The driver then collects the last level over its one NIC, adds, and sends the
weights: one copy a node, or (*torrent*) every slice to one node, from which all others fetch it.
Updating the weights takes no time.

The times of phases are exact fractions; their sum is rounded up once, and so is the end of each.

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
        ``local_sum``, ``aggregate`` and ``gather`` of an exchange; ``combine`` (one a level of a
        tree), ``collect`` and ``broadcast``, or ``scatter`` and ``gather``, of a driver.
    sent_bytes : int
        What the busiest NIC sends or receives, turn by turn.
    added_bytes : int
        What the busiest machine adds to what it has.
    """

    name: str
    sent_bytes: int
    added_bytes: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a plan costs.

    Attributes
    ----------
    phases : tuple of Phase
        In the order in which they run.
    ends_ns : tuple of int
        When each ends.
    times_full_transfer : Fraction
        The unrounded time of all, over the time in which one gradient passes one link.
    driver_bytes, driver_added_bytes : int
        What the driver receives and sends together, and what it adds; 0 without a driver.
    """

    phases: tuple[Phase, ...]
    ends_ns: tuple[int, ...]
    times_full_transfer: Fraction
    driver_bytes: int
    driver_added_bytes: int

    @property
    def objective_ns(self) -> int:
        """When the last phase ends."""
        return self.ends_ns[-1]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan.

    Raises
    ------
    NotApplicableError
        If its time, or the bytes of a phase or of the driver, do not fit in 63 bits.
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
