"""What is planned is what runs, transfer by transfer, and it trains as DDP does.

Tried are every algorithm in both modes on small clusters, some of them damaged, and every shipped
profile on every shipped cluster. Those clusters keep their kind of topology and lose machines, so
that their ranks fit on this one; models keep their parameters' names and proportions. Sizes, speeds
and memories are all divided by the same number, so that plans stay what they are, and computation
is 50 times as fast, so that there is something to plan. A part of the pairs is asked for, all in a
thorough run.

What runs is seen from outside of the executors: when which transfer began and ended, and what the
ranks summed up meanwhile, by which program, and which bytes.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from planner.families import iteration
from planner.families.bml.program import REPLAN, made
from planner.families.collectives import COLLECTIVES, program
from planner.families.collectives.exchange import direct_program
from planner.families.collectives.recipes import Recipe
from planner.families.iteration.baselines import servers
from planner.families.iteration.synchronisation import recipe_on, synchronisations
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.jsonio.iteration_making import answer
from planner.model.clusters import Cluster, Nic
from planner.model.graphs import Graph
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.programs import program_of
from planner.runtime import Ring, World, attach, join
from planner.runtime.collectives.halves import ProgramHalves
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.base import Executor
from planner.runtime.executors.trace import Event
from planner.solving.result import Result
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    Weights,
    backward,
    largest_difference,
    make_model,
    make_optimizer,
    measured,
    weights_of,
)
from tests.thorough import THOROUGH

ROOT = Path(__file__).parents[2]
PROFILES = {path.stem: path for path in sorted((ROOT / "data" / "profiles").glob("*.json"))}
FILES = {path.stem: path for path in sorted((ROOT / "planner/data/clusters").glob("*.json"))}
TREE = "office-4 on a fat-tree"
CLUSTERS = [  # but those whose tables leave open how messages travel
    *(name for name, path in FILES.items() if decode_cluster(path.read_bytes()).network is None),
    TREE,
]
FASTER = Fraction(1, 50)
DIVISOR = 1000
STEPS = 2
NAME = "perceptron"


class Case(NamedTuple):
    """A plan; rank 0 attaches it as it is, and others, if it is there, the answer that has it."""

    profile: str
    problem: iteration.Problem
    plan: iteration.Plan
    answer: bytes = b""


class Call(NamedTuple):
    """A sum over all ranks, or a half of one, as it was asked for."""

    time_ns: int
    kind: str
    program: str
    values: Tensor
    depth: int


# ---
# Small clusters.

NONE = Failures()
LINK = Failures(nics=frozenset({(1, 0)}))
SERVER = Failures(servers=frozenset({2}))
SWITCH = Failures(switches=frozenset({(1, 0)}))


def small(machines: int, topology: Topology, failed: Failures = NONE) -> Cluster:
    levels = topology.k if isinstance(topology, BCube) else 1
    nic = Nic(Fraction(10**8), 20_000, levels)
    return Cluster("tried", "a test", machines, topology, nic, failed=failed)


SMALL = [
    small(2, Switch(2)),
    small(3, BCube(3, 1)),
    small(4, BCube(2, 2), SERVER),
    small(4, BCube(2, 2)),
    small(4, FatTree(4)),
    small(4, BCube(2, 2), LINK),
    small(4, BCube(2, 2), SWITCH),
    small(9, BCube(3, 2)),
]


def perceptron(cluster: Cluster, algorithm: str, mode: str) -> Case:
    """Plan a small model, by one algorithm and in one mode."""
    problem = iteration.Problem.from_profile(
        measured(NAME), cluster, algorithms=[algorithm], modes=[mode], element_bytes=4
    )
    plan = iteration.solve(problem).plan
    assert plan is not None
    return answered(problem, plan)


def answered(problem: iteration.Problem, plan: iteration.Plan) -> Case:
    evaluation = iteration.evaluate(problem, plan)
    result = Result("joint", plan, evaluation.iteration_ns, 0, 0.0, evaluation=evaluation)
    return Case(NAME, problem, plan, msgspec.json.encode(answer(problem, result, model="tried")))


def by_each_algorithm(cluster: Cluster) -> Iterator[Case]:
    """Plan in both modes with each algorithm; on some networks in one of them, by default.

    Around failures nothing is sharded.
    """
    both = THOROUGH or not (cluster.workers == 9 or isinstance(cluster.topology, FatTree))
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


# ---
# Shipped profiles on shipped clusters.


@cache
def cluster_of(name: str) -> Cluster:
    """Return a shipped cluster, with fewer machines and all its speeds divided."""
    cluster = decode_cluster(FILES[name.split(" ", maxsplit=1)[0]].read_bytes())
    topology: Topology
    match cluster.topology:
        case BCube():
            topology = BCube(3, 2) if THOROUGH else BCube(2, 2)
        case Rails() as rails:
            topology = Rails(2, 2, rails.link_bytes_per_s / DIVISOR, rails.link_startup_ns)
        case _:
            few = 4 if cluster.machines % 4 == 0 else 9 if THOROUGH else 3
            topology = FatTree(4) if name == TREE else Switch(few)
    machines = 4 if name == TREE else 2 if isinstance(topology, Rails) else topology.servers
    nic = replace(
        cluster.nic,
        bytes_per_s=cluster.nic.bytes_per_s / DIVISOR,
        # To all others at once is as dear as it was with more of them.
        message_ns=cluster.nic.message_ns * max(cluster.machines - 2, 1) // max(machines - 2, 1),
        per_machine=2 if isinstance(topology, Rails) else cluster.nic.per_machine,
    )
    shared, memory = cluster.shared_bytes_per_s, cluster.memory_bytes
    return replace(
        cluster,
        machines=machines,
        topology=topology,
        nic=nic,
        shared_bytes_per_s=None if shared is None else shared / DIVISOR,
        memory_bytes=None if memory is None else memory // DIVISOR,
    )


@cache
def graph_of(name: str) -> tuple[Graph, iteration.Footprint]:
    """Return a shipped profile's graph and what it keeps, with all sizes divided."""
    profile = decode_profile(PROFILES[name].read_bytes())
    graph = profile.dataflow()
    parameters = tuple(
        replace(parameter, size_bytes=4 * -(-parameter.size_bytes // (4 * DIVISOR)))
        for parameter in graph.parameters
    )
    size = sum(parameter.size_bytes for parameter in parameters)
    kept = iteration.Footprint.of(profile).activation_bytes // DIVISOR
    ops = tuple(replace(op, duration_ns=round(op.duration_ns * FASTER)) for op in graph.ops)
    return Graph(ops, parameters), iteration.Footprint(size, size, kept)


def asked_for(profile: int, cluster: int) -> bool:
    """Tell whether a run asks for a pair; by default for every topology, and each second switch."""
    if THOROUGH:
        return True
    known = cluster_of(CLUSTERS[cluster])
    if known.workers != 4:
        return (profile + cluster) % 4 == 0
    listed = cluster % 2 == 0 or not isinstance(known.topology, Switch)
    return listed and profile == 3 * cluster % len(PROFILES)


def shipped(ranks: int) -> list[Case]:
    """Return plans, as `planner plan` makes them, for the pairs with so many ranks, by profile.

    Every third one has its algorithms changed transfer by transfer: the best plans of these pairs
    rarely mix them.
    """
    cases: list[Case] = []
    for first, profile in enumerate(PROFILES):
        for second, name in enumerate(CLUSTERS):
            cluster = cluster_of(name)
            if cluster.workers != ranks or not asked_for(first, second):
                continue
            graph, footprint = graph_of(profile)
            problem = iteration.Problem(graph, cluster, footprint=footprint, element_bytes=4)
            plan = iteration.solve(problem).plan
            assert plan is not None, (profile, name)
            if len(cases) % 3 == 2:
                names = [option.algorithm for option in problem.single]
                plan = replace(plan, transfers=by_turns(plan.transfers, names))
            cases.append(Case(profile, problem, plan))
    return cases


# ---
# What runs.


class Model(nn.Module):
    """Has parameters of given names and sizes; the gradient of each is a multiple of itself."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        for parameter in graph.parameters:
            *path, last = parameter.name.split(".")
            module: nn.Module = self
            for name in path:
                if name not in module._modules:
                    module.add_module(name, nn.Module())
                module = module.get_submodule(name)
            values = torch.randn(parameter.size_bytes // 4, generator=random)
            module.register_parameter(last, nn.Parameter(values))

    def forward(self, factor: float) -> Tensor:
        squares = [parameter.square().sum() for parameter in self.parameters()]
        return torch.stack(squares).sum() * (factor / 2)


def model_of(case: Case) -> nn.Module:
    return make_model(NAME) if case.profile == NAME else Model(case.problem.graph)


def passes(case: Case, model: nn.Module, rank: int, step: int) -> None:
    if case.profile == NAME:
        backward(model, NAME, rank, step)
    else:
        model(0.25 * (rank + 1)).backward()


def ddp_weights(case: Case, rank: int) -> Weights:
    """Return the weights after some steps of DDP."""
    model = model_of(case)
    parallel, optimizer = DistributedDataParallel(model), make_optimizer("sgd", model)
    for step in range(STEPS):
        passes(case, parallel, rank, step)
        optimizer.step()
        optimizer.zero_grad()
    return weights_of(model)


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Note what ranks sum up, and by what, while the block runs."""
    calls: list[Call] = []
    ring, begin, follow = Ring.__call__, Ring.begin, Interpreter._follow

    def by_ring(self: Ring, flat: Tensor, depth: int = 1) -> None:
        calls.append(Call(time.monotonic_ns(), "all_reduce", "ring", flat.clone(), depth))
        ring(self, flat, depth)

    def by_line(self: Ring, flat: Tensor) -> Callable[[], object]:
        if flat.is_floating_point():  # else ranks agree on something
            calls.append(Call(time.monotonic_ns(), "all_reduce", "ring", flat.clone(), 1))
        return begin(self, flat)

    def by_program(self: Interpreter, flat: Tensor, depth: int, kind: Any) -> None:
        name = self.program.name
        calls.append(Call(time.monotonic_ns(), kind, name, flat.clone(), depth))
        follow(self, flat, depth, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ring, "__call__", by_ring)
        patch.setattr(Ring, "begin", by_line)
        patch.setattr(Interpreter, "_follow", by_program)
        yield calls


def run(cases: Sequence[Case]) -> None:
    """Train by each plan; compare what runs with what is planned, and the weights with DDP's."""
    with join(timeout_s=60) as world:
        expected: dict[str, Weights] = {}
        for case in cases:
            profile, problem, plan, answer = case
            if profile not in expected:
                expected[profile] = ddp_weights(case, world.rank)
            model = model_of(case)
            attached = answer if answer and world.rank else (problem, plan)
            with attach(model, attached, make_optimizer("sgd", model), world) as executor:
                with recorded() as calls:
                    passes(case, model, world.rank, 0)
                    executor.step()
                    executor.finish()
                compare(case, carried_out(executor, calls))
                for step in range(1, STEPS):
                    passes(case, model, world.rank, step)
                    executor.step()
            if plan.mode == "replicated":
                compare_messages(case, world, calls)
            assert largest_difference(weights_of(model), expected[profile]) < 1e-6, profile
        distributed.barrier(world.group)


def carried_out(executor: Executor, calls: Sequence[Call]) -> list[tuple[Event, list[Call]]]:
    """Return the transfers of the first step, in the order in which they began."""
    events = executor.trace.events
    transfers = [event for event in events if event.kind == "transfer" and event.step == 0]
    if len(transfers) == len(calls):  # some are queued in gloo before they begin
        return [(event, [call]) for event, call in zip(transfers, calls, strict=True)]
    ran = [
        (event, [call for call in calls if event.start_ns <= call.time_ns <= event.end_ns])
        for event in transfers
    ]
    assert sum(len(own) for _, own in ran) == len(calls)
    return ran


def compare(case: Case, ran: Sequence[tuple[Event, list[Call]]]) -> None:
    """Check what ran against what was planned."""
    problem, plan = case.problem, case.plan
    kinds = {"all_reduce": "", "push": "push", "pull": "pull"}
    halves = {"all_reduce": "all_reduce", "push": "reduce_scatter", "pull": "all_gather"}
    counted: Counter[str] = Counter()
    for transfer, (event, calls) in zip(plan.transfers, ran, strict=True):
        assert (event.direction, event.batch) == (kinds[transfer.kind], counted[transfer.kind])
        counted[transfer.kind] += 1
        recipe = recipe_on(problem.cluster, transfer.algorithm or plan.algorithm)
        program = made(recipe)
        is_gloos = recipe.generator == "ring" and plan.mode == "replicated"
        name = "ring" if is_gloos else program.name
        assert {call.kind for call in calls} == {halves[transfer.kind]}
        assert {call.program for call in calls} == {name}
        assert {call.depth for call in calls} == {transfer.depth}
        size = sum(call.values.nbytes for call in calls)
        if plan.mode == "replicated":
            assert len(calls) == 1
            assert size == transfer.size_bytes
        else:  # equal shares of every cell, and chunks that can be cut into any number of parts
            padding = 4 * program.ranks * 2 * len(transfer.parts)
            padding += 4 * program.chunks * 840 * len(calls)
            assert transfer.size_bytes <= size < transfer.size_bytes + padding


def compare_messages(case: Case, world: World, calls: Sequence[Call]) -> None:
    """Check that each all-reduce has the values planned, in whatever order they lie."""
    model = model_of(case)
    passes(case, model, world.rank, 0)
    names = [parameter.name for parameter in case.problem.graph.parameters]
    gradients = {
        name: each.grad for name, each in model.named_parameters() if each.grad is not None
    }
    for transfer, call in zip(case.plan.transfers, calls, strict=True):
        planned = [
            gradients[names[number]].flatten()[start // 4 : stop // 4] / world.size
            for number, start, stop in transfer.parts
        ]
        assert torch.allclose(torch.cat(planned).sort().values, call.values.sort().values)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 9])
def test_no_decision_of_a_plan_is_dropped_and_transfers_go_by_the_algorithms_they_name(
    ranks: int,
) -> None:
    cases = shipped(ranks)
    for cluster in SMALL:
        cases += by_each_algorithm(cluster) if cluster.workers == ranks else ()
    cases += map(mixed, iteration.MODES) if ranks == 3 else ()
    assert {case.plan.mode for case in cases} == set(iteration.MODES)
    values(launch(run, ranks, cases, timeout_s=600 if THOROUGH else 120))


# ---
# What cannot be run.


def attach_only(plan: Any, other: bool) -> None:
    with join(timeout_s=20) as world:
        model = make_model(NAME)
        mine = Interpreter(world, direct_program(world.size)) if other else None
        attach(model, plan, make_optimizer("sgd", model), world, all_reduce=mine)


def sharded_by_trees() -> Any:
    """An answer that the planner does not make: somebody has changed the program of one."""
    problem = perceptron(small(4, BCube(2, 2)), "bml", "sharded").problem
    plan = servers(problem, problem.by_name["bml"])  # which cuts no parameter
    whole = json.loads(answered(problem, plan).answer)
    whole["synchronisation"]["program"].update(generator=REPLAN, failed={"nics": [[[0, 1], 0]]})
    return whole


@pytest.mark.parametrize(
    ("ranks", "cluster", "other", "message"),
    [
        (2, small(3, Switch(3)), False, r"ring\(3\): it is for 3 ranks, the job has 2; plan for"),
        (3, small(3, Switch(3)), True, r"sums up by ring\(3\), got direct\(3\)"),
        (4, small(4, BCube(2, 2), SERVER), False, "for 3 ranks, the job has 4; plan for 4"),
        (4, None, False, "leaves some ranks without any"),
    ],
)
def test_what_cannot_be_run_as_planned_is_refused(
    ranks: int, cluster: Cluster | None, other: bool, message: str
) -> None:
    if cluster is None:
        plan = sharded_by_trees()
    else:
        plan = perceptron(cluster, "bml" if cluster.failed else "ring", "replicated").answer
    for error in errors(launch(attach_only, ranks, plan, other)):
        assert error.type == "InvalidInputError"
        assert re.search(message, error.text), error.text


# ---
# Sums and halves of programs by themselves.


def summed(recipes: list[Recipe]) -> None:
    """Sum up by each program and, where it has them, its halves; compare with gloo's sums."""
    with join() as world:
        rank = world.rank
        for recipe in recipes:
            interpreter = Interpreter(world, made(recipe))
            for size in (1, 16, 1000, 100_001) if THOROUGH else (16, 100_001):
                values = torch.arange(size, dtype=torch.int64) * (rank + 1) + rank
                expected = values.clone()
                distributed.all_reduce(expected)
                found = interpreter.all_reduce(values.clone())
                assert torch.equal(found, expected), (recipe, size)
                if recipe.shape[2:] in ((), (1,)):
                    interpreter.reduce_scatter(values)
                    interpreter.all_gather(values)
                    assert torch.equal(values, expected), (recipe, size)
            interpreter.close()


TREES = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""Where only trees are left."""
OF_NINE = [Failures(nics=frozenset({(0, 0)})), Failures(switches=frozenset({(0, 1)})), TREES]
OF_EIGHT = [Failures(servers=frozenset({5})), Failures(frozenset({0}), frozenset({(8, 1)}))]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "failures"), [(9, OF_NINE), (8, OF_EIGHT)])
def test_sums_around_failures_are_those_of_gloo(ranks: int, failures: list[Failures]) -> None:
    """Failures alternate between one round and four; those that leave only trees have both."""
    recipes = [
        Recipe(REPLAN, (3, 2, rounds), failed)
        for place, failed in enumerate(failures)
        for turn, rounds in enumerate((1, 4))
        if THOROUGH or place % 2 == turn or failed is TREES
    ]
    values(launch(summed, ranks, recipes))


def halves(names: list[str]) -> None:
    """Sum up and hand out rows of many sizes by the halves of programs."""
    with join() as world:
        for name in names:
            interpreter = Interpreter(world, program(name, BCube(2, 2)))
            both = ProgramHalves(interpreter)
            for width in (1, 5, 70_001):
                rows = torch.arange(4 * width, dtype=torch.int64).view(4, width)
                sent = rows * (world.rank + 1)
                total = both.scatter(sent, world.rank, torch.empty_like(rows))()
                assert torch.equal(total, rows[world.rank] * 10), (name, width)
                mine = torch.zeros_like(rows)
                mine[world.rank] = rows[world.rank]
                both.gather(mine, world.rank)()
                assert torch.equal(mine, rows), (name, width)
            interpreter.close()


@pytest.mark.slow
def test_rows_are_summed_up_and_handed_out_by_halves() -> None:
    names = [name for name in COLLECTIVES if "tensors" not in name and "k_nics" not in name]
    values(launch(halves, 4, names))
