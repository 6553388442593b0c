"""Verify plans: their form, and that they fit into memory at every moment.

Adds up memory independently of `planner.families.fsdp.evaluation`: as one interval of events for
each thing in memory. Complexity: O(layers + units). Source: own.
"""

from collections import deque
from collections.abc import Iterator
from itertools import accumulate, pairwise

from planner.families.fsdp.problem import Plan, Problem, Unit
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.units import format_bytes

_WAIT, _COPY, _COMPUTE, _SCATTER, _MOMENTS = range(5)  # moments of a step, and their number


def check(problem: Problem, plan: Plan) -> None:
    """Verify that a plan obeys the rules and the memory limit.

    Raises
    ------
    InvalidPlanError
        Naming the unit.
    BrokenConstraintError
        If it needs more than `Problem.memory_bytes`.
    """
    if not 0 <= plan.mesh < len(problem.meshes):
        raise InvalidPlanError("mesh", f"expected 0 to {len(problem.meshes) - 1}, got {plan.mesh}")
    check_form(plan, problem.layers)
    _check_units(problem, plan.units)
    limit = problem.memory_bytes
    if limit is not None and (peak := peak_memory(problem, plan)) > limit:
        raise BrokenConstraintError(
            "units",
            f"needs {format_bytes(peak)}, more than memory_bytes ({format_bytes(limit)})",
            "memory_bytes",
        )


def check_form(plan: Plan, layers: int) -> None:
    """Verify buffers, the layers of the units and the steps that issue gathers."""
    if plan.buffers < 1:
        raise InvalidPlanError("buffers", f"expected an integer >= 1, got {plan.buffers}")
    if plan.buffers > len(plan.units):
        most = f"expected at most {len(plan.units)}, as many as units"
        raise InvalidPlanError("buffers", f"{most}, got {plan.buffers}")
    reached = 0
    for place, unit in enumerate(plan.units):
        path = f"units[{place}]"
        if unit.start != reached:
            what = "overlaps the unit before" if unit.start < reached else "leaves a layer out"
            raise InvalidPlanError(path, f"{what}: expected start {reached}, got {unit.start}")
        if not unit.start < unit.stop <= layers:
            expected = f"expected stop from {reached + 1} to {layers}"
            raise InvalidPlanError(path, f"{expected}, got {unit.stop}")
        reached = unit.stop
    if reached != layers:
        raise InvalidPlanError("units", f"leave out layer {reached}")
    _check_issues(plan.units)


def _check_units(problem: Problem, units: tuple[Unit, ...]) -> None:
    for place, unit in enumerate(units):
        path = f"units[{place}]"
        if unit.recompute and problem.checkpoint_bytes is None:
            raise InvalidPlanError(f"{path}.recompute", "checkpoint_bytes is not known")
        if unit.recompute and not any(problem.activations[unit.start : unit.stop]):
            raise InvalidPlanError(f"{path}.recompute", "keeps nothing that could be recomputed")
    starts = {unit.start for unit in units}
    for first, last in problem.tied:
        if any(first < start <= last for start in starts):
            raise InvalidPlanError(
                "units", f"layers {first} and {last} share a parameter and are in two units"
            )


def _check_issues(units: tuple[Unit, ...]) -> None:
    """Verify the steps that issue gathers; raise `InvalidPlanError` with the unit."""
    last = 2 * len(units) - 1
    issued = []
    for u, unit in enumerate(units):
        path = f"units[{u}].forward_at"
        if not 0 <= unit.forward_at <= u:
            raise InvalidPlanError(path, f"expected a step from 0 to {u}, got {unit.forward_at}")
        issued.append((unit.forward_at, path))
    for u, unit in reversed(list(enumerate(units))):
        path = f"units[{u}].backward_at"
        if unit.keep != (unit.backward_at is None):
            expected = "none, as the unit is kept" if unit.keep else "a step"
            raise InvalidPlanError(path, f"expected {expected}")
        if unit.backward_at is None:
            continue
        first = u if u + 1 == len(units) else u + 1  # as in `Unit`
        if not first <= unit.backward_at <= last - u:
            expected = f"expected a step from {first} to {last - u}"
            raise InvalidPlanError(path, f"{expected}, got {unit.backward_at}")
        issued.append((unit.backward_at, path))
    for (before, _), (step, path) in pairwise(issued):
        if step < before:
            raise InvalidPlanError(path, f"issued in step {step}, before one that is used earlier")


def peak_memory(problem: Problem, plan: Plan) -> int:
    """Return the peak memory of a well-formed plan (bytes)."""
    moments = 2 * len(plan.units) * _MOMENTS
    change = [0] * (moments + 1)
    for first, last, size in _stretches(problem, plan):
        change[first] += size
        change[last + 1] -= size
    state = problem.state_bytes(problem.meshes[plan.mesh].shards)
    return state + max(accumulate(change))


def _stretches(problem: Problem, plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Yield (first moment, last moment, bytes) of everything in memory."""
    units = plan.units
    final = 2 * len(units) - 1

    def at(step: int, moment: int) -> int:
        return step * _MOMENTS + moment

    def gather(step: int, issued: int, size: int) -> tuple[int, int, int]:
        return at(issued, _WAIT if issued == step else _COMPUTE), at(step, _COPY), size

    scattered: deque[tuple[int, int]] = deque()
    for u, unit in reversed(list(enumerate(units))):
        layers = range(unit.start, unit.stop)
        size = sum(problem.parameter_bytes[i] for i in layers)
        back = final - u
        yield gather(u, unit.forward_at, size)
        if unit.backward_at is None:
            yield at(u, _COPY), at(back, _COMPUTE), size
        else:
            yield at(u, _COPY), at(u, _COMPUTE), size
            yield gather(back, unit.backward_at, size)
            yield at(back, _COPY), at(back, _COMPUTE), size
        kept = problem.checkpoints if unit.recompute else problem.activations
        yield at(u, _COMPUTE), at(back, _COMPUTE), sum(kept[i] for i in layers)
        if unit.recompute:
            again = max(problem.activations[i] for i in layers)
            yield at(back, _COMPUTE), at(back, _COMPUTE), again
        made = sum(problem.gradients[i] for i in layers)
        if len(scattered) == plan.buffers:
            begun, amount = scattered.popleft()
            yield begun, at(back, _SCATTER) - 1, amount
        if made:
            yield at(back, _COMPUTE), at(back, _SCATTER), made
            shards = problem.meshes[plan.mesh].shards
            share = sum(-(-problem.gradients[i] // shards) for i in layers)
            if u:
                yield at(back + 1, _WAIT), at(final, _MOMENTS - 1), share
            scattered.append((at(back, _SCATTER), made))
    for begun, amount in scattered:
        yield begun, at(final, _MOMENTS - 1), amount
