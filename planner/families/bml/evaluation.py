"""Evaluation of a plan: its time, its steps, its busiest NIC, and the bytes of its transfers.

A step takes as long as its busiest NIC needs to send or receive and its busiest server to add
(`planner.model.network`). With one round the steps are sequential: aggregation, then broadcast.
With R rounds each piece is cut into R parts, and part j takes every step j steps later, so links
carry several parts, up and down, in each step. Layers are sequential. The sum is rounded up once.

Complexity: without failures O(k) for each distinct layer size. Otherwise O(D·k·N), D being the
steps of the aggregation, whatever R is: each of the 2D hops of a part begins, changes from longer
to shorter parts and ends once, and steps between these events are equal. Source: own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeGuard

from planner.families.bml.problem import Problem, Stage, Transfer
from planner.families.bml.schedule import Schedule
from planner.families.bml.trees import Plan, TreePlan, busiest_share
from planner.families.collectives.layout import EvenLayout, Layout
from planner.model.network import Network
from planner.solving.deadline import NEVER, Deadline, until_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_Carried: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Bytes that each NIC sends, and receives, in a step; shape (k, N)."""


class Hop(NamedTuple):
    """Bytes that NICs carry, shape (k, N), and that servers add, shape (N,), in concurrent hops."""

    sent: "NDArray[np.int64]"
    received: "NDArray[np.int64]"
    added: "NDArray[np.int64]"

    def plus(self, other: "Hop", times: int) -> "Hop":
        """Return the sum of these hops and `times` another one; -1 takes the other one away."""
        return Hop(*(own + times * more for own, more in zip(self, other, strict=True)))

    def time(self, network: Network) -> Fraction:
        """Return the time of a step with these hops (ns)."""
        return network.step(self.busiest, int(self.added.max()))

    @property
    def reverse(self) -> "Hop":
        """The broadcast's step that sends these bytes back, and adds nothing."""
        return Hop(self.received, self.sent, 0 * self.added)

    @property
    def busiest(self) -> int:
        """The bytes of the busiest NIC in one direction."""
        return max(int(self.sent.max()), int(self.received.max()))


def loads(plan: Plan, layout: Layout, deadline: Deadline = NEVER) -> Iterator[Hop]:
    """Yield each step of the aggregation; TimeUpError at the deadline.

    O(k·N) array operations a step and thread of a `Schedule`; O(trees·N) for a `TreePlan`.
    """
    if isinstance(plan, TreePlan):
        steps = _of_trees(plan, layout, deadline)
    else:
        steps = _of_schedule(plan, layout, deadline)
    for sent, received in steps:
        yield Hop(sent, received, received.sum(axis=0))


def _nothing(plan: Plan) -> _Carried:
    import numpy as np

    shape = plan.bcube.k, plan.bcube.servers
    return np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)


def _of_trees(plan: TreePlan, layout: Layout, deadline: Deadline) -> Iterator[_Carried]:
    import numpy as np

    sizes = np.diff(layout.starts(np.arange(plan.pieces + 1, dtype=np.int64)))
    for step in range(plan.steps):
        deadline.check()
        sent, received = _nothing(plan)
        _, sender, receiver, level, piece = plan.rows_of_step(step).T
        np.add.at(sent, (level, sender), sizes[piece])
        np.add.at(received, (level, receiver), sizes[piece])
        yield sent, received


def _of_schedule(schedule: Schedule, layout: Layout, deadline: Deadline) -> Iterator[_Carried]:
    import numpy as np

    bcube = schedule.bcube
    n, k, count = bcube.n, bcube.k, bcube.servers
    dead, blocked = np.array(sorted(schedule.dead), dtype=np.int64), schedule.blocked_rows
    servers = np.arange(count, dtype=np.int64)
    held = np.zeros((k, count), dtype=np.int64)  # digits t … t+w-1 as a number
    sizes = np.tile(np.diff(layout.starts(np.arange(k + 1) * count))[:, None], count)
    for w in range(k):
        if w in schedule.half_steps:
            yield _half_step(schedule, layout, w)
        sent, received = _nothing(schedule)
        length: int = n ** (k - 1 - w)
        bounds = np.arange(n ** (w + 1) + 1, dtype=np.int64) * length
        before = sizes.copy()
        for t in range(k):
            deadline.check()
            # Step w of thread t is on level t + w (mod k). A server keeps the slice numbered by its
            # own digits so far, sends the rest of its slice, and receives n - 1 slices of the size
            # it keeps.
            level = (t + w) % k
            held[t] = held[t] * n + servers // int(n**level) % n
            sizes[t] = np.diff(layout.starts(t * count + bounds))[held[t]]
            sent[level] = before[t] - sizes[t]
            received[level] = (n - 1) * sizes[t]
            # Remove what dead servers would have sent; transfers to dead servers are blocked.
            stride: int = n**level
            first = dead - dead // stride % n * stride
            peers = (first[:, None] + np.arange(n) * stride).reshape(-1)
            np.subtract.at(received[level], peers, sizes[t, peers])
        # Blocked transfers are not sent; the size of each is its receiver's slice.
        thread, _, sender, receiver = blocked[blocked[:, 1] == w].T
        level_of, size = (thread + w) % k, sizes[thread, receiver]
        np.subtract.at(sent, (level_of, sender), size)
        np.subtract.at(received, (level_of, receiver), size)
        sent[:, dead] = 0
        received[:, dead] = 0
        yield sent, received


def _half_step(schedule: Schedule, layout: Layout, w: int) -> _Carried:
    import numpy as np

    sent, received = _nothing(schedule)
    rows = schedule.part_rows
    thread, _, sender, level, via, offset, length = rows[rows[:, 1] == w].T
    first = thread * schedule.pieces + offset
    sizes = layout.starts(first + length) - layout.starts(first)
    np.add.at(sent, (level, sender), sizes)
    np.add.at(received, (level, via), sizes)
    return sent, received


def time_ns(problem: Problem, plan: Plan, deadline: Deadline = NEVER) -> int:
    """Return the time of a plan (ns); TimeUpError at the deadline."""
    network, time = problem.network, Fraction(0)
    for size, times in Counter(problem.chunks).items():
        elements = size // problem.element_bytes
        if is_intact(plan):
            way = busiest_intact(plan, plan.layout(elements, problem.element_bytes))
            time += times * sum(network.step(*carried) for carried in way)
        elif elements:
            time += times * _chunk(problem, plan, elements, deadline)
    return ceil(time)


def is_intact(plan: Plan) -> TypeGuard[Schedule]:
    """Return whether a plan is Algorithm 1 without failures, which has a price in closed form."""
    return isinstance(plan, Schedule) and not plan.changed and plan.rounds == 1


def busiest_intact(schedule: Schedule, layout: Layout) -> list[tuple[int, int]]:
    """Return the bytes of the busiest NIC, and those added by the busiest server, in each step.

    The first slice of a thread is one of its largest (`EvenLayout`), and thread 0 has most
    elements. So n - 1 largest slices arrive at the owner of that slice, which also owns the first
    slices of all threads.
    """
    n, k, pieces = schedule.bcube.n, schedule.bcube.k, schedule.pieces
    # Threads with equal numbers of elements are cut alike, and there are at most two such numbers.
    alike = Counter(layout.span(thread * pieces, pieces) for thread in range(k))
    example = {layout.span(thread * pieces, pieces): thread for thread in range(k)}
    steps = []
    for w in range(k):
        length = int(n ** (k - 1 - w))
        first = layout.span(0, length)
        all_firsts = sum(
            count * layout.span(example[size] * pieces, length) for size, count in alike.items()
        )
        steps.append(((n - 1) * first, (n - 1) * all_firsts))
    return steps + [(carried, 0) for carried, _ in reversed(steps)]


def hops_of(plan: Plan, layout: Layout, deadline: Deadline = NEVER) -> list[Hop]:
    """Return the hops of a part of a gradient, in order."""
    up = list(loads(plan, layout, deadline))
    return up + [hop.reverse for hop in reversed(up)]


def _chunk(problem: Problem, plan: Plan, elements: int, deadline: Deadline) -> Fraction:
    """Return the time of one layer, or of a gradient that is not cut into layers."""
    network, width = problem.network, problem.element_bytes
    if plan.rounds == 1:
        steps = loads(plan, plan.layout(elements, width), deadline)
        return sum((up.time(network) + up.reverse.time(network) for up in steps), Fraction(0))
    quotient, longer = divmod(elements, plan.rounds)
    # The first `longer` parts have one element more than the others. Part j is on hop step - j, so
    # these parts begin, go over to the shorter ones, and end, hop by hop, after this many steps:
    short = hops_of(plan, plan.layout(quotient, width), deadline)
    changes = [(plan.rounds, short, -1)]
    if longer:
        long = hops_of(plan, plan.layout(quotient + 1, width), deadline)
        changes += [(0, long, 1), (longer, long, -1), (longer, short, 1)]
    else:
        changes += [(0, short, 1)]
    count = 2 * plan.steps
    under_way = short[0].plus(short[0], -1)
    time, before, each = Fraction(0), 0, Fraction(0)
    for step in sorted({begin + hop for begin, _, _ in changes for hop in range(count)}):
        deadline.check()
        time += (step - before) * each
        for begin, hops, times in changes:
            if 0 <= step - begin < count:
                under_way = under_way.plus(hops[step - begin], times)
        before, each = step, under_way.time(network)
    return time


# ---
# The cost of a plan, step by step.


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The busiest NIC of one step."""

    stage: Stage
    step: int
    pieces: int  # sent or received by this NIC


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost of a plan.

    Attributes
    ----------
    time_ns : int
        Time of the whole synchronisation.
    load : Fraction
        Load of the busiest NIC in one direction, summed over all steps, in units of the gradient.
    steps : tuple of StepLoad
        The steps of the aggregation, then those of the broadcast.
    """

    time_ns: int
    load: Fraction
    steps: tuple[StepLoad, ...]


def evaluate(problem: Problem, plan: Plan, deadline: Deadline = NEVER) -> Evaluation:
    """Return the cost of a plan; TimeUpError at the deadline."""
    return Evaluation(
        time_ns(problem, plan, deadline),
        busiest_load(plan, deadline),
        steps_of(plan, deadline),
    )


def steps_of(plan: Plan, deadline: Deadline = NEVER) -> tuple[StepLoad, ...]:
    """Return the busiest NIC of every step, those of the aggregation first."""
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    units = EvenLayout(plan.threads, plan.pieces, plan.left_out, in_use, 1)  # a byte for a piece
    if is_intact(plan):
        up = [sent for sent, _ in busiest_intact(plan, units)[: plan.steps]]
    else:
        up = [step.busiest for step in loads(plan, units, deadline)]
    stages: tuple[tuple[Stage, list[int]], ...] = ("aggregate", up), ("broadcast", up[::-1])
    return tuple(
        StepLoad(stage, step, pieces) for stage, most in stages for step, pieces in enumerate(most)
    )


def busiest_load(plan: Plan, deadline: Deadline = NEVER) -> Fraction:
    """Return the load of the busiest NIC in one direction, in units of the gradient.

    In the broadcast a piece loads the opposite direction of the links of its aggregation.
    """
    if is_intact(plan):
        servers, levels = plan.bcube.servers, plan.bcube.k
        return Fraction(2 * (servers - 1), levels * servers)
    if isinstance(plan, TreePlan):
        return busiest_share(plan.branch_rows[:, 1:], plan.shares, deadline)
    layout = plan.layout(plan.total_weight, 1)
    return Fraction(int(both_ways(plan, layout, deadline).max()), plan.total_weight)


def both_ways(plan: Plan, layout: Layout, deadline: Deadline = NEVER) -> "NDArray[np.int64]":
    """Return the bytes sent plus received in the aggregation, shape (k, N).

    This is each NIC's load in one direction over aggregation and broadcast together.
    """
    import numpy as np

    both: NDArray[np.int64] = np.zeros((plan.bcube.k, plan.bcube.servers), dtype=np.int64)
    for step in loads(plan, layout, deadline):
        both += step.sent + step.received
    return both


# ---
# A plan's transfers with their byte ranges, as an executor needs them.
#
# Layers are in the order in which back-propagation finishes them, last layer first. Each layer is
# cut into pieces of its own, so that its transfers can start while earlier layers' gradients are
# computed. With R rounds a layer is cut into R parts first, and each part into pieces. Transfers
# without bytes are left out.
#
# Complexity: O(1) a transfer and part. Source: own.


class Listed(NamedTuple):
    """One transfer of one part of one layer."""

    transfer: Transfer  # executed `part` steps later than its `step` says
    layer: int
    part: int
    offset_bytes: int  # in the whole gradient, layer 0 first
    length_bytes: int


def parts_of(problem: Problem, rounds: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield layer, part, first byte and number of elements of every non-empty part."""
    first = problem.size_bytes
    for layer in reversed(range(len(problem.chunks))):
        first -= problem.chunks[layer]
        quotient, rest = divmod(problem.chunks[layer] // problem.element_bytes, rounds)
        start = first
        for part in range(rounds):
            elements = quotient + (part < rest)
            if elements:
                yield layer, part, start, elements
            start += elements * problem.element_bytes


def listed(
    problem: Problem, plan: Plan, server: int, deadline: Deadline = NEVER
) -> Iterator[Listed]:
    """Yield the transfers that a server sends, by layer, part and step.

    TimeUpError at the deadline.
    """
    import numpy as np

    transfers = list(until_deadline(plan.transfers(server), deadline))
    firsts = np.array(
        [move.thread * plan.pieces + move.offset for move in transfers], dtype=np.int64
    )
    behind = firsts + np.array([move.length for move in transfers], dtype=np.int64)
    for layer, part, first, elements in parts_of(problem, plan.rounds):
        layout = plan.layout(elements, problem.element_bytes)
        starts, stops = layout.starts(firsts).tolist(), layout.starts(behind).tolist()
        for transfer, start, stop in until_deadline(
            zip(transfers, starts, stops, strict=True), deadline
        ):
            if start < stop:
                yield Listed(transfer, layer, part, first + start, stop - start)
