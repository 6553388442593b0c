"""Prices a plan: when everything happens, and what is in memory then.

The iteration is followed step by step. A step whose parameters have to be gathered and are not on
their way issues that as soon as the step before has ended; it begins when they have arrived, then
issues what it prefetches, then computes. A backward step that has ended waits until few enough
reduce-scatters are under way, and issues its own; the next step comes behind that.

What is in memory depends on the order of these events alone, not on their times:

- a gather has a buffer from its issue until its unit's computation begins, when the parameters
  have been copied out of it: for a moment both are there;
- parameters are freed with the step that they are gathered for, kept ones with the backward step;
- activations are kept from the forward to the backward step, whole or as checkpoints; those of a
  recomputed unit come back in its backward step, one layer after the other;
- gradients are there from the beginning of the backward step until they have been copied into the
  buffer of the reduce-scatter, that buffer until its end is waited for, and each rank's share of
  the sum from then on.

Complexity: O(units). Source: ``_fsdp_param_group.py`` and ``_fsdp_collectives.py`` of torch 2.13
for the order of events; own model of when a stream frees what.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planner.fsdp.lanes import GATHERS, REDUCES, lanes_of
from planner.fsdp.plan import Plan, Unit
from planner.fsdp.problem import Problem

__all__ = [
    "MOMENTS",
    "Evaluation",
    "Level",
    "Schedule",
    "Step",
    "Transfer",
    "evaluate",
    "levels",
    "peak_of",
    "simulate",
]


MOMENTS = {
    "wait": "ready_ns",
    "copy": "start_ns",
    "compute": "start_ns",
    "end": "end_ns",
    "scatter": "left_ns",
}
"""When each stage of a step begins: fields of `Step`."""


class Step(NamedTuple):
    """One computation: a unit's in one pass.

    Attributes
    ----------
    ready_ns, start_ns, end_ns : int
        When the step before was done, when parameters had arrived, and when it was computed.
    left_ns : int
        When its gradients left, and the next step could begin; the end of a forward step.
    """

    ready_ns: int
    start_ns: int
    end_ns: int
    left_ns: int


class Transfer(NamedTuple):
    """One transfer: a gather for a step, or the sum of gradients behind it.

    Attributes
    ----------
    step : int
        The step.
    issued_ns, start_ns, end_ns : int
        When it was issued, began and ended.
    """

    step: int
    issued_ns: int
    start_ns: int
    end_ns: int


class Level(NamedTuple):
    """What is in memory at a moment, beside what is there all the time.

    Attributes
    ----------
    step : int
        The step.
    stage : {"wait", "copy", "compute", "end", "scatter"}
        While it waits for parameters, as they are copied, while it computes, when it has computed
        and freed what it does not need, as gradients are copied.
    parameters, gradients, activations, buffers : int
        Bytes; gradients with each rank's share of the sum.
    """

    step: int
    stage: str
    parameters: int
    gradients: int
    activations: int
    buffers: int

    @property
    def moving(self) -> int:
        """All of it."""
        return self.parameters + self.gradients + self.activations + self.buffers


@dataclass(frozen=True)
class Evaluation:
    """What a plan costs.

    Attributes
    ----------
    iteration_ns : int
        The objective.
    compute_ns, recompute_ns : int
        Time of all computations, and of those made a second time, which it does not include.
    steps : tuple of Step
        When each step is computed.
    gathers, reduces : tuple of Transfer
        In the order in which they are issued.
    state_bytes : int
        What is in memory all the time.
    levels : tuple of Level
        What is there beside it, moment by moment.
    """

    iteration_ns: int
    compute_ns: int
    recompute_ns: int
    steps: tuple[Step, ...]
    gathers: tuple[Transfer, ...]
    reduces: tuple[Transfer, ...]
    state_bytes: int
    levels: tuple[Level, ...]

    @property
    def exposed_ns(self) -> int:
        """For how long nothing is computed."""
        return self.iteration_ns - self.compute_ns - self.recompute_ns

    @cached_property
    def peak(self) -> Level:
        """The first moment at which most is in memory."""
        return max(self.levels, key=lambda level: level.moving)

    @property
    def peak_bytes(self) -> int:
        """Most that is in memory at once."""
        return self.state_bytes + self.peak.moving

    @cached_property
    def memory(self) -> tuple[tuple[int, int], ...]:
        """What is in memory from each moment on: pairs of ns and bytes, in order of time."""
        return tuple(
            (getattr(self.steps[level.step], MOMENTS[level.stage]), self.state_bytes + level.moving)
            for level in self.levels
        )


class Schedule(NamedTuple):
    """When everything happens; see `Evaluation`."""

    iteration_ns: int
    recompute_ns: int
    steps: tuple[Step, ...]
    gathers: tuple[Transfer, ...]
    reduces: tuple[Transfer, ...]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a plan that follows the rules; see `planner.fsdp.checker.check`."""
    schedule = simulate(problem, plan)
    return Evaluation(
        schedule.iteration_ns,
        problem.compute_ns,
        schedule.recompute_ns,
        schedule.steps,
        schedule.gathers,
        schedule.reduces,
        problem.state_bytes(problem.meshes[plan.mesh].shards),
        tuple(levels(problem, plan)),
    )


def simulate(problem: Problem, plan: Plan) -> Schedule:
    """Return when everything happens, whatever the memory."""
    mesh, units, lanes = problem.meshes[plan.mesh], plan.units, lanes_of(problem.channels)
    sums, shares = problem.prefixes, problem.shares(mesh.shards)
    times = [mesh.gather_ns(_between(sums["parameter_bytes"], unit)) for unit in units]
    steps: list[Step] = []
    gathers: dict[int, tuple[int, int]] = {}
    reduces: list[tuple[int, int, int]] = []
    held: deque[int] = deque()
    ready = recomputed = 0
    for number, issues in enumerate(plan.issues):
        u = plan.unit_of(number)
        unit, forward = units[u], number < len(units)
        if issues and issues[0] == number:
            gathers[number] = (lanes.issue(GATHERS, times[u], ready), ready)
        start = ready
        if forward or not unit.keep:
            start = max(ready, lanes.end(gathers[number][0]))
        for step in issues:
            if step != number:
                transfer = lanes.issue(GATHERS, times[plan.unit_of(step)], start)
                gathers[step] = (transfer, start)
        computes = _between(sums["forward_ns" if forward else "backward_ns"], unit)
        if unit.recompute and not forward:
            again = _between(sums["forward_ns"], unit)
            recomputed += again
            computes += again
        end = left = start + computes
        if not forward:
            while len(held) >= plan.buffers:
                left = max(left, lanes.end(held.popleft()))
            size = _between(sums["gradients"], unit)
            if size:
                share = sum(shares[unit.start : unit.stop])
                transfer = lanes.issue(REDUCES, mesh.reduce_ns(size, share), left)
                reduces.append((number, transfer, left))
                held.append(transfer)
        steps.append(Step(ready, start, end, left))
        ready = left
    spans = lanes.spans()
    return Schedule(
        max(ready, *(end for _, end in spans)),
        recomputed,
        tuple(steps),
        tuple(Transfer(step, now, *spans[which]) for step, (which, now) in gathers.items()),
        tuple(Transfer(step, now, *spans[which]) for step, which, now in reduces),
    )


def levels(problem: Problem, plan: Plan) -> Iterator[Level]:
    """Yield what is in memory, moment by moment."""
    units, sums = plan.units, problem.prefixes
    shares = problem.shares(problem.meshes[plan.mesh].shards)
    parameters = gradients = activations = buffers = 0
    held: deque[int] = deque()

    def size(step: int) -> int:
        return _between(sums["parameter_bytes"], units[plan.unit_of(step)])

    for number, issues in enumerate(plan.issues):
        unit = units[plan.unit_of(number)]
        forward = number < len(units)
        if issues and issues[0] == number:
            buffers += size(number)
        yield Level(number, "wait", parameters, gradients, activations, buffers)
        if forward or not unit.keep:
            parameters += size(number)
            yield Level(number, "copy", parameters, gradients, activations, buffers)
            buffers -= size(number)
        buffers += sum(size(step) for step in issues if step != number)
        remembered = _between(sums["checkpoints" if unit.recompute else "activations"], unit)
        if forward:
            activations += remembered
            yield Level(number, "compute", parameters, gradients, activations, buffers)
            parameters -= 0 if unit.keep else size(number)
            yield Level(number, "end", parameters, gradients, activations, buffers)
            continue
        made = _between(sums["gradients"], unit)
        gradients += made
        again = 0
        if unit.recompute:
            again = max(problem.activations[unit.start : unit.stop])
        yield Level(number, "compute", parameters, gradients, activations + again, buffers)
        parameters -= size(number)
        activations -= remembered
        yield Level(number, "end", parameters, gradients, activations, buffers)
        while len(held) >= plan.buffers:
            buffers -= held.popleft()
        if made:
            buffers += made
            gradients += sum(shares[unit.start : unit.stop])
            held.append(made)
            yield Level(number, "scatter", parameters, gradients, activations, buffers)
            gradients -= made


def peak_of(problem: Problem, plan: Plan) -> int:
    """Return the most that is in memory at once, in bytes."""
    state = problem.state_bytes(problem.meshes[plan.mesh].shards)
    return state + max(level.moving for level in levels(problem, plan))


def _between(sums: Sequence[int], unit: Unit) -> int:
    return sums[unit.stop] - sums[unit.start]
