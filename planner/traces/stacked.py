"""One step three times on one axis: as recorded, as predicted, and as planned.

Each begins with its forward pass. The recorded one is the step whose length is nearest to the
median; the others are priced by the likeliest reading of the trace (`planner.traces.tuning`).
Guarantee: each lane holds what was recorded or priced, and nothing twice; other times of a step are
in no lane. Complexity: O(events of the step). Source: own.
"""

from collections.abc import Iterator

from planner.families.caramel.evaluation import evaluate
from planner.families.caramel.problem import Plan, Problem
from planner.solving.timeline import Interval, Kind, Timeline
from planner.traces.recorded import Recorded, all_reduces, clipped, periods_of
from planner.traces.tuning import Proposal


def three_steps(proposal: Proposal, recorded: Recorded) -> Timeline:
    """Return the timeline of a proposal; `recorded` is the rank that it was planned for."""
    shown = [*_recorded(proposal, recorded)]
    plan = proposal.planned[1].plan
    assert plan is not None
    problem = proposal.likeliest.problem
    shown += _priced("predicted", problem, proposal.likeliest.traced)
    shown += _priced("planned", problem, plan)
    lanes = [f"{name}: {what}" for name in _STEPS for what in ("computation", "network")]
    return Timeline(tuple(lanes), tuple(shown))


_STEPS = ("recorded", "predicted", "planned")


def _recorded(proposal: Proposal, recorded: Recorded) -> Iterator[Interval]:
    """Yield what the recorded step computed and sent."""
    periods = periods_of(recorded)
    lasting = {place: end - start for place, (start, end) in enumerate(periods)}
    place = min(lasting, key=lambda step: (abs(lasting[step] - proposal.step_ns), step))
    begin, end = periods[place]
    for at, until in clipped(recorded.computation, (begin, end)):
        yield Interval("recorded: computation", at - begin, until - begin, "computation", -1, "")
    sent = (each for each in all_reduces(recorded) if each.step == place)
    for number, each in enumerate(sent):
        start, stop = (min(max(time, begin), end) - begin for time in (each.start_ns, each.end_ns))
        label = f"all-reduce {number + 1}"
        yield Interval("recorded: network", start, stop, "all_reduce", number, label)


def _priced(name: str, problem: Problem, plan: Plan) -> Iterator[Interval]:
    """Yield the forward pass, and behind it the backward pass with its transfers."""
    iteration = evaluate(problem, plan).iteration
    behind = sum(end - start for start, end in iteration.forward)
    first = iteration.forward[0][0] if iteration.forward else 0
    passes: tuple[tuple[Kind, tuple[tuple[int, int], ...], int], ...] = (
        ("forward", iteration.forward, -first),
        ("backward", iteration.backward, behind),
    )
    for kind, spans, shift in passes:
        for start, end in spans:
            yield Interval(f"{name}: computation", start + shift, end + shift, kind, -1, kind)
    for number, (start, end) in enumerate(iteration.transfers):
        yield Interval(
            f"{name}: network",
            start + behind,
            end + behind,
            "all_reduce",
            number,
            f"all-reduce {number + 1}",
        )
