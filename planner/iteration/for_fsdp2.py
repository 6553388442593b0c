"""Units of FSDP2: which modules are gathered, and their gradients scattered, as one.

Problem: FSDP2 shards whole modules. A unit's gradients are scattered when all of them are ready,
its parameters gathered before it computes; the same units serve both. Which consecutive modules, in
order of use, make the shortest iteration?

Method: all scatters come before all gathers, which begin when the last one and the backward pass
have ended, at T. From T on the gathers follow one another, so an iteration lasts T + g with
g = max over units of (gathers up to it + computation from it on). Going through the modules from
the last used to the first, a unit in front of others makes of their last scatter's end f and their
g: max(f, its readiness) + scatter, and gather + max(its computation, g). Less of both is never
worse, so of all units from one module on only undominated pairs (f, g) are kept.

Guarantee: where modules' gradients become ready in the reverse order of their use, the best of
all plans with consecutive units, as long as at most `MAX_KEPT` pairs are kept at a module. Never
slower than each module by itself, or all in one.
Complexity: O(modules² · kept). Source: own; the rules are those of `planner.targets.FSDP2`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from planner.deadline import Deadline, TimeUpError
from planner.iteration.evaluation import evaluate
from planner.iteration.plan import Kind, Plan, Transfer
from planner.iteration.problem import Part, Problem
from planner.iteration.ways import Synchronisation
from planner.methods import Outcome

__all__ = ["MAX_KEPT", "default", "modules_of", "planned"]

MAX_KEPT = 64
"""Pairs kept of the units from one module on."""


class _Kept(NamedTuple):
    """Units from one module on: end of their scatters, what gathers take, the units."""

    scattered: int
    gathered: int
    units: Any  # where the first ends, and the units behind it


def modules_of(problem: Problem) -> list[tuple[int, ...]]:
    """Return the parameters of each module, in order of the first use.

    A parameter ``block.conv.weight`` is one of the module ``block.conv``.
    """
    known = problem.base.windows
    members: dict[str, list[int]] = {}
    for j, parameter in enumerate(problem.graph.parameters):
        members.setdefault(parameter.name.rpartition(".")[0], []).append(j)
    return sorted(
        map(tuple, members.values()),
        key=lambda module: (-max(known.tails[j] for j in module), module),
    )


def planned(
    problem: Problem, option: Synchronisation, deadline: Deadline, room: int | None
) -> Outcome[Plan]:
    """Return the best plan of consecutive modules, or a default.

    Parameters
    ----------
    problem : Problem
        The problem.
    option : Synchronisation
        By what units are gathered and scattered.
    deadline : Deadline
        When to take a default.
    room : int or None
        Bytes of the largest unit of several modules.
    """
    candidates = [] if room is not None else [default(problem, option).plan]
    bound, timed_out = None, False
    try:
        units, bound = _best(problem, option, deadline, room)
        candidates.append(_plan(problem, option, units))
    except TimeUpError:
        timed_out = True
        candidates.append(_plan(problem, option, modules_of(problem)))
    plans = [plan for plan in candidates if plan is not None]
    best = min(plans, key=lambda plan: evaluate(problem, plan).iteration_ns)
    return Outcome(best, bound if problem.interference.is_none else None, timed_out)


def default(problem: Problem, option: Synchronisation) -> Outcome[Plan]:
    """Return what one does without a plan: every module a unit, or all of them, what is faster."""
    modules = modules_of(problem)
    everything = [tuple(j for module in modules for j in module)]
    plans = [_plan(problem, option, units) for units in (modules, everything)]
    return Outcome(min(plans, key=lambda plan: evaluate(problem, plan).iteration_ns))


def _best(
    problem: Problem, option: Synchronisation, deadline: Deadline, room: int | None
) -> tuple[list[tuple[int, ...]], int | None]:
    """Return the best units, and the bound if they are proven."""
    modules, known = modules_of(problem), problem.base.windows
    heads = [max(known.heads[j] for j in module) for module in modules]
    tails = [max(known.tails[j] for j in module) for module in modules]
    pushed = [sum(problem.pushed[j] for j in module) for module in modules]
    pulled = [sum(problem.pulled[j] for j in module) for module in modules]
    proven = all(before >= after for before, after in pairwise(heads))
    count = len(modules)
    kept: list[list[_Kept]] = [[] for _ in range(count)] + [[_Kept(0, 0, None)]]
    for start in range(count - 1, -1, -1):
        deadline.check()
        candidates = []
        ready = up = down = 0
        for stop in range(start + 1, count + 1):
            ready = max(ready, heads[stop - 1])
            up, down = up + pushed[stop - 1], down + pulled[stop - 1]
            if room is not None and stop > start + 1 and max(up, down) > room:
                break
            scatter, gather = option.half.cost_ns(up), option.pull.cost_ns(down)
            for scattered, gathered, units in kept[stop]:
                candidates.append(
                    _Kept(
                        max(scattered, ready) + scatter,
                        gather + max(tails[start], gathered),
                        (stop, units),
                    )
                )
        kept[start] = _undominated(candidates)
        proven &= len(kept[start]) <= MAX_KEPT
        kept[start] = kept[start][:MAX_KEPT]

    def lasts(label: _Kept) -> int:
        return max(max(label.scattered, known.backward_ns) + label.gathered, known.compute_ns)

    best = min(kept[0], key=lasts)
    units, start, trail = [], 0, best.units
    while trail is not None:
        stop, trail = trail
        units.append(tuple(j for module in modules[start:stop] for j in module))
        start = stop
    return units, lasts(best) if proven else None


def _undominated(candidates: Sequence[_Kept]) -> list[_Kept]:
    """Return those than which no other scatters and gathers as early."""
    best: list[_Kept] = []
    for label in sorted(candidates, key=lambda label: label[:2]):
        if not best or label.gathered < best[-1].gathered:
            best.append(label)
    return best


def _plan(problem: Problem, option: Synchronisation, units: Sequence[tuple[int, ...]]) -> Plan:
    known, order = problem.base.windows, problem.base.order
    last_first = list(reversed(units))
    by_readiness = sorted(last_first, key=lambda unit: max(known.heads[j] for j in unit))

    def whole(kind: Kind, unit: Sequence[int], sizes: Sequence[int]) -> Transfer:
        return Transfer(kind, tuple(Part(j, 0, sizes[j]) for j in unit))

    transfers = (
        *(whole("push", unit, problem.pushed) for unit in by_readiness),
        *(whole("pull", unit, problem.pulled) for unit in units),
    )
    return Plan(option.algorithm, transfers, (order.backward,), order.forward)
