"""Baselines: plans of single families, and of other systems, on the same cluster.

A baseline's best plan over the algorithms of today's libraries counts; but iBatch sends by
parameter servers, BigDL by shuffles and BML by itself, as their papers do. Baselines with gradients
only (`ddp`, `horovod`, `mg_wfbp`, `bytescheduler`, `layer_by_layer`, `caramel`) are methods of
`planner.caramel`; of these only Caramel enforces an op order. All others use the activation order.

Guarantee: none.
Complexity: that of the families' methods.
Source: as named in each family; Li et al., "Scaling Distributed Machine Learning with the Parameter
Server", OSDI 2014.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from planner.families import caramel, ibatch
from planner.families.caramel.methods import Method
from planner.families.iteration.plan import MEASURED, Plan, Way, from_gradients
from planner.families.iteration.problem import Problem
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.transfers import Kind, Part, Transfer

# ---
# Sharded plans: iBatch both ways, on one channel.
#
# Problem: every worker updates its share of the parameters. Batch the pushes and the pulls. Method:
# with all pushes before all pulls the two sides are independent: the pulls start when the pushes
# and the backward pass have ended. Each side is solved exactly by `planner.ibatch`, with parameters
# as layers, in order of readiness and of first read. Guarantee: the least iteration of all plans of
# whole parameters within the transfer limit whose pushes, in order of readiness, come before all
# pulls, in order of use. Another order of parameters ready at once can save rounding. Complexity:
# that of iBatch's exact method, near-linear or quadratic in the parameters. Source: Wang et al.,
# iBatch, for batches; the composition is our own.


def both_ways(
    problem: Problem, synchronisation: Way, room: int | None = None
) -> tuple[Transfer, ...]:
    """Return pushes and pulls, each side batched exactly.

    `room`: largest batch (bytes); ignored by a side with a larger parameter.
    """
    known = problem.base.windows
    pushes = _batches("push", known.heads, problem.pushed, synchronisation, room)
    pulls = _batches("pull", known.tails, problem.pulled, synchronisation, room)
    return (*pushes, *pulls)


def _batches(
    kind: Kind, moments: Sequence[int], sizes: Sequence[int], synchronisation: Way, room: int | None
) -> list[Transfer]:
    """Return the transfers of one side; differences between heads, or tails, are computation."""
    order = sorted(range(len(sizes)), key=lambda j: (-moments[j], j))
    falling = [*(moments[j] for j in order), 0]
    side = ibatch.Problem(
        compute_ns=tuple(moment - following for moment, following in pairwise(falling)),
        layer_bytes=tuple(sizes[j] for j in order),
        cost=synchronisation.cost(kind),
        direction="push" if kind == "push" else "pull",
        max_batch_bytes=None if room is None or room < max(sizes) else room,
    )
    plan = ibatch.solve(side).plan
    assert plan is not None  # every parameter fits by itself
    return [_whole(kind, order[start:stop], sizes) for start, stop in plan.batches]


Rule = Callable[[Problem, Way, Deadline], Plan]


def by_gradients(method: Method) -> Rule:
    """Return the baseline that sends gradients by a method of `planner.caramel`."""

    def planned(problem: Problem, synchronisation: Way, deadline: Deadline) -> Plan:
        name = synchronisation.algorithm
        plan = method(problem.gradients[name], deadline).plan
        assert plan is not None
        return from_gradients(name, plan)

    return planned


def enforced(problem: Problem, algorithm: str, transfers: Iterable[Transfer]) -> Plan:
    """Return these transfers as a plan in which all workers keep to the problem's op order."""
    order = problem.base.order
    return Plan(algorithm, tuple(transfers), (order.backward,), order.forward)


def servers(problem: Problem, synchronisation: Way, _: Deadline = NEVER) -> Plan:
    """Push every parameter when it is ready, then pull every parameter in order of use.

    As in MXNet's key-value store, with a server on every machine.
    """
    return _apart(problem, synchronisation, [[j] for j in range(len(problem.pushed))])


def _apart(problem: Problem, synchronisation: Way, units: Sequence[Sequence[int]]) -> Plan:
    known = problem.base.windows
    by_readiness = sorted(units, key=lambda unit: (known.heads[unit[0]], -unit[0]))
    by_use = sorted(units, key=lambda unit: (-known.tails[unit[0]], unit[0]))
    transfers = [
        *(_whole("push", unit, problem.pushed) for unit in by_readiness),
        *(_whole("pull", unit, problem.pulled) for unit in by_use),
    ]
    return enforced(problem, synchronisation.algorithm, transfers)


def _whole(kind: Kind, unit: Sequence[int], sizes: Sequence[int]) -> Transfer:
    return Transfer(tuple(Part(j, 0, sizes[j]) for j in unit), kind=kind)


def _ibatch(problem: Problem, synchronisation: Way, _: Deadline) -> Plan:
    batches = both_ways(problem, synchronisation, problem.transfer_limit("sharded"))
    return enforced(problem, synchronisation.algorithm, batches)


def _bigdl(problem: Problem, synchronisation: Way, _: Deadline) -> Plan:
    return _apart(problem, synchronisation, [range(len(problem.pushed))])


def _bml(problem: Problem, synchronisation: Way, _: Deadline) -> Plan:
    reduce = _whole("all_reduce", range(len(problem.pushed)), problem.pushed)
    return enforced(problem, synchronisation.algorithm, (reduce,))


def _only(method: str, algorithm: str, rule: Rule) -> Rule:
    """Return a baseline that refuses other algorithms than its own.

    A single worker has none, and measured collectives do not name theirs: both are accepted.
    """
    others = ("none",) if algorithm == "bml" else ("none", MEASURED)

    def planned(problem: Problem, synchronisation: Way, deadline: Deadline) -> Plan:
        if synchronisation.algorithm not in (algorithm, *others):
            raise NotApplicableError("method", f"{method} synchronises by {algorithm} only")
        return rule(problem, synchronisation, deadline)

    return planned


GRADIENTS: Mapping[str, Rule] = MappingProxyType(
    {
        name: by_gradients(caramel.METHODS[name])
        for name in ("caramel", "ddp", "horovod", "mg_wfbp", "bytescheduler", "layer_by_layer")
    }
)
"""Baselines that send gradients only."""

BY_ANY_ALGORITHM: Mapping[str, Rule] = MappingProxyType(
    {
        "caramel": GRADIENTS["caramel"],
        "ibatch": _ibatch,
        "bml": _bml,
        "bigdl": _bigdl,
        **GRADIENTS,
        "ps": servers,
    }
)
"""All baselines by any algorithm: of algorithms of equal cost, only one is planned."""

BASELINES: Mapping[str, Rule] = MappingProxyType(
    {
        **BY_ANY_ALGORITHM,
        "ibatch": _only("ibatch", "ps", _ibatch),
        "bml": _only("bml", "bml", _bml),
        "bigdl": _only("bigdl", "shuffle", _bigdl),
    }
)
"""All baselines: first plans of single families, then those of other systems."""


def plans_by(
    rules: Mapping[str, Rule], problem: Problem, way: Way, deadline: Deadline
) -> tuple[list[Plan], bool]:
    """Return the plans of the rules that apply, and whether the time limit ended the search."""
    plans: list[Plan] = []
    for rule in rules.values():
        try:
            deadline.check()
            plans.append(rule(problem, way, deadline))
        except NotApplicableError:
            continue
        except TimeUpError:
            return plans, True
    return plans, False
