"""One step three times on one axis: as recorded, as predicted, and as planned.

Each begins with its forward pass. The recorded one is the step whose length is nearest to the
median; the others are priced by the likeliest reading of the trace (`planner.traces.proposals`).
Guarantee: each lane holds what was recorded or priced, and nothing twice; other times of a step are
in no lane. Complexity: O(events of the step). Source: own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from planner.families import caramel, fsdp
from planner.solving.timeline import COMPUTES, KIND_NAMES, Interval, Kind, Timeline
from planner.traces.proposals import Proposal, Reading
from planner.traces.recorded import Recorded, clipped, gradient_sends, periods_of

_STEPS = ("recorded", "predicted", "planned")


class _Bar(NamedTuple):
    """A time in which something was computed or sent (ns)."""

    start_ns: int
    end_ns: int
    kind: Kind


def three_steps(proposal: Proposal, recorded: Recorded) -> Timeline:
    """Return the timeline of a proposal; `recorded` is the rank that it was planned for."""
    reading, sharded = proposal.likeliest, proposal.target.sharded
    kinds = _kinds(recorded, sharded)
    if sharded:
        priced = (_units(reading, plan) for plan in (reading.traced, proposal.plan))
    else:
        cases = (
            (reading.before or reading.problem, reading.traced),
            (reading.problem, proposal.plan),
        )
        priced = (_buckets(*case, *kinds.values()) for case in cases)
    steps = (_recorded(proposal, recorded, kinds), *priced)
    shown = [bar for name, bars in zip(_STEPS, steps, strict=True) for bar in _named(name, bars)]
    lanes = [f"{name}: {what}" for name in _STEPS for what in ("computation", "network")]
    return Timeline(tuple(lanes), tuple(shown))


def _named(name: str, bars: Iterator[_Bar]) -> Iterator[Interval]:
    """Yield the intervals of computation, and those of transfers with their numbers."""
    number = 0
    for start, end, kind in bars:
        if kind in COMPUTES:
            label = "" if name == "recorded" else f"{kind}"
            yield Interval(f"{name}: computation", start, end, kind, -1, label)
        else:
            label = f"{KIND_NAMES[kind]} {number + 1}"
            yield Interval(f"{name}: network", start, end, kind, number, label)
            number += 1


def _kinds(recorded: Recorded, sharded: bool) -> dict[str, Kind]:
    """Return the planned collectives, each with the kind of interval that it is drawn as."""
    if not sharded:
        scatters = gradient_sends(recorded)[0].collective == "reduce_scatter"
        return {"reduce_scatter": "reduce_scatter"} if scatters else {"all_reduce": "all_reduce"}
    return {"all_gather": "all_gather", "reduce_scatter": "reduce_scatter"}


def _recorded(proposal: Proposal, recorded: Recorded, kinds: Mapping[str, Kind]) -> Iterator[_Bar]:
    """Yield the computation of the recorded step, and its transfers of the planned kinds."""
    periods = periods_of(recorded)
    lasting = {place: end - start for place, (start, end) in enumerate(periods)}
    place = min(lasting, key=lambda step: (abs(lasting[step] - proposal.step_ns), step))
    begin, end = periods[place]
    for at, until in clipped(recorded.computation, (begin, end)):
        yield _Bar(at - begin, until - begin, "computation")
    for each in recorded.transfers:
        if each.step == place and each.collective in kinds:
            start, stop = (min(max(time, begin), end) for time in (each.start_ns, each.end_ns))
            yield _Bar(start - begin, stop - begin, kinds[each.collective])


def _buckets(problem: Any, plan: Any, kind: Kind) -> Iterator[_Bar]:
    """Yield the forward pass, and behind it the backward pass with its transfers."""
    iteration = caramel.evaluate(problem, plan).iteration
    behind = sum(end - start for start, end in iteration.forward)
    first = iteration.forward[0][0] if iteration.forward else 0
    for start, end in iteration.forward:
        yield _Bar(start - first, end - first, "forward")
    for start, end in iteration.backward:
        yield _Bar(start + behind, end + behind, "backward")
    for start, end in iteration.transfers:
        yield _Bar(start + behind, end + behind, kind)


def _units(reading: Reading, plan: Any) -> Iterator[_Bar]:
    """Yield the computation of units, and their transfers."""
    found = fsdp.evaluate(reading.problem, plan)
    bars = [_Bar(each.start_ns, each.end_ns, "all_gather") for each in found.gathers]
    bars += [_Bar(each.start_ns, each.end_ns, "reduce_scatter") for each in found.reduces]
    passes: tuple[Kind, Kind] = ("forward", "backward")
    phases = [phase for phase in passes for _ in plan.units]
    if not reading.passes_ns:
        for step, phase in zip(found.steps, phases, strict=True):
            bars.append(_Bar(step.start_ns, step.end_ns, phase))
        yield from sorted(bars)
        return
    sent, now = iter(sorted(bars)), 0
    for number, phase in enumerate(phases):  # transfers and computation take turns
        unit, back = plan.units[plan.unit_of(number)], phase == "backward"
        lasts = sum(times[back] for times in reading.passes_ns[unit.start : unit.stop])
        turns = [] if back and unit.keep else [next(sent)]
        turns.append(_Bar(0, lasts, phase))
        if back and found.loads[plan.unit_of(number)].gradient_bytes:
            turns.append(next(sent))
        for start, end, kind in turns:
            yield _Bar(now, now + end - start, kind)
            now += end - start
