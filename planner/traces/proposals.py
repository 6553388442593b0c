"""What is proposed for a recorded job, and how sure its gain is.

Problem: a trace agrees with several readings, problems that predict the recorded step alike and
other settings differently. Which plan to propose, and what to promise? Method: each reading is
planned for; of these plans, the one whose least gain over all readings is largest is proposed. What
neither passes nor waits explain, such as the optimiser, is added to each step. The check: the
recorded step is predicted under its own settings; its error widens the interval of the gain.
Guarantee: none on predictions. `at_most` bounds the gain of any settings in all readings.
Complexity: plans × readings. Source: own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import hypot
from typing import Any, NamedTuple

from planner.model.errors import NotApplicableError
from planner.solving.advice import WORTH
from planner.solving.result import Result
from planner.solving.targets import Target
from planner.traces.recorded import Recorded

MOST_OFF = Fraction(1, 5)
"""A prediction of the recorded step that is further off gets no proposal."""

RESIDUAL = 0.025
"""Error of predicted gains of bucket sizes that nine of ten cases do not exceed.

Nineteen of twenty gains of DDP's bucket sizes (`benchmarks/runtime_real.py`) miss less beyond their
rounds. With it, 21 of 24 measured gains of DDP, ZeRO and FSDP2 are in their interval
(`benchmarks/tuned_traces.py`)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A problem that agrees with the trace, with the plan and the time (ns) of recorded settings.

    `outside_ns` is the time of passes and transfers that the problem leaves out. If transfers and
    computation take turns, `passes_ns` has that of each layer of units, forward and backward.
    `before` is the problem of the recorded settings, if they have another.
    """

    problem: Any
    traced: Any
    traced_ns: int
    outside_ns: int = 0
    passes_ns: tuple[tuple[int, int], ...] = ()
    before: Any = None


class Step(NamedTuple):
    """What was recorded of a job's steps with equal settings."""

    rank: int  # whose computation is planned for: the one that others wait for
    steps: int
    sizes: tuple[int, ...]  # bytes of its buckets or units, in the order in which they are sent
    parts: dict[str, int]  # of a step (ns): passes, waiting, and what else there is


@dataclass(frozen=True, slots=True)
class Proposal:
    """Settings planned for a recorded job, and what is known of their gain.

    Times are of a step (ns), gains are ratios of the step as recorded to the step as planned.
    """

    rank: int
    steps: int  # of the recording, with equal settings
    system: Target  # that sent what was recorded
    target: Target
    buckets: tuple[int, ...]  # bytes of the recorded buckets or units
    proposed: tuple[int, ...]  # bytes of the proposed ones
    step_ns: int  # as recorded
    predicted_ns: int  # under the recorded settings
    parts: dict[str, int]
    plan_ns: int  # predicted under the proposed settings
    gain: float
    least_gain: float  # in the worst reading, less the error of the check and `RESIDUAL`
    most_gain: float
    at_most: float | None  # no settings gain more, in any reading
    planned: tuple[Any, Result[Any, Any]]
    likeliest: Reading  # by which the step is predicted
    contention: bool  # whether it is known what transfers take from computation

    @property
    def plan(self) -> Any:
        """The proposed plan."""
        return self.planned[1].plan

    @property
    def error(self) -> float:
        """By how much the recorded step is predicted too long, as a share of it."""
        return self.predicted_ns / self.step_ns - 1

    @property
    def doubtful(self) -> bool:
        """Whether the recorded step is predicted too badly for a proposal."""
        return abs(self.error) > MOST_OFF

    @property
    def keep(self) -> bool:
        """Whether to keep the recorded settings: others may not be faster, or only a little."""
        return self.doubtful or self.gain < WORTH or self.least_gain < 1


def waited_for(ranks: Sequence[Recorded]) -> Recorded:
    """Return the rank whose transfers last the least in all: it waits for no other."""
    return min(ranks, key=lambda rank: sum(each.lasts_ns for each in rank.transfers))


def weighed(
    step: Step,
    readings: Sequence[Reading],
    results: Sequence[Result[Any, Any]],
    lasting: Callable[[Any, Any], int],
    sizes: Callable[[Any, Any], tuple[int, ...]],
    *,
    system: Target,
    target: Target,
    contention: bool,
) -> Proposal:
    """Return the proposal of planned readings, the likeliest first.

    `lasting` returns the time of a plan in a reading's problem (ns), `sizes` the bytes of its
    buckets or units.
    """
    step_ns = sum(step.parts.values())
    if not step_ns:
        raise NotApplicableError("", "the recorded steps take no time")
    others = [step.parts["other"] + reading.outside_ns for reading in readings]
    before = [other + reading.traced_ns for other, reading in zip(others, readings, strict=True)]

    def gains(result: Result[Any, Any]) -> list[float]:
        after = [
            other + lasting(reading.problem, result.plan)
            for other, reading in zip(others, readings, strict=True)
        ]
        return [old / new if new else 1.0 for old, new in zip(before, after, strict=True)]

    every = [gains(result) for result in results]
    chosen = max(range(len(every)), key=lambda place: (min(every[place]), -place))
    if min(every[chosen]) < 1:  # no plan is certain to gain: the likeliest reading's is taken
        chosen = 0
    gained = every[chosen]
    off = hypot(before[0] / step_ns - 1, RESIDUAL)
    bounds = [
        old / max(other + result.lower_bound_ns, 1)
        for old, other, result in zip(before, others, results, strict=True)
        if result.lower_bound_ns is not None
    ]
    problem, result = readings[chosen].problem, results[chosen]
    return Proposal(
        rank=step.rank,
        steps=step.steps,
        system=system,
        target=target,
        buckets=step.sizes,
        proposed=sizes(problem, result.plan),
        step_ns=step_ns,
        predicted_ns=before[0],
        parts=step.parts,
        plan_ns=round(step_ns / gained[0]),
        gain=gained[0],
        least_gain=min(gained) * (1 - off),
        most_gain=max(gained) * (1 + off),
        at_most=max(bounds) if len(bounds) == len(results) else None,
        planned=(problem, result),
        likeliest=readings[0],
        contention=contention,
    )
