"""From the trace of a job of FSDP2 to better units: which to gather together, to keep, and when.

Problem: a job has run with some units; which are better, and by how much? Method: a recorded step
is a chain of units with the computation between FSDP2's hooks
(`planner.formats.importers.kineto_units`), which makes problems of `planner.fsdp`, one for each
reading of the costs. What the model itself gathers, for its first and its last computation, is sent
in front of the chain and behind it under all settings. On processors FSDP2 waits for each transfer:
there the problem is one of transfers alone. A trace does not say what is in memory, so no plan
holds more of parameters and gradients than the recorded settings, nor more at the end of the
forward pass, when activations are largest; both unless memory is to spare.
Guarantee: that of `planner.traces.proposals`.
Complexity: that of a plan for each reading, at most four. Source: own; hooks and streams as in
_fsdp_param_group.py of PyTorch 2.13.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from planner.families.fsdp import FSDP, Mesh, Plan, Problem, Unit, check, evaluate
from planner.families.fsdp.evaluation import Evaluation, iteration_ns, loads_of, peak_of
from planner.families.fsdp.prefetch import by_streams
from planner.families.fsdp.problem import at_use
from planner.model.costs import AffineCost
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.solving.methods import Outcome
from planner.solving.result import Result
from planner.solving.targets import FSDP2
from planner.traces.buckets import Burst, lines_of, without_startup
from planner.traces.proposals import Proposal, Reading, Step, weighed
from planner.traces.recorded import Recorded
from planner.traces.waits import one_of_several

_TRIES = 6
"""Attempts to find a plan that holds less memory at the end of the forward pass."""


@dataclass(frozen=True, slots=True)
class RecordedUnit:
    """One call of ``fully_shard``."""

    name: str  # of its module, or of several, separated by ", "
    parameter_bytes: int  # of its all-gather
    gradient_bytes: int  # of its reduce-scatter; 0 if it has none
    forward_ns: int  # computation, median of the steps
    backward_ns: int
    forward_at: int  # step in which the host asked for its gather
    backward_at: int | None  # the same for the backward pass; None if it was kept


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a recorded rank, in the order of the forward pass."""

    units: tuple[RecordedUnit, ...]
    own_bytes: tuple[int, int]  # that the model itself gathers, and scatters; 0: none
    buffers: int  # most reduce-scatters whose input is held
    shared: bool  # whether gathers and reduce-scatters ran at the same time
    steps: tuple[int, ...]  # positions of the steps that have these units
    gathers: tuple[Burst, ...]  # of all of these steps
    reduces: tuple[Burst, ...]
    parts: dict[str, int]  # of a step (ns): passes, waiting, other


def propose_units(
    ranks: Sequence[Recorded],
    rank: Recorded,
    units: Units,
    *,
    spare_bytes: int = 0,
    time_limit: float | None = None,
) -> Proposal:
    """Return the best units for a recorded job.

    Parameters
    ----------
    ranks : sequence of Recorded
        One rank or several of one job.
    rank : Recorded
        The one of them that is waited for.
    units : Units
        Those of `rank`.
    spare_bytes : int
        Memory that plans may use beyond what the recorded settings use.
    time_limit : float, optional
        Seconds for planning, shared by the readings.

    Raises
    ------
    NotApplicableError
        If the recorded gathers are not issued in the order of a chain.
    """
    readings = [
        _reading(units, rank, *costs) for costs in _costs(units, alone=one_of_several(ranks))
    ]
    limit = None if time_limit is None else time_limit / len(readings)
    step = Step(
        rank.rank,
        len(units.steps),
        tuple(unit.parameter_bytes for unit in units.units),
        units.parts,
    )
    return weighed(
        step,
        readings,
        [_planned(reading, spare_bytes, limit, alone=not rank.device) for reading in readings],
        iteration_ns,
        _sizes,
        system=FSDP2,
        target=FSDP2,
        contention=True,
    )


def _sizes(problem: Problem, plan: Plan) -> tuple[int, ...]:
    return tuple(load.parameter_bytes for load in loads_of(problem, plan))


def _costs(units: Units, *, alone: bool) -> Iterator[tuple[AffineCost, AffineCost]]:
    """Yield the costs of gathers and reduce-scatters of each reading, the likeliest first.

    If one rank of several is known, waiting for others may be all of a start-up.
    """
    kinds = [units.gathers, units.reduces or units.gathers]
    lines = [lines_of(bursts) for bursts in kinds]
    for place in range(max(map(len, lines))):
        gather, reduce = (line[min(place, len(line) - 1)] for line in lines)
        yield gather, reduce
    if alone:
        gather, reduce = map(without_startup, kinds)
        yield gather, reduce


def _reading(units: Units, rank: Recorded, gather: AffineCost, reduce: AffineCost) -> Reading:
    """Return the reading with these costs."""
    rows, device = units.units, rank.device
    passes = tuple((unit.forward_ns, unit.backward_ns) for unit in rows)
    shards = max(2, rank.ranks or 0)
    problem = Problem(
        forward_ns=[unit.forward_ns if device else 0 for unit in rows],
        backward_ns=[unit.backward_ns if device else 0 for unit in rows],
        parameter_bytes=[unit.parameter_bytes for unit in rows],
        gradient_bytes=[unit.gradient_bytes for unit in rows],
        meshes=(Mesh(shards=shards, all_gather=gather, reduce_scatter=reduce),),
        channels="shared" if units.shared else "one",
        names=[unit.name for unit in rows],
    )
    told = (
        Unit(place, place + 1, unit.backward_at is None, False, unit.forward_at, unit.backward_at)
        for place, unit in enumerate(rows)
    )
    plan = Plan(0, tuple(told), min(units.buffers, len(rows)))
    if device:
        plan = by_streams(plan, problem.channels)
    try:
        check(problem, plan)
    except InvalidPlanError as error:
        reason = f"its gathers are no chain, which is all that is planned: {error}"
        raise NotApplicableError("", reason) from None
    costs = zip((gather, reduce), units.own_bytes, strict=True)
    own = sum(cost.cost_ns(size) for cost, size in costs if size)
    own += 0 if device else units.parts["passes"]
    return Reading(problem, plan, iteration_ns(problem, plan), own, () if device else passes)


def _planned(
    reading: Reading, spare_bytes: int, time_limit: float | None, *, alone: bool
) -> Result[Plan, Evaluation]:
    """Return a plan of a reading within the memory of the recorded settings.

    If transfers are `alone`, units gather in their own steps: FSDP2 waits for them anyway. The
    plan must need no more than the recorded one at its peak, and at the end of the forward pass.
    `Problem` has the first limit only, so assumed activations fill what the recorded plan has free
    at that end. While a plan needs too much anyway, the limit is lowered.
    """
    problem, traced = reading.problem, reading.traced
    most, turning = peak_of(problem, traced), _turning(problem, traced)
    within = problem.within(most + spare_bytes)
    shaped = replace(problem, activation_bytes=_shares(problem, most - turning))
    limit = peak_of(shaped, traced) + spare_bytes
    for _ in range(_TRIES):
        result = FSDP.solve(shaped.within(limit), start=traced, time_limit=time_limit)
        if result.plan is None:
            break
        plan = at_use(0, result.plan.units) if alone else result.plan
        over = max(_turning(problem, plan) - turning, peak_of(problem, plan) - most) - spare_bytes
        if over <= 0:
            if iteration_ns(problem, plan) >= reading.traced_ns:
                break
            found = Outcome(plan, None, result.timed_out, method=result.method)
            return FSDP.verify(within, found, result.runtime_s)
        limit = min(limit, peak_of(shaped, result.plan)) - over
    return FSDP.verify(within, Outcome(traced, method="recorded"), 0.0)


def _shares(problem: Problem, total: int) -> list[int]:
    """Divide bytes among the layers, in proportion to their parameters."""
    sums = problem.prefixes["parameter_bytes"]
    return [total * stop // sums[-1] - total * start // sums[-1] for start, stop in pairwise(sums)]


def _turning(problem: Problem, plan: Plan) -> int:
    """Return the most that is held in the last forward and the first backward step (bytes)."""
    found, turn = evaluate(problem, plan), (len(plan.units) - 1, len(plan.units))
    return found.state_bytes + max(each.moving for each in found.levels if each.step in turn)
