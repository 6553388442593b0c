"""Price, check and schedule batches, independently of all solvers; no other module does this.

The makespan follows the recurrence comm_end(k) = comm_end(k-1) + Ts + T(k), comp_end(k) =
max(comm_end(k), comp_end(k-1)) + C(k). Pull and push are computed separately, not by time reversal.
Under contention (`planner.model.contention`) the simulator gives the durations for the recurrence.

Complexity: O(L) for checks, otherwise O(B) for B batches. Source: iBatch, Eqs. 1 to 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from planner.families.ibatch.problem import Direction, Plan, Problem
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.validation import shown
from planner.solving.simulator import TimedTransfer, simulate
from planner.solving.tie_break import Delay, Step, delayed_makespan
from planner.solving.timeline import Interval, Kind, Timeline, busy_ns


class BatchTimes(NamedTuple):
    """When one batch communicates and computes (ns from the start of the phase)."""

    transfer_start_ns: int
    startup_end_ns: int
    transfer_end_ns: int
    compute_start_ns: int
    compute_end_ns: int

    @property
    def transfer_ns(self) -> int:
        """Time on the link."""
        return self.transfer_end_ns - self.transfer_start_ns

    @property
    def compute_ns(self) -> int:
        """Computation time."""
        return self.compute_end_ns - self.compute_start_ns


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost and schedule of a plan.

    Attributes
    ----------
    makespan_ns : int
        From the first start to the last end.
    eq4_ns : int
        Eq. 4: all communication, plus the computation of the batch that cannot overlap any (the
        last batch for pull, the first for push).
    eq5_holds : bool
        Whether Eq. 5 holds: communication of batch k+1 lasts at least as long as computation of
        batch k (for push, read backwards). If it holds, Eq. 4 is the makespan.
    overlap_ns, exposed_communication_ns, exposed_computation_ns : int
        How long both resources are busy, only communication, and only computation.
    schedule : tuple of BatchTimes
        When each batch communicates and computes, in transfer order.
    """

    makespan_ns: int
    eq4_ns: int
    eq5_holds: bool
    overlap_ns: int
    exposed_communication_ns: int
    exposed_computation_ns: int
    schedule: tuple[BatchTimes, ...]


def check(problem: Problem, plan: Plan) -> None:
    """Verify that `plan` is a feasible plan of `problem`.

    Batches must cover every layer once, be contiguous, not empty, in transfer order and within the
    cap. With objective ``eq4``, Eq. 5 must hold.

    Raises
    ------
    InvalidPlanError
        With the first batch that breaks a rule.
    """
    check_batches(plan.batches, problem.layers, problem.direction)
    for position, (start, stop) in enumerate(plan.batches):
        if stop > problem.reach(start):
            raise BrokenConstraintError(
                f"batches[{position}]",
                f"more than max_batch_bytes = {problem.max_batch_bytes}",
                "max_batch_bytes",
            )
    if problem.objective == "eq4":
        broken = _first_break_of_eq5(problem.direction, schedule(problem, plan))
        if broken is not None:
            raise BrokenConstraintError(
                f"batches[{broken}]",
                "breaks Eq. 5: it computes longer than its neighbour transfers",
                "eq5",
            )


def check_batches(batches: Sequence[tuple[int, int]], layers: int, direction: str) -> None:
    """Verify that batches cover all layers once in transfer order; raise `InvalidPlanError`."""
    if not batches:
        raise InvalidPlanError("batches", "expected at least one batch")
    order = list(enumerate(batches))
    expected = 0
    for position, batch in order if direction == "pull" else order[::-1]:
        path = f"batches[{position}]"
        if not (
            isinstance(batch, tuple) and len(batch) == 2 and all(type(end) is int for end in batch)
        ):
            raise InvalidPlanError(path, f"expected a pair of integers, got {shown(batch)}")
        start, stop = batch
        if start != expected or not start < stop <= layers:
            raise InvalidPlanError(
                path, f"expected layers from {expected} on (of {layers}), got [{start}, {stop}]"
            )
        expected = stop
    if expected != layers:
        raise InvalidPlanError("batches", f"layers from {expected} on are in no batch")


def _first_break_of_eq5(direction: str, times: Sequence[BatchTimes]) -> int | None:
    """Return the position of the first batch that violates Eq. 5, or None."""
    pull = direction == "pull"
    for position, (first, second) in enumerate(pairwise(times)):
        computing, sending = (first, second) if pull else (second, first)
        if sending.transfer_ns < computing.compute_ns:
            return position if pull else position + 1
    return None


def schedule(problem: Problem, plan: Plan) -> list[BatchTimes]:
    """Return when each batch of a checked plan communicates and computes, in transfer order."""
    if problem.interference.is_none:
        transfers = [problem.transfer_time(start, stop) for start, stop in plan.batches]
        prefix = problem.compute_prefix
    else:
        transfers, layers = contended_durations(problem, plan)
        prefix = list(accumulate(layers, initial=0))
    times = []
    sent, computed, startup = 0, 0, problem.transfer_startup_ns
    for (start, stop), duration in zip(plan.batches, transfers, strict=True):
        computation = prefix[stop] - prefix[start]
        if problem.direction == "pull":
            begin, sent = sent, sent + duration
            compute_begin = max(sent, computed)
            computed = compute_begin + computation
        else:
            compute_begin, computed = computed, computed + computation
            begin = max(sent, computed)
            sent = begin + duration
        times.append(
            BatchTimes(begin, begin + min(startup, duration), sent, compute_begin, computed)
        )
    return times


def contended_durations(problem: Problem, plan: Plan) -> tuple[list[int], list[int]]:
    """Return how long each batch communicates and each layer computes under contention (ns)."""
    pull = problem.direction == "pull"
    computed = problem.compute_ns if pull else problem.compute_ns[::-1]
    done = list(accumulate(computed, initial=0))
    sizes, contention = problem.size_prefix, problem.interference
    assert sizes is not None
    steps = []
    for start, stop in plan.batches:
        alone = problem.transfer_time(start, stop)
        step = TimedTransfer(
            ready_ns=0 if pull else done[problem.layers - start],
            duration_ns=alone,
            needed_by=start if pull else 0,
            processor_ns=contention.processor_ns(sizes[stop] - sizes[start], alone),
            slower_ns=contention.overlapped_ns(alone) - alone,
        )
        steps.append(step)
    backward, forward = ((), computed) if pull else (computed, ())
    went = simulate(backward, forward, steps)
    layers = went.forward if pull else went.backward[::-1]
    return [end - start for start, end in went.transfers], [end - start for start, end in layers]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a checked plan."""
    times, direction = schedule(problem, plan), problem.direction
    makespan = max(times[-1].transfer_end_ns, times[-1].compute_end_ns)
    communication = sum(batch.transfer_ns for batch in times)
    computation = sum(batch.compute_ns for batch in times)
    uncovered = times[-1] if direction == "pull" else times[0]
    # Either resource serves one batch at a time, so only their union has to be measured.
    spans = [(t.transfer_start_ns, t.transfer_end_ns) for t in times]
    spans += [(t.compute_start_ns, t.compute_end_ns) for t in times]
    overlap = communication + computation - busy_ns(spans)
    return Evaluation(
        makespan_ns=makespan,
        eq4_ns=communication + uncovered.compute_ns,
        eq5_holds=_first_break_of_eq5(direction, times) is None,
        overlap_ns=overlap,
        exposed_communication_ns=communication - overlap,
        exposed_computation_ns=computation - overlap,
        schedule=tuple(times),
    )


def objective_ns(problem: Problem, evaluation: Evaluation) -> int:
    """Return the value of the problem's objective (ns)."""
    return evaluation.makespan_ns if problem.objective == "makespan" else evaluation.eq4_ns


def timeline(problem: Problem, plan: Plan) -> Timeline:
    """Return the schedule of a checked plan as intervals on two serial resources."""
    return timeline_of(plan.batches, schedule(problem, plan), direction=problem.direction)


def timeline_of(
    batches: Sequence[tuple[int, int]],
    times: Sequence[BatchTimes],
    names: Sequence[str] | None = None,
    *,
    direction: Direction = "pull",
) -> Timeline:
    """Return a schedule as intervals on two serial resources; `names` are the layer names."""
    computed: Kind = "forward" if direction == "pull" else "backward"
    link, processor = "communication", "computation"
    intervals = []
    for number, ((start, stop), t) in enumerate(zip(batches, times, strict=True)):
        layers = f"layer {start}" if stop - start == 1 else f"layers {start}–{stop - 1}"
        if names is not None:
            layers += f" ({names[start]}"
            layers += ")" if stop - start == 1 else f" … {names[stop - 1]})"
        label = f"batch {number + 1}: {layers}"
        intervals += [
            Interval(link, t.transfer_start_ns, t.startup_end_ns, "startup", number, label),
            Interval(link, t.startup_end_ns, t.transfer_end_ns, direction, number, label),
            Interval(processor, t.compute_start_ns, t.compute_end_ns, computed, number, label),
        ]
    return Timeline((link, processor), tuple(intervals))


# ---
# Makespan of batches when transfers or computation are slower (`planner.solving.tie_break`); O(B).


def boundaries_of(plan: Plan) -> list[int]:
    """Return the boundaries 0 = l_0 < l_1 < … < L of a plan."""
    return [0, *sorted(stop for _, stop in plan.batches)]


def lasts_under(problem: Problem, boundaries: Sequence[int], delay: Delay) -> int:
    """Return the makespan of batches under a `Delay` (factors on transfers and computation)."""
    computed = problem.compute_prefix
    steps = (
        Step(0, problem.transfer_time(start, stop), computed[-1] - computed[start])
        for start, stop in pairwise(boundaries)
    )
    return delayed_makespan(delay, steps, 0)
