"""From the trace of a job of DDP, ZeRO or Megatron to better buckets.

Problem: a job has run under some buckets; which are better, and by how much? Method: the recorded
graph, with costs that agree with the recorded transfers (`planner.traces.buckets`), makes problems
of `planner.caramel`, one for each reading of the trace; `planner.traces.proposals` weighs their
plans. On processors transfers take time from computation, and a trace does not say how much:
without a measured network one reading is that they take all of it, and overlap gains nothing.
Jobs that gather parameters shard the optimiser: ZeRO if they all-reduced the gradients, Megatron if
they scattered them. If nothing of theirs overlapped, transfers and computation took turns: as they
will without a device, while on one the settings have them overlap.
Guarantee: that of `planner.traces.proposals`.
Complexity: that of a plan for each reading, at most six. Source: own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from statistics import median

from planner.families.caramel import Problem, solve
from planner.families.caramel.buckets import sizes_that_make
from planner.families.caramel.evaluation import evaluate, lasting_ns
from planner.families.caramel.for_target import plan_of_buckets, target_view
from planner.families.caramel.problem import NetworkCost, Plan
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, scaled_cost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Parameter
from planner.model.units import format_bytes
from planner.model.validation import MAX_VALUE
from planner.solving.targets import TARGETS, Target
from planner.traces.buckets import Settings, lines_of, settings_of, without_startup
from planner.traces.proposals import Proposal, Reading, Step, waited_for, weighed
from planner.traces.recorded import (
    Recorded,
    Transfer,
    both,
    check_one_each,
    clipped,
    gradient_sends,
    length,
    merged,
    parts_of,
    periods_of,
    without,
)
from planner.traces.waits import one_of_several

_TURNS = Interference(startup_ns=MAX_VALUE)
"""Transfers take all of the time that they last from computation."""

_OVERLAP = 50
"""Transfers and computation take turns if less than 1/_OVERLAP of the transfers is overlapped."""

_SENT = {"all_reduce": "all-reduced", "reduce_scatter": "reduce-scattered"}

_PARTS = 1024
"""Computation without contention is a multiple of 1/_PARTS of the recorded one."""


def propose(
    ranks: Sequence[Recorded],
    graph: Graph,
    *,
    target: Target | None = None,
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
    target : Target, optional
        The system whose rules the buckets keep to; by default the recorded one.
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
        If what was sent is no bucket of these gradients, or the parameters were sharded.
    InvalidInputError
        If two recordings are of one rank.
    """
    check_one_each(ranks)
    rank = waited_for(ranks)
    workers = max(2, *(each.ranks or 0 for each in ranks))
    check_sends(rank)
    sends = gradient_sends(rank)
    system = recorded_system(rank, sends)
    target = target or system
    base = Problem(
        graph,
        AffineCost(0, Fraction(0)),
        op_order=tuple(op.name for op in graph.ops),
        workers=workers,
        element_bytes=element_bytes,
        target=target,
    )
    sizes = target_view(base, system).sizes
    turns = system is not TARGETS["ddp"] and _by_turns(rank, sends)
    settings = settings_of(rank, sizes, turns=turns)
    if settings is None:
        sent = sum(each.size_bytes or 0 for each in sends) // len(rank.steps)
        raise NotApplicableError(
            "",
            f"{format_bytes(sent)} were {_SENT[sends[0].collective]} a step, which are not buckets "
            f"of the {format_bytes(sum(sizes))} of gradients in the order in which they became "
            "ready",
        )
    outside_ns = _others_ns(rank, sends, settings.steps)
    readings = [
        _reading(replace(base, cost=cost, interference=contention), system, settings)
        for cost, contention in _costs(ranks, settings, network, interference, turns)
    ]
    readings = [replace(reading, outside_ns=outside_ns) for reading in readings]
    limit = None if time_limit is None else time_limit / len(readings)
    step = Step(
        rank.rank,
        len(settings.steps),
        settings.sizes,
        _parts(rank, settings, base.windows.compute_ns),
    )
    return weighed(
        step,
        readings,
        [solve(reading.problem, time_limit=limit) for reading in readings],
        lasting_ns,
        _sizes,
        target=target,
        contention=rank.device or turns or interference is not None,
    )


def _sizes(_: Problem, plan: Plan) -> tuple[int, ...]:
    return tuple(group.size_bytes for group in plan.groups)


def _costs(
    ranks: Sequence[Recorded],
    settings: Settings,
    network: NetworkCost | None,
    interference: Interference | None,
    turns: bool,
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
    if turns and not ranks[0].device:
        yield from ((cost, _TURNS) for cost in costs)
        return
    for cost in costs:
        yield cost, NO_CONTENTION if interference is None else interference
    if interference is None and not ranks[0].device:
        everything = without_startup(settings.bursts).ns_per_byte
        for cost in costs:
            yield cost, Interference(0, everything)


def _reading(problem: Problem, system: Target, settings: Settings) -> Reading:
    """Return the reading of a problem: under contention, computation alone takes less.

    If transfers and computation took turns, it did not.
    """
    if not settings.counts:
        before = _behind(problem, settings.sizes)
        view = target_view(before, system)
        plan = plan_of_buckets(before, system, view, [1] * len(settings.sizes))
        return Reading(problem, plan, evaluate(before, plan).iteration_ns, before=before)
    plan = plan_of_buckets(problem, system, target_view(problem, system), settings.counts)
    if not problem.interference.is_none:
        problem = _undisturbed(problem, plan)
    return Reading(problem, plan, evaluate(problem, plan).iteration_ns)


def _behind(problem: Problem, sizes: Sequence[int]) -> Problem:
    """Return the problem with a parameter for each bucket, all ready behind the backward pass."""
    ops = problem.graph.ops
    last, first = ops[-1].name, ops[0].name
    buckets = (
        Parameter(f"bucket {number}", size, (last,), (first,))
        for number, size in enumerate(sizes, 1)
    )
    return replace(
        problem, graph=Graph(ops, tuple(buckets)), interference=NO_CONTENTION, target=None
    )


def _undisturbed(problem: Problem, plan: Plan) -> Problem:
    """Return the problem whose computation, slowed down under a plan, is that of the given one.

    The backward pass is shortened, since transfers of gradients overlap no other.
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


def recorded_system(rank: Recorded, sends: Sequence[Transfer]) -> Target:
    """Return the target that sent what was recorded; `sends` are its gradients.

    DDP gathers nothing; ZeRO and Megatron's optimiser gather the parameters behind the backward
    pass, and Megatron scatters gradients. Raises `NotApplicableError` if parameters were gathered
    between gradients.
    """
    gathers = [
        each for each in rank.transfers if each.collective == "all_gather" and each.step >= 0
    ]
    if sends[0].collective == "all_reduce" and 2 * _bytes(rank, gathers) < _bytes(rank, sends):
        return TARGETS["ddp"]
    for step in {each.step for each in sends}:
        asked = [_asked_ns(each) for each in sends if each.step == step]
        between = [each for each in gathers if min(asked) < _asked_ns(each) < max(asked)]
        if 2 * len(between) > len(asked):
            what = (
                "parameters were gathered between gradients: they are sharded, as by ZeRO stage 3, "
                "or split among ranks; planner plan PROFILE --for fsdp2 plans units of a profile"
            )
            raise NotApplicableError("", what)
    return TARGETS["megatron" if sends[0].collective == "reduce_scatter" else "deepspeed"]


def _bytes(rank: Recorded, transfers: Sequence[Transfer]) -> int:
    """Return the bytes of transfers; without a device gathers have the size of a rank's share."""
    shares = 1 if rank.device else rank.ranks or 1
    return sum(
        (each.size_bytes or 0) * (shares if each.collective == "all_gather" else 1)
        for each in transfers
    )


def _asked_ns(transfer: Transfer) -> int:
    return transfer.start_ns if transfer.asked_ns is None else transfer.asked_ns


def _by_turns(rank: Recorded, sends: Sequence[Transfer]) -> bool:
    """Return whether transfers of gradients and computation took turns."""
    sent = merged((each.start_ns, each.end_ns) for each in sends)
    return length(both(sent, rank.computation)) * _OVERLAP < length(sent)


def _others_ns(rank: Recorded, sends: Sequence[Transfer], steps: Sequence[int]) -> int:
    """Return what the other transfers of a step are waited for (ns), the median of some steps."""
    gradients = merged((each.start_ns, each.end_ns) for each in sends)
    others = merged((each.start_ns, each.end_ns) for each in set(rank.transfers).difference(sends))
    waits = without(without(others, gradients), rank.computation)
    periods = periods_of(rank)
    return round(median(length(clipped(waits, periods[step])) for step in steps))


def check_sends(rank: Recorded) -> None:
    """Raise `NotApplicableError` unless gradients of known sizes were sent in marked steps."""
    inside, reduced = [each for each in rank.transfers if each.step >= 0], gradient_sends(rank)
    kinds = sorted({transfer.collective for transfer in inside})
    if not rank.steps:
        reason = "no steps are marked (ProfilerStep#N): record with a schedule, and call step()"
    elif not rank.periods:
        reason = "no kernel is known to be launched in a step: record ProfilerActivity.CPU, too"
    elif not inside:
        reason = "no transfer belongs to a step: nothing to plan"
    elif not reduced:
        reason = (
            f"{', '.join(kinds)} were sent: buckets are planned of all-reduces or reduce-scatters"
        )
    elif not any(transfer.size_bytes for transfer in reduced):
        reason = "no transfer of gradients has a size: record with record_shapes=True"
    else:
        return
    raise NotApplicableError("", reason)
