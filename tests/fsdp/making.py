"""Small problems, every plan of one, and what a plan takes, nanosecond by nanosecond."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from hypothesis import strategies as st

from planner import AffineCost
from planner.families.fsdp import Mesh, Plan, Problem, Unit
from planner.families.fsdp.problem import Channels
from planner.testing import problems as drawn

LISTS = {
    *("forward_ns", "backward_ns", "parameter_bytes"),
    *("gradient_bytes", "activation_bytes", "checkpoint_bytes"),
}


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    max_layers: int = 3,
    channels: Channels | None = None,
    recomputed: bool | None = None,
) -> Problem:
    """Problems without a memory limit."""
    problem: Problem = draw(drawn("fsdp", max_layers))
    checkpoints = None
    if draw(st.booleans()) if recomputed is None else recomputed:
        checkpoints = [draw(st.integers(0, most)) for most in problem.activations]
    if channels is not None:
        problem = replace(problem, channels=channels)
    return replace(problem, checkpoint_bytes=checkpoints)


@st.composite
def plans(draw: st.DrawFn, problem: Problem) -> Plan:
    """Any plan of a problem, whether or not it fits into memory."""
    cuts = [0, *(i for i in range(1, problem.layers) if draw(st.booleans()))]
    stops = [*cuts[1:], problem.layers]
    count = len(cuts)
    keep = [draw(st.booleans()) for _ in cuts]
    steps, earliest = {}, 0
    for step in range(2 * count):
        u = step if step < count else 2 * count - 1 - step
        if step >= count and keep[u]:
            continue
        earliest = max(earliest, _soonest(step, count))
        earliest = steps[step] = draw(st.integers(earliest, step))
    known = problem.checkpoint_bytes is not None
    units = [
        Unit(
            start,
            stop,
            keep[u],
            known and any(problem.activations[start:stop]) and draw(st.booleans()),
            steps[u],
            steps.get(2 * count - 1 - u),
        )
        for u, (start, stop) in enumerate(zip(cuts, stops, strict=True))
    ]
    return Plan(0, tuple(units), draw(st.integers(1, count)))


def every_plan(problem: Problem) -> Iterator[Plan]:
    """Yield all plans, whether or not they fit into memory."""
    layers = problem.layers
    for mesh in range(len(problem.meshes)):
        for cuts in product((False, True), repeat=layers - 1):
            starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut)]
            ranges = list(zip(starts, [*starts[1:], layers], strict=True))
            known = problem.checkpoint_bytes is not None
            again = [
                (False, True) if known and any(problem.activations[start:stop]) else (False,)
                for start, stop in ranges
            ]
            for keep in product((False, True), repeat=len(ranges)):
                for recompute in product(*again):
                    yield from _issued(mesh, ranges, keep, recompute)


def _soonest(step: int, count: int) -> int:
    """Return the first step that may issue a gather for another, of so many units."""
    if step < count:
        return 0
    return count - 1 if step == count else 2 * count - step


def _issued(
    mesh: int,
    ranges: Sequence[tuple[int, int]],
    keep: Sequence[bool],
    recompute: Sequence[bool],
) -> Iterator[Plan]:
    count = len(ranges)
    backward = [u for u in reversed(range(count)) if not keep[u]]
    choices = [*(range(u + 1) for u in range(count))]
    choices += [range(_soonest(2 * count - 1 - u, count), 2 * count - u) for u in backward]
    for steps in product(*choices):
        if list(steps) != sorted(steps):
            continue
        again = dict(zip(backward, steps[count:], strict=True))
        units = tuple(
            Unit(start, stop, keep[u], recompute[u], steps[u], again.get(u))
            for u, (start, stop) in enumerate(ranges)
        )
        for buffers in range(1, count + 1):
            yield Plan(mesh, units, buffers)


def followed(problem: Problem, plan: Plan) -> int:
    """Return what an iteration takes, nanosecond by nanosecond.

    A list of commands as a host gives them, and queues that a nanosecond takes something off.
    """
    mesh, count = problem.meshes[plan.mesh], len(plan.units)
    commands: deque[tuple[str, int, int]] = deque()
    held: deque[int] = deque()
    sums: dict[int, int] = {}
    last = 2 * count - 1

    def gather(step: int) -> tuple[str, int, int]:
        unit = plan.units[min(step, last - step)]
        size = sum(problem.parameter_bytes[unit.start : unit.stop])
        return "gather", step, mesh.all_gather.cost_ns(size)

    at = {u: unit.forward_at for u, unit in enumerate(plan.units)}
    at |= {
        last - u: unit.backward_at
        for u, unit in enumerate(plan.units)
        if unit.backward_at is not None
    }
    for step in range(2 * count):
        unit = plan.units[min(step, last - step)]
        layers = slice(unit.start, unit.stop)
        if at.get(step) == step:
            commands.append(gather(step))
        if step in at:
            commands.append(("await", step, 0))
        commands += [gather(other) for other in sorted(at) if at[other] == step < other]
        forward = sum(problem.forward_ns[layers])
        time = forward
        if step >= count:
            time = sum(problem.backward_ns[layers]) + (forward if unit.recompute else 0)
        commands.append(("compute", step, time))
        if step < count:
            continue
        while len(held) >= plan.buffers:
            commands.append(("await", held.popleft(), 0))
        size = sum(problem.gradients[layers])
        if size:
            commands.append(("reduce", -1 - step, mesh.reduce_scatter.cost_ns(size)))
            held.append(-1 - step)
            if mesh.all_reduce is not None:
                share = sum(-(-made // mesh.shards) for made in problem.gradients[layers])
                sums[-1 - step] = mesh.all_reduce.cost_ns(share)
    sharing = {"one": [0, 2], "two": [], "shared": [0, 1, 2]}[problem.channels]
    if mesh.own_links and sharing:
        sharing.remove(2)
    return _run(commands, sums, sharing, 0 if problem.channels == "one" else 1)


def _run(
    commands: deque[tuple[str, int, int]], sums: dict[int, int], sharing: list[int], scatters: int
) -> int:
    """Follow commands on three queues, of which some share links; one of them scatters."""
    queues: list[deque[list[int]]] = [deque() for _ in range(3)]
    done: set[int] = set()
    now, computing = 0, -1
    while True:
        going = True
        while going:
            going = False
            for queue in queues:
                if queue and queue[0][1] <= 0:
                    name, _ = queue.popleft()
                    done.add(name)
                    if name in sums:
                        queues[2].append([10**6 + name, 6 * sums.pop(name)])
                    going = True
            if computing > now or not commands:
                continue
            kind, name, time = commands[0]
            if kind == "await" and name not in done:
                continue
            commands.popleft()
            going = True
            if kind == "compute":
                computing = now + time
            elif kind != "await":
                queues[scatters if kind == "reduce" else 0].append([name, 6 * time])
        if not commands and computing <= now and not any(queues):
            return now
        busy = sum(1 for place in sharing if queues[place])
        for place, queue in enumerate(queues):
            if queue:
                queue[0][1] -= 6 // busy if place in sharing else 6
        now += 1


def one_mesh(startup_ns: int, ns_per_byte: int, shards: int = 4) -> Mesh:
    """Return a mesh whose gathers and reduce-scatters cost the same."""
    cost = AffineCost(startup_ns, Fraction(ns_per_byte))
    return Mesh(shards=shards, all_gather=cost, reduce_scatter=cost)


def chain(count: int, **fields: Any) -> Problem:
    """Return so many equal layers; `fields` are those of a problem, one number for all layers."""
    known = {
        "forward_ns": 10,
        "backward_ns": 20,
        "parameter_bytes": 40,
        "activation_bytes": 5,
        "meshes": [one_mesh(0, 1)],
        **fields,
    }
    for name in LISTS & known.keys():
        if isinstance(known[name], int):
            known[name] = (known[name],) * count
    return Problem(**known)


def kept(*stops: int) -> tuple[Unit, ...]:
    """Return units that end at the stops, all gathered at once and kept."""
    return tuple(Unit(*layers, True, False, 0, None) for layers in pairwise((0, *stops)))
