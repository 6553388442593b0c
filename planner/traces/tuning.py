"""From the trace of a job to better buckets, and how sure their gain is.

Problem: a job has run under some buckets; which are better, and by how much? Method: the recorded
graph, with costs that agree with the recorded transfers (`planner.traces.buckets`), makes problems
of `planner.caramel`, one for each reading of the trace. Each is planned for. Of these plans, the
one whose least gain over all readings is largest is proposed. What neither passes nor waits
explain, such as the optimiser, is added to each step. The check: the recorded step is predicted
under its own buckets. On processors transfers take time from computation, and a trace does not say
how much: without a measured network one reading is that they take all of it, and overlap gains
nothing. Guarantee: none on predictions. `at_most` bounds the gain of any buckets in all readings.
Complexity: that of a plan for each reading, at most six. Source: own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, hypot
from statistics import median

from planner.families.caramel import Problem, solve
from planner.families.caramel.buckets import sizes_that_make
from planner.families.caramel.evaluation import Evaluation, evaluate, lasting_ns
from planner.families.caramel.for_target import plan_of_buckets, target_view
from planner.families.caramel.problem import NetworkCost, Plan
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, scaled_cost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph
from planner.model.units import format_bytes
from planner.solving.advice import WORTH
from planner.solving.result import Result
from planner.solving.targets import TARGETS, Target
from planner.traces.buckets import Settings, lines_of, settings_of, without_startup
from planner.traces.recorded import Recorded, all_reduces, check_one_each, parts_of
from planner.traces.waits import one_of_several

MOST_OFF = Fraction(1, 5)
"""A prediction of the recorded step that is further off gets no proposal."""

RESIDUAL = 0.04
"""By how much predicted gains of buckets miss measured ones, in nine of ten cases.

Of 288 pairs of DDP's bucket sizes in `benchmarks/runtime_real.py`: ten models, three bandwidths."""

_PARTS = 1024
"""Computation without contention is a multiple of 1/_PARTS of the recorded one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A problem that agrees with the trace, with the plan and the time (ns) of recorded buckets."""

    problem: Problem
    traced: Plan
    traced_ns: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Buckets planned for a recorded job, and what is known of their gain.

    Times are of a step (ns), gains are ratios of the step as recorded to the step as planned.
    """

    rank: int  # whose computation is planned for: the one that others wait for
    steps: int  # of the recording, with equal buckets
    target: Target
    buckets: tuple[int, ...]  # bytes of the recorded ones, in the order of sending
    step_ns: int  # as recorded
    predicted_ns: int  # under the recorded buckets
    parts: dict[str, int]  # the recorded step: passes, waiting, and what else there is
    plan_ns: int  # predicted under the proposed buckets
    gain: float
    least_gain: float  # in the worst reading, less the error of the check and `RESIDUAL`
    most_gain: float
    at_most: float | None  # no buckets gain more, in any reading
    planned: tuple[Problem, Result[Plan, Evaluation]]
    likeliest: Reading  # by which the step is predicted
    contention: bool  # whether it is known what transfers take from computation

    @property
    def error(self) -> float:
        """By how much the recorded step is predicted too long, as a share of it."""
        return self.predicted_ns / self.step_ns - 1

    @property
    def proposed(self) -> tuple[int, ...]:
        """Bytes of the proposed buckets, in the order of sending."""
        plan = self.planned[1].plan
        return () if plan is None else tuple(group.size_bytes for group in plan.groups)

    @property
    def doubtful(self) -> bool:
        """Whether the recorded step is predicted too badly for a proposal."""
        return abs(self.error) > MOST_OFF

    @property
    def keep(self) -> bool:
        """Whether to keep the recorded buckets: others need not be faster, or hardly are."""
        return self.doubtful or self.gain < WORTH or self.least_gain < 1


def waited_for(ranks: Sequence[Recorded]) -> Recorded:
    """Return the rank whose transfers last the least in all: it waits for no other."""
    return min(ranks, key=lambda rank: sum(each.lasts_ns for each in rank.transfers))


def propose(
    ranks: Sequence[Recorded],
    graph: Graph,
    *,
    target: Target = TARGETS["ddp"],
    network: NetworkCost | None = None,
    interference: Interference | None = None,
    element_bytes: int = 4,
    time_limit: float | None = None,
) -> Proposal:
    """Return the best buckets for a recorded job.

    Parameters
    ----------
    ranks : sequence of Recorded
        One rank or several of one job.
    graph : Graph
        Dataflow of a recorded step of `waited_for`.
    target : Target
        The system whose rules the buckets keep to.
    network : AffineCost, TableCost or DepthCost, optional
        Measured cost of an all-reduce; by default that of the recorded ones.
    interference : Interference, optional
        What transfers and computation take from each other; by default none on a device.
    element_bytes : int
        Of one number of a gradient: some targets count these.
    time_limit : float, optional
        Seconds for planning, shared by the readings.

    Raises
    ------
    NotApplicableError
        If the all-reduces are not DDP's buckets of these gradients.
    InvalidInputError
        If two recordings are of one rank.
    """
    check_one_each(ranks)
    rank = waited_for(ranks)
    workers = max(2, *(each.ranks or 0 for each in ranks))
    base = Problem(
        graph,
        AffineCost(0, Fraction(0)),
        op_order=tuple(op.name for op in graph.ops),
        workers=workers,
        element_bytes=element_bytes,
        target=target,
    )
    sizes = target_view(base, TARGETS["ddp"]).sizes
    check_sends(rank)
    settings = settings_of(rank, sizes)
    if settings is None:
        sent = sum(each.size_bytes or 0 for each in all_reduces(rank)) // len(rank.steps)
        raise NotApplicableError(
            "",
            f"{format_bytes(sent)} were all-reduced a step, which are not buckets of the "
            f"{format_bytes(sum(sizes))} of gradients in the order in which they became ready",
        )
    readings = [
        _reading(replace(base, cost=cost, interference=contention), settings.counts)
        for cost, contention in _costs(ranks, settings, network, interference)
    ]
    parts = _parts(rank, settings, base.windows.compute_ns)
    others, step_ns = parts["other"], sum(parts.values())
    if not step_ns:
        raise NotApplicableError("", "the recorded steps take no time")
    before = [others + reading.traced_ns for reading in readings]
    limit = None if time_limit is None else time_limit / len(readings)
    results = [solve(reading.problem, time_limit=limit) for reading in readings]

    def gains(result: Result[Plan, Evaluation]) -> list[float]:
        assert result.plan is not None
        after = (others + lasting_ns(reading.problem, result.plan) for reading in readings)
        return [old / new if new else 1.0 for old, new in zip(before, after, strict=True)]

    every = [gains(result) for result in results]
    chosen = max(range(len(every)), key=lambda place: (min(every[place]), -place))
    if min(every[chosen]) < 1:  # none is surely faster: show what the likeliest reading promises
        chosen = 0
    gained = every[chosen]
    off = hypot(before[0] / step_ns - 1, RESIDUAL)
    bounds = [
        old / max(others + result.lower_bound_ns, 1)
        for old, result in zip(before, results, strict=True)
        if result.lower_bound_ns is not None
    ]
    return Proposal(
        rank=rank.rank,
        steps=len(settings.steps),
        target=target,
        buckets=_cut(sizes, settings.counts),
        step_ns=step_ns,
        predicted_ns=before[0],
        parts=parts,
        plan_ns=round(step_ns / gained[0]),
        gain=gained[0],
        least_gain=min(gained) * (1 - off),
        most_gain=max(gained) * (1 + off),
        at_most=max(bounds) if len(bounds) == len(results) else None,
        planned=(readings[chosen].problem, results[chosen]),
        likeliest=readings[0],
        contention=rank.device or interference is not None,
    )


def _costs(
    ranks: Sequence[Recorded],
    settings: Settings,
    network: NetworkCost | None,
    interference: Interference | None,
) -> Iterator[tuple[NetworkCost, Interference]]:
    """Yield the costs and the contention of each reading, the likeliest first."""
    width = settings.width
    costs: Sequence[NetworkCost] = (
        lines_of(settings.bursts) if network is None else (scaled_cost(network, rate=width),)
    )
    if interference is not None:
        interference = replace(interference, ns_per_byte=width * interference.ns_per_byte)
    if network is None and one_of_several(ranks):  # waiting for others may be all of a start-up
        costs = tuple(dict.fromkeys((*costs, without_startup(settings.bursts))))
    for cost in costs:
        yield cost, NO_CONTENTION if interference is None else interference
    if interference is None and not ranks[0].device:
        everything = without_startup(settings.bursts).ns_per_byte
        for cost in costs:
            yield cost, Interference(0, everything)


def _reading(problem: Problem, counts: Sequence[int]) -> Reading:
    """Return the reading of a problem: under contention, computation alone takes less."""
    plan = plan_of_buckets(problem, TARGETS["ddp"], target_view(problem, TARGETS["ddp"]), counts)
    if not problem.interference.is_none:
        problem = _undisturbed(problem, plan)
    return Reading(problem, plan, evaluate(problem, plan).iteration_ns)


def _undisturbed(problem: Problem, plan: Plan) -> Problem:
    """Return the problem whose computation, slowed down under a plan, is that of the given one.

    The backward pass is shortened, since DDP's transfers overlap no other.
    """
    recorded_ns = problem.windows.compute_ns

    def shortened(share: int) -> Problem:
        ops = tuple(
            replace(op, duration_ns=op.duration_ns * share // _PARTS)
            if op.phase == "backward"
            else op
            for op in problem.graph.ops
        )
        return replace(problem, graph=Graph(ops, problem.graph.parameters))

    low, high = 0, _PARTS
    while low < high:
        middle = (low + high + 1) // 2
        if evaluate(shortened(middle), plan).computation_ns <= recorded_ns:
            low = middle
        else:
            high = middle - 1
    return shortened(low)


def _parts(rank: Recorded, settings: Settings, compute_ns: int) -> dict[str, int]:
    """Return the parts of a recorded step (ns): its passes, its waits for transfers, the rest."""
    parts = parts_of(rank)
    steps = [parts[step] for step in settings.steps]
    lasts = round(median(part.lasts_ns for part in steps))
    waited = min(round(median(part.waited_ns for part in steps)), lasts)
    passes = min(compute_ns, lasts - waited)
    return {"passes": passes, "waiting": waited, "other": lasts - waited - passes}


def _cut(sizes: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    spans = pairwise(accumulate(counts, initial=0))
    return tuple(sum(sizes[start:stop]) for start, stop in spans)


def one_size(proposal: Proposal) -> tuple[float, float]:
    """Return DDP's best ``bucket_cap_mb`` (MiB) for all of its buckets, and the predicted gain.

    Of the limits that make these buckets it is one with the fewest digits. Versions of torch that
    know no ``bucket_cap_mb_list`` can be given only this.
    """
    ddp = replace(TARGETS["ddp"], buckets="filled")
    problem = replace(proposal.likeliest.problem, target=ddp)
    plan = solve(problem).plan
    assert plan is not None
    sizes = target_view(problem, ddp).sizes
    limits = sizes_that_make(sizes, [len(group.parts) for group in plan.groups], "filled")
    assert limits is not None
    after = proposal.parts["other"] + lasting_ns(problem, plan)
    return _shortest(*limits), proposal.predicted_ns / max(after, 1)


def _shortest(low: int, high: int | None) -> float:
    """Return a number of MiB with few digits, of at least `low` and at most `high` bytes."""
    for digits in range(7):
        size = ceil(Fraction(low * 10**digits, 2**20))
        if high is None or Fraction(size, 10**digits) * 2**20 <= high:
            return float(Fraction(size, 10**digits))
    return float(Fraction(low, 2**20))


def check_sends(rank: Recorded) -> None:
    """Raise `NotApplicableError` unless all-reduces of known sizes were sent in marked steps."""
    inside, reduced = [each for each in rank.transfers if each.step >= 0], all_reduces(rank)
    kinds = sorted({transfer.collective for transfer in inside})
    if not rank.steps:
        reason = "no steps are marked (ProfilerStep#N): record with a schedule, and call step()"
    elif not rank.periods:
        reason = "no kernel is known to be launched in a step: record ProfilerActivity.CPU, too"
    elif not inside:
        reason = "no transfer belongs to a step: nothing to plan"
    elif not reduced:
        reason = f"{', '.join(kinds)} were sent: buckets are planned of all-reduces, as DDP's"
    elif not any(transfer.size_bytes for transfer in reduced):
        reason = "no all-reduce has a size: record with record_shapes=True"
    else:
        return
    raise NotApplicableError("", reason)
