"""The course of a step, as a plan has it and as it was measured: what re-plans start from.

Problem. Ranks measure what happened; a problem says what was expected. Both are compared, and a
problem is made of what was measured. No rank may come to another answer than the others.

Method. What a transfer takes of the network is the least time of all ranks: the last one to begin
it waits for nobody. A gradient is ready, and a pass has ended, when they are on the slowest rank.
Of several steps medians count. Start-ups and bandwidth are fitted to the transfers by least
squares, each weighed by the inverse of its expected time, so that sums count, drawn a little
towards the start-ups as they were: of transfers of one size nothing tells the two apart.
Computation is moved to where gradients became ready: in between, in proportion.

Guarantee. Whole numbers and fractions only: the same on every rank. What was expected gives the
problem there was, but for rounding; transfers that all take f times as long give 1/f of the
bandwidth if their start-ups are small. Needs no torch.

Complexity. O(events of a window), O(batches · steps), O(ops). Source. Own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from statistics import median_low
from typing import NamedTuple, TypeAlias

from planner import caramel, iteration
from planner.caramel import scenarios as of_gradients
from planner.caramel.outlook import solve_for as gradients_for
from planner.graphs import Graph
from planner.iteration import scenarios as of_iterations
from planner.iteration.outlook import solve_for as iterations_for
from planner.replanning import Reading
from planner.runtime.measuring.trace import Event
from planner.scenarios import Outlook, Scenario

__all__ = ["Course", "Plan", "Planned", "Problem", "changed", "merged", "read", "rows_of"]

_PULL = Fraction(1, 20)
"""How much the start-ups as they were count, against the transfers."""

_NEAR = Outlook(
    (
        (Scenario(), Fraction(2)),
        (Scenario(bandwidth=Fraction(9, 10)), Fraction(1)),
        (Scenario(bandwidth=Fraction(11, 10)), Fraction(1)),
    )
)
"""What the network may be, if it was measured to be something."""

_LEAST, _MOST = Fraction(1, 64), Fraction(64)
"""Bounds of a change of the bandwidth, or of start-ups, that one window may tell of."""

_UNKNOWN = -(2**62)


class Course(NamedTuple):
    """How a step went.

    Attributes
    ----------
    transfers_ns : tuple of int
        What each batch takes of the network.
    ready_ns : tuple of int
        When all gradients of each are there, from the start of the backward pass.
    forward_ns, backward_ns : int
        What the passes take, without waiting for transfers.
    """

    transfers_ns: tuple[int, ...]
    ready_ns: tuple[int, ...]
    forward_ns: int
    backward_ns: int


Plan: TypeAlias = caramel.Plan | iteration.Plan
Problem: TypeAlias = caramel.Problem | iteration.Problem


class Planned(NamedTuple):
    """A problem with a plan of it, which `planner.runtime.attach` takes as it is.

    Attributes
    ----------
    problem : caramel.Problem or iteration.Problem
        What is planned for.
    plan : caramel.Plan or iteration.Plan
        The plan; to be followed, all its transfers are all-reduces.
    """

    problem: Problem
    plan: Plan

    @property
    def course(self) -> Course:
        """What is expected of a step."""
        times, graph = self._evaluated.times, self.problem.graph
        orders = self.plan.backward_orders[0], self.plan.forward_order
        backward, forward = (sum(graph.ops[op].duration_ns for op in order) for order in orders)
        return Course(
            tuple(time.end_ns - time.start_ns for time in times),
            tuple(time.ready_ns for time in times),
            forward,
            backward,
        )

    @property
    def step_ns(self) -> int:
        """What a step is expected to last."""
        return self._evaluated.iteration_ns

    @property
    def _evaluated(self) -> caramel.Evaluation | iteration.Evaluation:
        if isinstance(self.problem, caramel.Problem):
            assert isinstance(self.plan, caramel.Plan)
            return caramel.evaluate(self.problem, self.plan)
        assert isinstance(self.plan, iteration.Plan)
        return iteration.evaluate(self.problem, self.plan)

    def under(self, scenario: Scenario) -> "Planned":
        """Return the same plan on another network."""
        if isinstance(self.problem, caramel.Problem):
            return self._replace(problem=of_gradients.under(self.problem, scenario))
        return self._replace(problem=of_iterations.under(self.problem, scenario))

    def planned(self, time_limit: float | None) -> "Planned":
        """Return the same problem with a new plan, or with its old one if there is no new one.

        It is the best on average if the network is a tenth faster or slower than it was measured
        to be, too: what was measured is not so sure, and where transfers are just hidden the best
        plan for one number is a bad one for the next. Computation runs in the order in which it
        does.
        """
        order = (*self.plan.backward_orders[0], *self.plan.forward_order)
        names = tuple(self.problem.graph.ops[op].name for op in order)
        plan: Plan | None
        if isinstance(self.problem, caramel.Problem):
            asked = replace(self.problem, op_order=names)
            plan = gradients_for(asked, _NEAR, time_limit=time_limit)[0].plan
        else:
            alike = replace(self.problem, op_order=names, modes=("replicated",))
            plan = iterations_for(alike, _NEAR, time_limit=time_limit)[0].plan
        return self if plan is None else self._replace(plan=plan)


def read(expected: Course, measured: Course) -> Reading:
    """Return what was measured over what was expected, as `planner.replanning` reads it."""
    pairs = {
        "transfers": (sum(expected.transfers_ns), sum(measured.transfers_ns)),
        "readiness": (sum(expected.ready_ns), sum(measured.ready_ns)),
        "forward pass": (expected.forward_ns, measured.forward_ns),
        "backward pass": (expected.backward_ns, measured.backward_ns),
    }
    return {
        name: Fraction(took, thought)
        for name, (thought, took) in pairs.items()
        if took > 0 and thought > 0
    }


def changed(job: Planned, measured: Course) -> tuple[Planned, Scenario]:
    """Return the plan with a problem of what was measured, and how the network has changed."""
    expected = job.course
    # What is left of transfers whose start-ups cost nothing is what bandwidth changes.
    sent = job.under(Scenario(startup=Fraction(0))).course.transfers_ns
    begun = [max(whole - rest, 0) for whole, rest in zip(expected.transfers_ns, sent, strict=True)]
    scenario = _network(begun, sent, measured.transfers_ns)
    moved = job.under(scenario)
    graph = _retimed(job.problem.graph, job.plan, expected, measured)
    return moved._replace(problem=replace(moved.problem, graph=graph)), scenario


def rows_of(events: Iterable[Event], steps: Sequence[int], batches: int) -> list[list[int]]:
    """Return what one rank measured in some steps, a row each; of all ranks the least counts.

    What the slowest rank says is negative. What is not known is less than anything.
    """
    transfers = {step: [_UNKNOWN] * batches for step in steps}
    ready = {step: [_UNKNOWN] * batches for step in steps}
    passes: dict[tuple[str, int], Event] = {}
    waits: list[tuple[int, int]] = []
    for event in events:
        if event.kind == "wait":
            waits.append((event.start_ns, event.end_ns))
        elif event.step not in transfers or event.batch >= batches:
            continue
        elif event.kind == "transfer":
            transfers[event.step][event.batch] = event.end_ns - event.start_ns
        elif event.kind == "ready":
            ready[event.step][event.batch] = event.start_ns
        elif event.kind in ("forward", "backward"):
            passes[event.kind, event.step] = event
    rows = []
    for step in steps:
        own = [passes.get((kind, step)) for kind in ("forward", "backward")]
        start = own[1].start_ns if own[1] is not None else None
        late = [
            _UNKNOWN if start is None or moment == _UNKNOWN else -max(moment - start, 0)
            for moment in ready[step]
        ]
        rows.append([*transfers[step], *late, *(_computing(event, waits) for event in own)])
    return rows


def merged(rows: Sequence[Sequence[int]]) -> Course | None:
    """Return the course of steps, of which the least of all ranks is known; None if none is."""
    known = [row for row in rows if _UNKNOWN not in row]
    if not known:
        return None
    values = [median_low(column) for column in zip(*known, strict=True)]
    batches = len(values) // 2 - 1
    late = [-value for value in values[batches:]]
    return Course(tuple(values[:batches]), tuple(late[:batches]), late[-2], late[-1])


def _computing(event: Event | None, waits: Iterable[tuple[int, int]]) -> int:
    """Return what a pass took without waiting, below 0."""
    if event is None:
        return _UNKNOWN
    waited = sum(
        max(min(end, event.end_ns) - max(start, event.start_ns), 0) for start, end in waits
    )
    return -max(event.end_ns - event.start_ns - waited, 1)


def _network(begun: Sequence[int], sent: Sequence[int], took: Sequence[int]) -> Scenario:
    """Return by what start-ups and bandwidth are multiplied if these transfers took so long.

    Least squares of ``a·begun + b·sent - took``: two equations in two unknowns.
    """
    xx = xy = yy = xz = yz = Fraction(0)
    for x, y, z in zip(begun, sent, took, strict=True):
        if x + y:
            weight = Fraction(1, x + y)
            xx += weight * x * x
            xy += weight * x * y
            yy += weight * y * y
            xz += weight * x * z
            yz += weight * y * z
    if not xx + yy:
        return Scenario()
    pull = _PULL * (xx + yy)
    xx, xz = xx + pull, xz + pull
    determinant = xx * yy - xy * xy
    startup = (xz * yy - yz * xy) / determinant if yy else xz / xx
    startup = _bounded(startup)
    slower = _bounded((yz - startup * xy) / yy) if yy else Fraction(1)
    return Scenario(startup=startup, bandwidth=1 / slower)


def _bounded(factor: Fraction) -> Fraction:
    return Fraction(round(1000 * min(max(factor, _LEAST), _MOST)), 1000)


def _retimed(graph: Graph, plan: Plan, expected: Course, measured: Course) -> Graph:
    """Return the graph whose gradients are ready, and whose passes end, when they were seen to."""
    seen = [*zip(expected.ready_ns, measured.ready_ns, strict=True)]
    seen.append((expected.backward_ns, measured.backward_ns))
    reached, marks = 0, {0: 0}
    for thought, moment in sorted(seen):
        reached = max(reached, moment) if thought else 0
        marks[thought] = reached
    forward = {0: 0, expected.forward_ns: measured.forward_ns if expected.forward_ns else 0}
    times: dict[int, int] = {}
    for order, known in ((plan.backward_orders[0], marks), (plan.forward_order, forward)):
        ends = accumulate((graph.ops[op].duration_ns for op in order), initial=0)
        places = pairwise(_moved(ends, list(known.items())))
        times.update((op, end - start) for op, (start, end) in zip(order, places, strict=True))
    ops = (replace(op, duration_ns=times[index]) for index, op in enumerate(graph.ops))
    return Graph(tuple(ops), graph.parameters)


def _moved(ends: Iterable[int], marks: Sequence[tuple[int, int]]) -> list[int]:
    """Return where rising times lie if marks lie elsewhere: in between, in proportion."""
    moved, place = [], 0
    for end in ends:
        while place + 2 < len(marks) and end > marks[place + 1][0]:
            place += 1
        if len(marks) == 1:  # all take no time
            moved.append(end)
            continue
        (before, first), (after, last) = marks[place : place + 2]
        moved.append(first + round(Fraction((end - before) * (last - first), after - before)))
    return moved
