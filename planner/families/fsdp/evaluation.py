"""Price a plan: simulate the schedule of an iteration, and the memory at each moment.

A step issues its own gather if no earlier step did, waits for it, issues its prefetches, and
computes. A backward step then waits until few enough reduce-scatters hold their input, and issues
its own. Memory depends on the order of events only. Details: docs/fsdp.md, "The model" and "What is
in memory when".

Complexity: O(units). Source: ``_fsdp_param_group.py`` and ``_fsdp_collectives.py`` of torch 2.13
for the order of events; own model of when a stream frees memory.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.families.fsdp.lanes import GATHERS, REDUCES, lanes_of
from planner.families.fsdp.problem import Channels, Plan, Problem

MOMENTS = {
    "wait": "ready_ns",
    "copy": "start_ns",
    "compute": "start_ns",
    "end": "end_ns",
    "scatter": "left_ns",
}
"""When each stage of a step begins: fields of `Step`."""


class Step(NamedTuple):
    """Times of one step, the computation of a unit in one pass."""

    ready_ns: int  # end of the step before
    start_ns: int  # its parameters have arrived
    end_ns: int
    left_ns: int  # its gradients left, and the next step can begin; forward: its end


class Transfer(NamedTuple):
    """One transfer: a gather for a step, or the sum of gradients after it."""

    step: int
    issued_ns: int
    start_ns: int
    end_ns: int


class Load(NamedTuple):
    """Bytes and times of a unit.

    Computation times include recomputation; transfer times are without others on the links.
    """

    parameter_bytes: int
    gradient_bytes: int
    share_bytes: int  # a rank's share of the gradients
    activation_bytes: int  # held between its steps
    recomputed_bytes: int  # in its backward step in addition
    forward_ns: int
    backward_ns: int
    gather_ns: int
    reduce_ns: int
    sum_ns: int  # all-reduce over replicas


class Level(NamedTuple):
    """Bytes in memory at a moment, in addition to `Evaluation.state_bytes`.

    Stages: "wait" for parameters, "copy" them, "compute", "end" (computed, and freed), and
    "scatter" (copy gradients).
    """

    step: int
    stage: str
    parameters: int
    gradients: int  # with each rank's share of the sum
    activations: int
    buffers: int

    @property
    def moving(self) -> int:
        """Sum of all bytes."""
        return self.parameters + self.gradients + self.activations + self.buffers


@dataclass(frozen=True)
class Evaluation:
    """Cost, schedule and memory of a plan.

    Attributes
    ----------
    iteration_ns : int
        The objective.
    compute_ns, recompute_ns : int
        Time of all computations without recomputation, and of recomputation.
    steps : tuple of Step
        When each step is computed.
    gathers, reduces, sums : tuple of Transfer
        All-gathers, reduce-scatters, and all-reduces over replicas, in order of issue.
    state_bytes : int
        Memory that is used all the time.
    levels : tuple of Level
        Memory in addition to `state_bytes`, moment by moment.
    loads : tuple of Load
        Bytes and times of each unit.
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
        """Exposed communication: time in which nothing is computed."""
        return self.iteration_ns - self.compute_ns - self.recompute_ns

    @property
    def peak(self) -> Level:
        """The first moment of peak memory."""
        return max(self.levels, key=lambda level: level.moving)

    @property
    def peak_bytes(self) -> int:
        """Peak memory."""
        return self.state_bytes + self.peak.moving

    @property
    def memory(self) -> tuple[tuple[int, int], ...]:
        """Memory over time: pairs (ns, bytes) in order of time."""
        return tuple(
            (getattr(self.steps[level.step], MOMENTS[level.stage]), self.state_bytes + level.moving)
            for level in self.levels
        )


class Merit(NamedTuple):
    """Criteria by which plans are compared, in this order; less is better.

    Counts are per iteration. Transfers are gathers, reduce-scatters and sums; `gathered_bytes`
    counts parameters gathered twice twice. `peak_bytes` is the peak memory of a rank.
    """

    iteration_ns: int
    transfers: int
    gathered_bytes: int
    peak_bytes: int


class Schedule(NamedTuple):
    """Times of all steps and transfers; see `Evaluation`."""

    iteration_ns: int
    steps: tuple[Step, ...]
    gathers: tuple[Transfer, ...]
    reduces: tuple[Transfer, ...]
    sums: tuple[Transfer, ...]


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a plan that `planner.families.fsdp.checker.check` accepts."""
    mesh, loads = problem.meshes[plan.mesh], loads_of(problem, plan)
    state, apart = problem.state_bytes(mesh.shards), problem.apart(mesh)
    return evaluation_of(plan, loads, state, problem.channels, apart=apart)


def evaluation_of(
    plan: Plan, loads: Sequence[Load], state_bytes: int, channels: Channels, *, apart: bool
) -> Evaluation:
    """Return the evaluation of a plan whose units have these loads."""
    schedule = follow(plan, loads, channels, apart=apart)
    passes = sum(load.forward_ns + load.backward_ns for load in loads)
    again = sum(
        load.forward_ns for unit, load in zip(plan.units, loads, strict=True) if unit.recompute
    )
    return Evaluation(
        schedule.iteration_ns,
        passes - again,
        again,
        *schedule[1:],
        state_bytes,
        tuple(levels(plan, loads)),
        tuple(loads),
    )


def iteration_ns(problem: Problem, plan: Plan) -> int:
    """Return the iteration time, ignoring memory."""
    apart = problem.apart(problem.meshes[plan.mesh])
    return follow(plan, loads_of(problem, plan), problem.channels, apart=apart).iteration_ns


def peak_of(problem: Problem, plan: Plan) -> int:
    """Return the peak memory (bytes)."""
    state = problem.state_bytes(problem.meshes[plan.mesh].shards)
    return state + max(level.moving for level in levels(plan, loads_of(problem, plan)))


def merit(problem: Problem, plan: Plan) -> Merit:
    """Return a plan's criteria."""
    return Merit(iteration_ns(problem, plan), *sent_by(problem, plan), peak_of(problem, plan))


def sent_by(problem: Problem, plan: Plan) -> tuple[int, int]:
    """Return the number of transfers of an iteration, and the bytes that it gathers."""
    sizes, count = problem.prefixes["parameter_bytes"], len(plan.units)
    twice = [unit for unit in plan.units if not unit.keep]
    sums = count if problem.meshes[plan.mesh].replicas > 1 else 0
    again = sum(sizes[unit.stop] - sizes[unit.start] for unit in twice)
    return 2 * count + len(twice) + sums, sizes[-1] + again


def loads_of(problem: Problem, plan: Plan) -> tuple[Load, ...]:
    """Return bytes and times of a plan's units; cached in the problem."""
    known = problem.known
    loads = []
    for start, stop, _, recompute, *_ in plan.units:
        key = (plan.mesh, start, stop, recompute)
        if key not in known:
            known[key] = load_of(problem, *key)
        loads.append(known[key])
    return tuple(loads)


def load_of(problem: Problem, over: int, start: int, stop: int, recompute: bool = False) -> Load:
    """Return bytes and times of a unit on the mesh at place `over`."""
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
    shares = problem.share_sums[mesh.shards]
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
    """Return the schedule; `apart` is as in `lanes_of`."""
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
    """Yield the memory, moment by moment."""
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
