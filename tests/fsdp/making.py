"""Small problems, every plan of one, and what a plan takes, nanosecond by nanosecond."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

from hypothesis import strategies as st

from planner import AffineCost
from planner.families.fsdp import Mesh, Plan, Problem, Unit
from planner.families.fsdp.problem import Channels
from planner.testing import problems as any_problems

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
    """Problems without a memory limit, recomputed layers of which save anything up to all."""
    problem: Problem = draw(any_problems("fsdp", max_layers))
    checkpoints = None
    if draw(st.booleans()) if recomputed is None else recomputed:
        checkpoints = [draw(st.integers(0, most)) for most in problem.activations]
    chosen = channels or problem.channels
    return replace(problem, checkpoint_bytes=checkpoints, channels=chosen)


Choose: TypeAlias = Callable[[Sequence[Any]], Any]
"""Chooses one of several."""


def plans(problem: Problem) -> st.SearchStrategy[Plan]:
    """Any plan of a problem, whether or not it fits into memory."""
    return st.composite(lambda draw: _made(problem, lambda some: draw(st.sampled_from(some))))()


def every_plan(problem: Problem) -> Iterator[Plan]:
    """Yield all plans, whether or not they fit into memory."""
    following: list[int] | None = []
    while following is not None:
        chosen: list[tuple[int, int]] = []  # which, of how many

        yield _made(problem, partial(_choose, following, chosen))
        while chosen and chosen[-1][0] + 1 == chosen[-1][1]:
            chosen.pop()
        following = [place for place, _ in chosen]
        following = [*following[:-1], following[-1] + 1] if following else None


def _choose(given: Sequence[int], chosen: list[tuple[int, int]], some: Sequence[Any]) -> Any:
    """Choose as given, then always the first; note it."""
    place = given[len(chosen)] if len(chosen) < len(given) else 0
    chosen.append((place, len(some)))
    return some[place]


def _made(problem: Problem, choose: Choose) -> Plan:
    """Make a plan by choices that are all allowed."""
    mesh = choose(range(len(problem.meshes)))
    cuts = [0, *(i for i in range(1, problem.layers) if choose((False, True)))]
    count, steps, earliest = len(cuts), {}, 0
    keep = [choose((False, True)) for _ in cuts]
    for step in range(2 * count):
        if step >= count and keep[2 * count - 1 - step]:
            continue
        # Again at the earliest behind the unit's forward step; the last unit's is beside it.
        soonest = 0 if step < count else count - 1 if step == count else 2 * count - step
        earliest = steps[step] = choose(range(max(earliest, soonest), step + 1))
    units = []
    for u, (start, stop) in enumerate(pairwise((*cuts, problem.layers))):
        again = problem.checkpoint_bytes is not None and any(problem.activations[start:stop])
        recompute = choose((False, True)) if again else False
        backward = steps.get(2 * count - 1 - u)
        units.append(Unit(start, stop, keep[u], recompute, steps[u], backward))
    return Plan(mesh, tuple(units), choose(range(1, count + 1)))


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
    again = ((last - u, unit.backward_at) for u, unit in enumerate(plan.units))
    at |= {step: place for step, place in again if place is not None}
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
    """Return `count` equal layers; a field of the problem has one number for all of them."""
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
