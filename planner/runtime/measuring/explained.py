"""Explain the differences between a measured run and its prediction in sentences. Needs no torch.

Method: A step is computation, waiting for transfers, and the rest (the update and gaps). Each part
is compared with the plan. A part that is off by more than `OFF`, and by a relevant share of the
step, gets a sentence with its likely cause. A transfer's time is that of the rank it occupies
least: the other ranks wait in it for the last rank, which says nothing about the network.
Complexity: O(n log n) for n events.
"""

import json
import platform
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from msgspec import UNSET

from planner.jsonio.runs import RatioReport
from planner.model import machine
from planner.model.units import counted, format_ns
from planner.programs import Answer
from planner.runtime.measuring.measured import (
    batches_of,
    compared,
    predicted_computation,
    predicted_transfers,
    slowest,
    waited_in,
)
from planner.runtime.measuring.trace import Event
from planner.solving.diagnostics import Circumstances, disturbances

if TYPE_CHECKING:
    from planner.runtime.world.world import World

OFF = 0.10
"""Tolerance: on a shared machine runs of the same plan differ by about as much."""

MATTERS = 0.03
"""Smaller shares of the step get no sentence, since other parts explain more."""

Run = tuple[Sequence[Sequence[Event]], int]
"""The events of every rank, and the first step that counts."""


def against(ratios: Sequence[float]) -> RatioReport:
    """Return the interval of a ratio over at least one round; a single one tells no difference.

    The true median lies in the interval with probability 1 - 2^(1-n) for n rounds.
    """
    low, high = min(ratios), max(ratios)
    differs = len(ratios) > 1 and not low <= 1 <= high
    return RatioReport(
        median=median(ratios), low=low, high=high, rounds=len(ratios), differs=differs
    )


def explained(
    answers: Sequence[Answer], runs: Sequence[Run], machine: Circumstances | None = None
) -> tuple[str, ...]:
    """Return the differences from the prediction, the whole step first, then the largest first."""
    steps = [step for events, first in runs for step in slowest(events, first)]
    if not steps:
        return ()
    times = {time.name: time for time in compared(answers, steps)}
    step, waited = times["step"], times["exposed communication"]
    parts: list[tuple[float, str]] = []
    other = () if machine is None else other_threads(answers, machine.each)
    why = "; ".join((*other, *(() if machine is None else disturbances(machine))))
    for passes, predicted in predicted_computation(answers).items():
        computed = _computation(runs, passes)
        about = "computation" if len(passes) > 1 else f"computation of the {passes[0]} pass"
        more = computed - predicted
        if _off(predicted, computed) and abs(more) > MATTERS * step.median_ns:
            parts.append((abs(more), _of_computation(about, predicted, computed, why, other)))
    if waited.predicted_ns is not None:
        more = waited.median_ns - waited.predicted_ns
        if abs(more) > MATTERS * step.median_ns and _off(waited.predicted_ns, waited.median_ns):
            took = format_ns(waited.median_ns)
            beyond = f"{format_ns(abs(more))} {'more' if more > 0 else 'less'} than predicted"
            parts.append((abs(more), f"computation waited {took} for transfers, {beyond}"))
    outside = median(taken.step_ns - taken.exposed_ns for taken in steps)
    rest = outside - _computation(runs, ("forward", "backward"))
    if step.predicted_ns is not None and rest > MATTERS * step.median_ns:
        took = format_ns(round(rest))
        text = f"the update, and what lies between passes, took {took}, which no plan counts"
        parts.append((rest, text))
    parts.sort(key=lambda part: -part[0])
    texts = [*_whole(step.predicted_ns, step.median_ns), *(text for _, text in parts)]
    return (*texts, *_of_transfers(answers, runs))


def _off(predicted: float, took: float) -> bool:
    return abs(took - predicted) > OFF * max(predicted, 1)


def _whole(predicted: int | None, took: int) -> Iterable[str]:
    if predicted is None:
        return
    more = took - predicted
    if _off(predicted, took):
        yield (
            f"a step took {format_ns(abs(more))} {'more' if more > 0 else 'less'} than the "
            f"{format_ns(predicted)} predicted"
        )
    else:
        yield f"a step took what was predicted, within {OFF:.0%}"


def other_threads(answers: Sequence[Answer], ranks: Sequence[int]) -> tuple[str, ...]:
    """Return a sentence if ranks compute with other threads than the profiles of the plans.

    `ranks` holds the threads of each rank; empty if unknown.
    """
    profiled = {answer.profile_threads for answer in answers if answer.profile_threads is not UNSET}
    if not ranks or not profiled or profiled == set(ranks):
        return ()
    planned = " and ".join(counted(count, "thread") for count in sorted(profiled))
    least, most = min(ranks), max(ranks)
    here = counted(most, "thread") if least == most else f"{least} to {most} threads"
    text = f"the profile was measured with {planned}, a rank here computes with {here}"
    if least != most or len(profiled) > 1:
        return (f"{text}: give planner profile and planner run the same --threads",)
    return (f"{text}: profile again with --threads {most}, or run with --threads {max(profiled)}",)


def _of_computation(about: str, predicted: int, took: int, why: str, other: Sequence[str]) -> str:
    text = (
        f"{about} took {took / max(predicted, 1):.2f} times as long as in the profile "
        f"({format_ns(took)}, not {format_ns(predicted)})"
    )
    if other and took < predicted:
        return f"{text}: {'; '.join(other)}"
    if took < predicted:
        return f"{text}: the profile is of a busier or slower machine, so profile again"
    return f"{text}: {why or 'nothing else ran here that would explain it, so profile again'}"


def _computation(runs: Sequence[Run], passes: Sequence[str]) -> int:
    """Return the median time of passes per step without waiting, on the slowest rank (ns)."""
    times: list[int] = []
    for ranks, first in runs:
        each = [_computed(events, passes) for events in ranks]
        common = set.intersection(*(set(steps) for steps in each))
        times += [max(steps[at] for steps in each) for at in common if at >= first]
    return round(median(times)) if times else 0


def _computed(events: Iterable[Event], passes: Sequence[str]) -> dict[int, int]:
    """Return the time of passes without waiting on one rank, by step (ns)."""
    known = tuple(events)
    waits = [event for event in known if event.kind == "wait"]
    whole = {event.step for event in known if event.kind == "step"}
    steps: dict[int, int] = {}
    for event in known:
        if event.kind in passes and event.step in whole:
            took = event.end_ns - event.start_ns - waited_in(event, waits)
            steps[event.step] = steps.get(event.step, 0) + took
    return steps


def _of_transfers(answers: Sequence[Answer], runs: Sequence[Run]) -> Iterable[str]:
    """Yield a sentence if transfers were slower or faster than the plan's network."""
    known = predicted_transfers(answers)
    pairs = {
        name: (known[name].time_ns, median(batch.sending_ns))
        for batch in batches_of(runs)
        if (name := (batch.direction, batch.batch)) in known and known[name].time_ns
    }
    predicted = sum(before for before, _ in pairs.values())
    took = sum(after for _, after in pairs.values())
    if not predicted or not _off(predicted, took):
        return
    ratios = {name: after / before for name, (before, after) in pairs.items()}
    worst = max(ratios, key=lambda name: abs(ratios[name] - 1))
    most_off = f"{worst[0]} batch {worst[1] + 1}".strip()
    slower = took > predicted
    most = f", {most_off} most: {ratios[worst]:.2f} times" if len(ratios) > 1 else ""
    state = "slower" if slower else "faster"
    yield (
        f"transfers took {took / predicted:.2f} times as long as the plan's network says, without "
        f"waiting for slower ranks{most}: it is {state} than was calibrated, or assumed, so plan "
        "with what planner calibrate network measures here"
    )


# ---
# Other load on the machine of rank 0 during a measurement. Needs no torch.


def machine_of(world: "World", threads: int, before: machine.Load) -> Circumstances:
    """Return the circumstances on the machine of rank 0 since `before`. Every rank has to call it.

    `threads` is the number of threads this rank computes with.
    """
    now = machine.Load.now()
    own_s = now.own_s - before.own_s
    own = json.dumps([platform.node(), threads, own_s, sorted(machine.affinity())])
    return together(world.gather("what computed", own), before, now)


def together(texts: tuple[str, ...], before: machine.Load, now: machine.Load) -> Circumstances:
    """Combine the ranks' reports for the machine of the first rank.

    `texts` hold for each rank its machine, threads, processor time (s) and allowed processors.
    """
    ranks = [json.loads(text) for text in texts]
    here = [rank for rank in ranks if rank[0] == ranks[0][0]]
    return Circumstances(
        threads=sum(rank[1] for rank in here),
        processors=len({number for rank in here for number in rank[3]}),
        others=now.others(before, sum(rank[2] for rank in here)),
        ranks=len(here),
        each=tuple(rank[1] for rank in ranks),
    )
