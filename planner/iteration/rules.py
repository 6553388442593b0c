"""Plans of single families, and of the systems one would use instead: what the joint plan beats.

Problem: how would a system that knows one part of the problem send these gradients on this cluster?

Each rule is run with every synchronisation algorithm today's libraries have, and its best plan
counts, so that none is held back by a poor choice; but iBatch sends by parameter servers, BigDL by
shuffles and BML by itself, as their papers do. Those that send gradients only are the
methods of `planner.caramel` under the algorithm's all-reduce; they enforce no op order, but for
Caramel. Those that push and pull are given the activation order.

- `ddp`, `horovod`, `mg_wfbp`, `bytescheduler`, `layer_by_layer`, `caramel`: see `planner.caramel`.
- `ps`: every parameter by itself, pushed as it becomes ready then, after the backward pass,
  pulled in order of use: MXNet's key-value store, with a server on every machine.
- `ibatch`: iBatch's exact batches both ways, with parameter servers on all machines.
- `bigdl`: all gradients in one shuffle behind the backward pass, all parameters in another.
- `bml`: one all-reduce by BML behind the backward pass.

What FSDP and ZeRO do is priced by `planner.fsdp`, which knows what they gather twice and what they
remember. Pushes and pulls of whole layers (`layers_apart`) are no method of their own here, only
plans that the joint one is chosen from.

Guarantee: none. Complexity: that of the families' methods.

Source: as named in each family; Li et al., "Scaling Distributed Machine Learning with the Parameter
Server", OSDI 2014.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from planner import caramel
from planner.caramel.family import Method
from planner.caramel.problem import Plan as GradientPlan
from planner.deadline import NEVER, Deadline
from planner.errors import NotApplicableError
from planner.iteration.plan import Kind, Plan, Transfer
from planner.iteration.problem import Part, Problem
from planner.iteration.sharded import both_ways
from planner.iteration.ways import MEASURED, Way

__all__ = [
    "BY_ANY_ALGORITHM",
    "FAMILIES",
    "PEERS",
    "RULES",
    "Rule",
    "by_gradients",
    "from_gradients",
    "layers_apart",
    "servers",
]

Rule = Callable[[Problem, Way, Deadline], Plan]


def from_gradients(algorithm: str, plan: GradientPlan) -> Plan:
    """Return a plan of gradient transfers as one of a whole iteration."""
    transfers = tuple(
        Transfer("all_reduce", group.parts, group.not_before_ns) for group in plan.groups
    )
    orders = plan.backward_orders, plan.forward_order
    return Plan(algorithm, transfers, *orders, plan.barrier, plan.late)


def by_gradients(method: Method) -> Rule:
    """Return the rule that sends gradients by a method of `planner.caramel`."""

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
    """Push every parameter when it is ready, then pull every parameter in order of use."""
    return _apart(problem, synchronisation, [[j] for j in range(len(problem.pushed))])


def layers_apart(problem: Problem, synchronisation: Way, _: Deadline = NEVER) -> Plan:
    """Push every layer when it is ready, then pull every layer in order of use."""
    graph = problem.graph
    layers: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for j in range(len(problem.pushed)):
        layers.setdefault((graph.updaters[j], graph.readers[j]), []).append(j)
    return _apart(problem, synchronisation, list(layers.values()))


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
    return Transfer(kind, tuple(Part(j, 0, sizes[j]) for j in unit))


def _ibatch(problem: Problem, synchronisation: Way, _: Deadline = NEVER) -> Plan:
    batches = both_ways(problem, synchronisation, problem.room("sharded"))
    return enforced(problem, synchronisation.algorithm, batches)


def _bigdl(problem: Problem, synchronisation: Way, _: Deadline = NEVER) -> Plan:
    everything = range(len(problem.pushed))
    push = _whole("push", everything, problem.pushed)
    pull = _whole("pull", everything, problem.pulled)
    return enforced(problem, synchronisation.algorithm, (push, pull))


def _bml(problem: Problem, synchronisation: Way, _: Deadline = NEVER) -> Plan:
    everything = range(len(problem.pushed))
    reduce = _whole("all_reduce", everything, problem.pushed)
    return enforced(problem, synchronisation.algorithm, (reduce,))


def _only(method: str, algorithm: str, rule: Rule) -> Rule:
    """Return a rule that refuses other algorithms; a single worker has none, and anything does."""
    others = ("none",) if algorithm == "bml" else ("none", MEASURED)  # which says no algorithm

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
"""The rules among them that send gradients only."""

FAMILIES: Mapping[str, Rule] = MappingProxyType(
    {
        "caramel": by_gradients(caramel.METHODS["caramel"]),
        "ibatch": _only("ibatch", "ps", _ibatch),
        "bml": _only("bml", "bml", _bml),
        "bigdl": _only("bigdl", "shuffle", _bigdl),
    }
)
"""What one family by itself plans."""

PEERS: Mapping[str, Rule] = MappingProxyType(
    {
        **{
            name: by_gradients(caramel.METHODS[name])
            for name in ("ddp", "horovod", "mg_wfbp", "bytescheduler", "layer_by_layer")
        },
        "ps": servers,
    }
)
"""What one would use instead."""

RULES: Mapping[str, Rule] = MappingProxyType({**FAMILIES, **PEERS})
"""Every method that follows one rule."""

BY_ANY_ALGORITHM: Mapping[str, Rule] = MappingProxyType(
    {**RULES, "ibatch": _ibatch, "bml": _bml, "bigdl": _bigdl}
)
"""The same rules by any algorithm: of algorithms that cost the same, only one is planned."""
