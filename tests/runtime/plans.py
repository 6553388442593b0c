"""Plans for tests, made once and handed to all ranks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import cycle
from typing import Any, NamedTuple

import msgspec
from torch import nn

from planner.families import bigdl, caramel, ibatch, iteration
from planner.families.iteration.synchronisation import recipe_on, synchronisations
from planner.jsonio import caramel as caramel_answers
from planner.jsonio.iteration_making import answer
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.network import Network
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.profiling import measure
from planner.programs import Piece, program_of
from planner.programs.from_plans import TypedPlan
from planner.solving.result import Result
from tests.runtime.reference import make_model, measured
from tests.thorough import THOROUGH

NAME = "perceptron"


def plan_of(model: nn.Module, *inputs: Any, method: str = "auto") -> bytes:
    """Return a plan for two ranks as JSON."""
    profile = measure(model, inputs, name="model", source="", warmup=0, repetitions=1)
    problem = caramel.Problem.from_profile(profile, AffineCost(10**5, Fraction(1)), workers=2)
    return msgspec.json.encode(
        caramel_answers.answer(problem, caramel.solve(problem, method=method))
    )


def typed_plans(name: str) -> dict[str, list[TypedPlan]]:
    """Return plans of each family for a model of `reference` and two ranks."""
    profile, cost = measured(name), AffineCost(20_000, Fraction(100))
    names = profile.layer_parameters()
    assert names is not None
    gradients = caramel.Problem.from_profile(profile, cost, element_bytes=4)
    slices = bigdl.Problem(
        elements=sum(parameter.numel() for parameter in make_model(name).parameters()),
        element_bytes=4,
        nodes=2,
        partitions_per_node=1,
        network=Network(Fraction(10**9)),
    )
    pull = ibatch.Problem.from_profile(profile, cost, direction="pull")
    push = ibatch.Problem.from_profile(profile, cost, direction="push")
    return {
        "caramel": [(gradients, caramel.solve(gradients))],
        "ibatch": [(pull, ibatch.solve(pull), names), (push, ibatch.solve(push), names)],
        "bigdl": [(slices, bigdl.solve(slices))],
    }


class Case(NamedTuple):
    """A plan; rank 0 attaches it as it is, and others, if it is there, the answer that has it."""

    problem: iteration.Problem
    plan: iteration.Plan
    answer: bytes = b""


# ---
# Small clusters, some of them damaged: every algorithm in both modes.

NONE = Failures()
LINK = Failures(nics=frozenset({(1, 0)}))
SERVER = Failures(servers=frozenset({2}))
SWITCH = Failures(switches=frozenset({(1, 0)}))


def small(machines: int, topology: Topology, failed: Failures = NONE) -> Cluster:
    rails = topology.accelerators if isinstance(topology, Rails) else 1
    nic = Nic(Fraction(10**8), 20_000, topology.k if isinstance(topology, BCube) else rails)
    return Cluster("tried", "a test", machines, topology, nic, failed=failed)


SMALL = [
    small(2, Switch(2)),
    small(3, BCube(3, 1)),
    small(4, BCube(2, 2), SERVER),
    small(4, BCube(2, 2)),
    small(4, FatTree(4)),
    small(2, Rails(2, 2, Fraction(10**9), 2_000)),
    small(4, BCube(2, 2), LINK),
    small(4, BCube(2, 2), SWITCH),
]


def perceptron(cluster: Cluster, algorithm: str, mode: str) -> Case:
    """Plan a small model, by one algorithm and in one mode, with as many parts as there can be."""
    problem = iteration.Problem.from_profile(
        measured(NAME), cluster, algorithms=[algorithm], modes=[mode], element_bytes=4
    )
    plan = iteration.solve(problem).plan
    assert plan is not None
    depth = max(option.depth for option in problem.single)
    transfers = tuple(replace(transfer, depth=depth) for transfer in plan.transfers)
    return answered(problem, replace(plan, transfers=transfers))


def answered(problem: iteration.Problem, plan: iteration.Plan) -> Case:
    evaluation = iteration.evaluate(problem, plan)
    result = Result("joint", plan, evaluation.iteration_ns, 0, 0.0, evaluation=evaluation)
    return Case(problem, plan, msgspec.json.encode(answer(problem, result, model="tried")))


def by_each_algorithm(ranks: int) -> Iterator[Case]:
    """Plan in both modes with each algorithm; on some networks in one of them, by default.

    Around failures nothing is sharded.
    """
    for cluster in SMALL:
        if cluster.workers != ranks:
            continue
        both = THOROUGH or not isinstance(cluster.topology, FatTree)
        usable = dict.fromkeys(one.algorithm for one in synchronisations(cluster)[0])
        for number, name in enumerate(usable):
            modes = iteration.MODES if both else iteration.MODES[number % 2 :][:1]
            for mode in ["replicated"] if cluster.failed else modes:
                yield perceptron(cluster, name, mode)


def by_turns(
    transfers: Iterable[iteration.Transfer], names: Sequence[str | None]
) -> tuple[iteration.Transfer, ...]:
    """Let transfers name one algorithm after the other."""
    return tuple(
        replace(transfer, algorithm=name, depth=1)
        for transfer, name in zip(transfers, cycle(names), strict=False)
    )


def mixed(mode: str) -> Case:
    """A plan of three ranks in which transfers, by turns, name three algorithms."""
    problem = perceptron(small(3, Switch(3)), "ring", mode).problem
    plan = iteration.solve(problem, method="ps" if mode == "sharded" else "layer_by_layer").plan
    assert plan is not None
    pushes = [transfer for transfer in plan.transfers if transfer.kind != "pull"]
    place = {part.parameter: place for place, push in enumerate(pushes) for part in push.parts}
    transfers = sorted(  # what is pulled, as soon as all of it was pushed
        plan.transfers,
        key=lambda sent: (max(place[part.parameter] for part in sent.parts), sent.kind == "pull"),
    )
    kinds = [transfer.kind for transfer in transfers]
    assert mode == "replicated" or "push" in kinds[kinds.index("pull") :]
    problem = replace(problem, algorithms=("ring", "halving_doubling", "shuffle"))
    plan = replace(plan, transfers=by_turns(transfers, (None, "halving_doubling", "shuffle")))
    case = answered(problem, plan)
    program: Any = program_of(case.answer)
    assert program == program_of((problem, plan))
    recipes = {recipe_on(problem.cluster, name) for name in plan.algorithms}
    assert {batch.collective for batch in program.batches} == recipes
    assert len(recipes) == len(plan.algorithms) == 3
    return case


def tight(ranks: int) -> Case:
    """Plan with room for shards alone, and for little at once: parameters are cut."""
    profile = measured(NAME)
    footprint = iteration.Footprint.of(profile, Fraction(2))
    memory = footprint.static_bytes("sharded", ranks) + 300
    assert memory < footprint.static_bytes("replicated", ranks)
    cluster = replace(small(ranks, Switch(ranks)), memory_bytes=memory)
    problem = iteration.Problem.from_profile(profile, cluster, optimiser=2, element_bytes=4)
    plan = iteration.solve(problem).plan
    assert plan is not None
    program: Any = program_of((problem, plan))
    for batches in (program.pulls, program.pushes):
        assert any(piece != Piece(piece.parameter) for batch in batches for piece in batch.pieces)
    return Case(problem, plan)
