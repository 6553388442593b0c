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
  the sum from when they are gone.

Complexity: O(units). Source: ``_fsdp_param_group.py`` and ``_fsdp_collectives.py`` of torch 2.13
for the order of events; own model of when a stream frees what.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.fsdp.lanes import GATHERS, REDUCES, lanes_of
from planner.fsdp.plan import Plan
from planner.fsdp.problem import Channels, Problem

__all__ = [
    "MOMENTS",
    "Evaluation",
    "Level",
    "Load",
    "Merit",
    "Schedule",
    "Step",
    "Transfer",
    "evaluate",
    "follow",
    "iteration_ns",
    "levels",
    "loads_of",
    "merit",
    "peak_of",
    "sent_by",
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


class Load(NamedTuple):
    """What a unit of a plan is: its bytes, and how long its parts take alone.

    Attributes
    ----------
    parameter_bytes, gradient_bytes, share_bytes : int
        What is gathered, what is scattered, and a rank's share of that.
    activation_bytes, recomputed_bytes : int
        What it keeps between its steps, and what is there beside it in the backward one.
    forward_ns, backward_ns : int
        Its steps, with what is recomputed.
    gather_ns, reduce_ns, sum_ns : int
        Its transfers: all-gather, reduce-scatter, and all-reduce among copies.
    """

    parameter_bytes: int
    gradient_bytes: int
    share_bytes: int
    activation_bytes: int
    recomputed_bytes: int
    forward_ns: int
    backward_ns: int
    gather_ns: int
    reduce_ns: int
    sum_ns: int


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
    gathers, reduces, sums : tuple of Transfer
        All-gathers, reduce-scatters, and all-reduces among copies, in the order in which they are
        issued.
    state_bytes : int
        What is in memory all the time.
    levels : tuple of Level
        What is there beside it, moment by moment.
    loads : tuple of Load
        What each unit is.
    """

    iteration_ns: int
    compute_ns: int
    recompute_ns: int
    steps: tuple[Step, ...]
    gathers: tuple[Transfer, ...]
    reduces: tuple[Transfer, ...]
    sums: tuple[Transfer, ...]
    state_bytes: int
    levels: tuple[Level, ...]
    loads: tuple[Load, ...]

    @property
    def exposed_ns(self) -> int:
        """For how long nothing is computed."""
        return self.iteration_ns - self.compute_ns - self.recompute_ns

    @property
    def peak(self) -> Level:
        """The first moment at which most is in memory."""
        return max(self.levels, key=lambda level: level.moving)

    @property
    def peak_bytes(self) -> int:
        """Most that is in memory at once."""
        return self.state_bytes + self.peak.moving

    @property
    def memory(self) -> tuple[tuple[int, int], ...]:
        """What is in memory from each moment on: pairs of ns and bytes, in order of time."""
        return tuple(
            (getattr(self.steps[level.step], MOMENTS[level.stage]), self.state_bytes + level.moving)
            for level in self.levels
        )


class Merit(NamedTuple):
    """What plans are compared by, in this order; less is better.

    Attributes
    ----------
    iteration_ns : int
        The objective.
    transfers : int
        Gathers, reduce-scatters and sums of an iteration.
    gathered_bytes : int
        Parameters gathered in an iteration, those gathered twice included.
    peak_bytes : int
        The most memory a rank needs at once.
    """

    iteration_ns: int
    transfers: int
    gathered_bytes: int
    peak_bytes: int


class Schedule(NamedTuple):
    """When everything happens; see `Evaluation`."""

    iteration_ns: int
    steps: tuple[Step, ...]
    gathers: tuple[Transfer, ...]
    reduces: tuple[Transfer, ...]
    sums: tuple[Transfer, ...]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a plan that follows the rules; see `planner.fsdp.checker.check`."""
    loads = loads_of(problem, plan)
    schedule = _scheduled(problem, plan, loads)
    again = sum(
        sum(problem.forward_ns[unit.start : unit.stop]) for unit in plan.units if unit.recompute
    )
    return Evaluation(
        schedule.iteration_ns,
        problem.compute_ns,
        again,
        *schedule[1:],
        problem.state_bytes(problem.meshes[plan.mesh].shards),
        tuple(levels(plan, loads)),
        loads,
    )


def iteration_ns(problem: Problem, plan: Plan) -> int:
    """Return what an iteration takes, whatever the memory."""
    return _scheduled(problem, plan, loads_of(problem, plan)).iteration_ns


def _scheduled(problem: Problem, plan: Plan, loads: Sequence[Load]) -> Schedule:
    apart = problem.apart(problem.meshes[plan.mesh])
    return follow(plan, loads, problem.channels, apart=apart)


def peak_of(problem: Problem, plan: Plan) -> int:
    """Return the most that is in memory at once, in bytes."""
    state = problem.state_bytes(problem.meshes[plan.mesh].shards)
    return state + max(level.moving for level in levels(plan, loads_of(problem, plan)))


def merit(problem: Problem, plan: Plan) -> Merit:
    """Return what a plan is compared by."""
    ranges = tuple((unit.start, unit.stop) for unit in plan.units)
    sent = sent_by(problem, plan.mesh, ranges, tuple(unit.keep for unit in plan.units))
    return Merit(iteration_ns(problem, plan), *sent, peak_of(problem, plan))


def sent_by(
    problem: Problem, mesh: int, ranges: Sequence[tuple[int, int]], keep: Sequence[bool]
) -> tuple[int, int]:
    """Return how many transfers an iteration has, and the bytes that its gathers are about."""
    sizes, count = problem.prefixes["parameter_bytes"], len(ranges)
    twice = [layers for layers, kept in zip(ranges, keep, strict=True) if not kept]
    sums = count if problem.meshes[mesh].replicas > 1 else 0
    again = sum(sizes[stop] - sizes[start] for start, stop in twice)
    return 2 * count + len(twice) + sums, sizes[-1] + again


def loads_of(problem: Problem, plan: Plan) -> tuple[Load, ...]:
    """Return what the units of a plan are."""
    known = problem.known
    loads = []
    for start, stop, _, recompute, *_ in plan.units:
        key = (plan.mesh, start, stop, recompute)
        if key not in known:
            known[key] = _load(problem, *key)
        loads.append(known[key])
    return tuple(loads)


def _load(problem: Problem, over: int, start: int, stop: int, recompute: bool) -> Load:
    mesh = problem.meshes[over]
    prefixes = problem.prefixes
    parameters, gradients, whole, checkpoint, forward, backward = (
        prefixes[name][stop] - prefixes[name][start]
        for name in (
            "parameter_bytes",
            "gradients",
            "activations",
            "checkpoints",
            "forward_ns",
            "backward_ns",
        )
    )
    shares = problem.share_sums(mesh.shards)
    share = shares[stop] - shares[start]
    return Load(
        parameters,
        gradients,
        share,
        checkpoint if recompute else whole,
        max(problem.activations[start:stop]) if recompute else 0,
        forward,
        backward + forward if recompute else backward,
        mesh.gather_ns(parameters),
        mesh.reduce_ns(gradients),
        mesh.sum_ns(share),
    )


def follow(
    plan: Plan, loads: Sequence[Load], channels: Channels, *, apart: bool = True
) -> Schedule:
    """Return when everything happens; `apart` is as in `lanes_of`."""
    lanes = lanes_of(channels, apart=apart)
    steps: list[Step] = []
    gathers: dict[int, tuple[int, int]] = {}
    reduces: list[tuple[int, int, int]] = []
    held: deque[int] = deque()
    ready = 0
    for number, issues in enumerate(plan.issues):
        u = plan.unit_of(number)
        load, forward = loads[u], number < len(loads)
        if issues and issues[0] == number:
            gathers[number] = (lanes.issue(GATHERS, load.gather_ns, ready), ready)
        start = ready
        if forward or not plan.units[u].keep:
            start = max(ready, lanes.end(gathers[number][0]))
        for step in issues:
            if step != number:
                time = loads[plan.unit_of(step)].gather_ns
                gathers[step] = (lanes.issue(GATHERS, time, start), start)
        end = left = start + (load.forward_ns if forward else load.backward_ns)
        if not forward:
            while len(held) >= plan.buffers:
                left = max(left, lanes.end(held.popleft()))
            if load.gradient_bytes:
                transfer = lanes.issue(REDUCES, load.reduce_ns, left, load.sum_ns)
                reduces.append((number, transfer, left))
                held.append(transfer)
        steps.append(Step(ready, start, end, left))
        ready = left
    spans = lanes.spans()
    return Schedule(
        max(ready, *(end for _, end in spans)),
        tuple(steps),
        tuple(Transfer(step, now, *spans[which]) for step, (which, now) in gathers.items()),
        tuple(Transfer(step, now, *spans[which]) for step, which, now in reduces),
        tuple(
            Transfer(step, spans[which][1], *spans[which + 1])
            for step, which, _ in reduces
            if loads[plan.unit_of(step)].sum_ns
        ),
    )


def levels(plan: Plan, loads: Sequence[Load]) -> Iterator[Level]:
    """Yield what is in memory, moment by moment."""
    parameters = gradients = activations = buffers = 0
    held: deque[int] = deque()
    for number, issues in enumerate(plan.issues):
        u = plan.unit_of(number)
        load, forward = loads[u], number < len(loads)
        size = load.parameter_bytes
        if issues and issues[0] == number:
            buffers += size
        yield Level(number, "wait", parameters, gradients, activations, buffers)
        if forward or not plan.units[u].keep:
            parameters += size
            yield Level(number, "copy", parameters, gradients, activations, buffers)
            buffers -= size
        for step in issues:
            if step != number:
                buffers += loads[plan.unit_of(step)].parameter_bytes
        if forward:
            activations += load.activation_bytes
            yield Level(number, "compute", parameters, gradients, activations, buffers)
            parameters -= 0 if plan.units[u].keep else size
            yield Level(number, "end", parameters, gradients, activations, buffers)
            continue
        made = load.gradient_bytes
        gradients += made
        again = activations + load.recomputed_bytes
        yield Level(number, "compute", parameters, gradients, again, buffers)
        parameters -= size
        activations -= load.activation_bytes
        yield Level(number, "end", parameters, gradients, activations, buffers)
        while len(held) >= plan.buffers:
            buffers -= held.popleft()
        if made:
            buffers += made
            held.append(made)
            yield Level(number, "scatter", parameters, gradients, activations, buffers)
            gradients += load.share_bytes - made
