"""From the trace of a job of DDP, ZeRO or Megatron to better buckets.

Problem: a job has run under some buckets; which are better, and by how much? Method: the recorded
graph, with costs that agree with the recorded transfers (`planner.traces.buckets`), makes problems
of `planner.caramel`, one for each reading of the trace; `planner.traces.proposals` weighs their
plans. On processors transfers take time from computation, and a trace does not say how much:
without a measured network one reading is that they take all of it, and overlap gains nothing. If
the computation of ZeRO or Megatron took turns with their transfers (`planner.traces.systems`), it
will do so without a device, while on one the settings have them overlap. Their transfers then cost
what they took on the rank that came last, and waiting for it stays as it is. Where it is unknown
which gradients a bucket has, it is ready when it was called for.
Guarantee: that of `planner.traces.proposals`.
Complexity: that of a plan for each reading, at most six. Source: own.
"""

from collections import defaultdict
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
from planner.traces.recorded import Recorded, check_one_each, gradient_sends, parts_of
from planner.traces.systems import (
    check_sends,
    others_ns,
    recorded_system,
    since_the_calls,
    take_turns,
)
from planner.traces.waits import one_of_several, without_stragglers

_TURNS = Interference(startup_ns=MAX_VALUE)
"""Contention in which computation stops as long as a transfer lasts."""

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
    any_order: bool = False,
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
    any_order : bool
        Take recorded buckets even if it is unknown which gradients each has.
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
    system = recorded_system(rank, sends, target)
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
    turns = system is not TARGETS["ddp"] and take_turns(rank, sends)
    if turns and not rank.device:
        place = ranks.index(rank)
        ranks = [since_the_calls(each) for each in ranks]
        rank = ranks[place]
        sends = gradient_sends(rank)
    abreast = without_stragglers(rank, ranks) if turns else rank
    settings = settings_of(abreast, sizes, any_order=any_order or turns)
    if settings is None:
        sent = sum(each.size_bytes or 0 for each in sends) // len(rank.steps)
        raise NotApplicableError(
            "",
            f"{format_bytes(sent)} were {_SENT[sends[0].collective]} a step, which are not buckets "
            f"of the {format_bytes(sum(sizes))} of gradients in the order in which they became "
            "ready",
        )
    outside_ns = others_ns(rank, sends, settings.steps) + _waited_ns(rank, abreast, settings.steps)
    readings = [
        _reading(replace(base, cost=cost, interference=contention), system, settings, turns)
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
        system=system,
        target=target,
        contention=rank.device or turns or interference is not None,
    )


def _waited_ns(rank: Recorded, abreast: Recorded, steps: Sequence[int]) -> int:
    """Return how long gradients waited for other ranks in a step (ns): the median over `steps`.

    `abreast` is the recording without these waits. Computation waits as long under other buckets.
    """
    lasted: dict[int, int] = defaultdict(int)
    for sign, recorded in ((1, rank), (-1, abreast)):
        for each in gradient_sends(recorded):
            lasted[each.step] += sign * each.lasts_ns
    return round(median(lasted[step] for step in steps))


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


def _reading(problem: Problem, system: Target, settings: Settings, turns: bool) -> Reading:
    """Return the reading of a problem: under contention, computation alone takes less.

    If transfers and computation took turns, it did not.
    """
    before, counts = problem, settings.counts
    if not counts:  # when each was called for says when it left, whatever the system's rule
        before, system = _in_buckets(problem, settings, turns), TARGETS["ddp"]
        counts = (1,) * len(settings.sizes)
    plan = plan_of_buckets(before, system, target_view(before, system), counts)
    if not before.interference.is_none:
        shorter = _undisturbed(before, plan)
        problem = replace(problem, graph=Graph(shorter.graph.ops, problem.graph.parameters))
        before = shorter
    priced = evaluate(before, plan).iteration_ns
    return Reading(problem, plan, priced, before=None if settings.counts else before)


def _in_buckets(problem: Problem, settings: Settings, turns: bool) -> Problem:
    """Return the problem with one parameter per bucket, ready when its transfer was called for.

    If transfers and computation took turns, or nothing is known, all are ready behind the backward
    pass.
    """
    graph = problem.graph
    order = target_view(problem, TARGETS["ddp"]).order
    owners = [graph.parameters[place].updated_by for place in order]
    last, first = (graph.ops[-1].name,), (graph.ops[0].name,)
    places = [min(max(behind, 1), len(owners)) - 1 for behind in settings.behind]
    ready = [owners[place] for place in places]
    if turns or not ready:
        ready = [last] * len(settings.sizes)
    buckets = (
        Parameter(f"bucket {number}", size, updated_by, first)
        for number, (size, updated_by) in enumerate(zip(settings.sizes, ready, strict=True), 1)
    )
    return replace(
        problem,
        graph=Graph(graph.ops, tuple(buckets)),
        interference=NO_CONTENTION if turns else problem.interference,
        target=None,
    )


def _undisturbed(problem: Problem, plan: Plan) -> Problem:
    """Return the problem without contention whose computation under a plan lasts as long as given.

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
