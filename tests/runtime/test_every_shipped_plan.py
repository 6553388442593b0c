"""Every shipped profile on every shipped cluster: what is planned runs, decision by decision.

Clusters keep their kind of topology and lose machines, so that their ranks fit on this one; models
keep their parameters' names and proportions. Sizes, speeds and memories are all divided by the same
number, so that plans stay what they are, and computation is 50 times as fast, so that there is
something to plan. A part of the pairs is asked for, all in a thorough run.

What runs is seen from outside of the executors: when which transfer began and ended, and what the
ranks summed up meanwhile, by which program, and which bytes.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from planner.families import iteration
from planner.families.collectives.recipes import made
from planner.families.iteration.synchronisation import recipe_on
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.model.clusters import Cluster
from planner.model.graphs import Graph
from planner.model.topologies import BCube, FatTree, Rails, Switch, Topology
from planner.runtime import Ring, attach, join
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.base import Executor
from tests.runtime.launching import launch, values
from tests.runtime.reference import Weights, largest_difference, weights_of
from tests.thorough import THOROUGH

DATA = Path(__file__).parents[2] / "data"
PROFILES = sorted(path.stem for path in (DATA / "profiles").glob("*.json"))
TREE = "office-4 on a fat-tree"
CLUSTERS = [  # but those whose tables leave open how messages travel
    *sorted(
        path.stem
        for path in (DATA / "clusters").glob("*.json")
        if decode_cluster(path.read_bytes()).network is None
    ),
    TREE,
]
FASTER = Fraction(1, 50)
DIVISOR = 1000
RATE = 0.1

Case = tuple[str, iteration.Problem, iteration.Plan]


class Call(NamedTuple):
    """A sum over all ranks, or a half of one, as it was asked for."""

    time_ns: int
    kind: str
    program: str
    values: Tensor
    depth: int


class Ran(NamedTuple):
    """A transfer as it was carried out: its place in its direction, and its messages."""

    direction: str
    batch: int
    calls: list[tuple[str, str, int, int]]
    """Of each message the kind, the program, its bytes, and in how many chunks it was cut."""


@cache
def cluster_of(name: str) -> Cluster:
    """Return a shipped cluster, with fewer machines and all its speeds divided."""
    shipped = name.split(" ", maxsplit=1)[0]
    cluster = decode_cluster((DATA / "clusters" / f"{shipped}.json").read_bytes())
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
    profile = decode_profile((DATA / "profiles" / f"{name}.json").read_bytes())
    graph = profile.dataflow()
    parameters = tuple(
        replace(parameter, size_bytes=4 * -(-parameter.size_bytes // (4 * DIVISOR)))
        for parameter in graph.parameters
    )
    size = sum(parameter.size_bytes for parameter in parameters)
    kept = iteration.Footprint.of(profile).activation_bytes // DIVISOR
    ops = tuple(replace(op, duration_ns=round(op.duration_ns * FASTER)) for op in graph.ops)
    return Graph(ops, parameters), iteration.Footprint(size, size, kept)


def planned(profile: str, cluster: str) -> Case:
    """Plan as `planner plan` does."""
    graph, footprint = graph_of(profile)
    problem = iteration.Problem(graph, cluster_of(cluster), footprint=footprint, element_bytes=4)
    plan = iteration.solve(problem).plan
    assert plan is not None, (profile, cluster)
    return profile, problem, plan


def by_turns(case: Case) -> Case:
    """Let the transfers of a plan name one algorithm after the other."""
    profile, problem, plan = case
    names = [option.algorithm for option in problem.single]
    transfers = tuple(
        replace(transfer, algorithm=names[number % len(names)], depth=1)
        for number, transfer in enumerate(plan.transfers)
    )
    return profile, problem, replace(plan, transfers=transfers)


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


def factor_of(rank: int) -> float:
    return 0.25 * (rank + 1)


def ddp_weights(graph: Graph, rank: int) -> Weights:
    """Return the weights after a step of DDP."""
    model = Model(graph)
    parallel = DistributedDataParallel(model)
    parallel(factor_of(rank)).backward()
    torch.optim.SGD(model.parameters(), lr=RATE).step()
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

    Ring.__call__, Ring.begin = by_ring, by_line  # type: ignore[method-assign]
    Interpreter._follow = by_program  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Ring.__call__, Ring.begin = ring, begin  # type: ignore[method-assign]
        Interpreter._follow = follow  # type: ignore[method-assign]


def run(cases: Sequence[Case]) -> list[tuple[list[Ran], float, int]]:
    """Train a step by each plan; return what ran, how far DDP is, and messages that are wrong."""
    outcomes = []
    with join(timeout_s=60) as world:
        expected: dict[str, Weights] = {}
        for profile, problem, plan in cases:
            if profile not in expected:
                expected[profile] = ddp_weights(problem.graph, world.rank)
            model = Model(problem.graph)
            before = weights_of(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            with recorded() as calls, attach(model, (problem, plan), optimizer, world) as executor:
                model(factor_of(world.rank)).backward()
                executor.step()
                executor.finish()
                ran = ran_of(executor, calls)
            share = factor_of(world.rank) / world.size
            wrong = 0
            if plan.mode == "replicated":
                for transfer, call in zip(plan.transfers, calls, strict=True):
                    message = [
                        before[problem.graph.parameters[part.parameter].name][
                            part.start // 4 : part.stop // 4
                        ]
                        for part in transfer.parts
                    ]
                    sent = torch.cat(message) * share  # in an order of the executor's own
                    wrong += not torch.allclose(sent.sort().values, call.values.sort().values)
            difference = largest_difference(weights_of(model), expected[profile])
            outcomes.append((ran, difference, wrong))
        distributed.barrier(world.group)
    return outcomes


def ran_of(executor: Executor, calls: Sequence[Call]) -> list[Ran]:
    """Return the transfers of the first step, in the order in which they began."""
    events = executor.trace.events
    transfers = [event for event in events if event.kind == "transfer" and event.step == 0]
    sums = [(call.kind, call.program, call.values.nbytes, call.depth) for call in calls]
    if len(transfers) == len(calls):  # some are queued in gloo before they begin
        rows = zip(transfers, sums, strict=True)
        return [Ran(event.direction, event.batch, [its]) for event, its in rows]
    ran = [
        Ran(
            event.direction,
            event.batch,
            [
                its
                for call, its in zip(calls, sums, strict=True)
                if event.start_ns <= call.time_ns <= event.end_ns
            ],
        )
        for event in transfers
    ]
    assert sum(len(transfer.calls) for transfer in ran) == len(calls)
    return ran


def compare(case: Case, ran: Sequence[Ran]) -> None:
    """Check what ran against what was planned."""
    _, problem, plan = case
    kinds = {"all_reduce": "", "push": "push", "pull": "pull"}
    halves = {"all_reduce": "all_reduce", "push": "reduce_scatter", "pull": "all_gather"}
    counted: Counter[str] = Counter()
    assert len(ran) == len(plan.transfers)
    for transfer, seen in zip(plan.transfers, ran, strict=True):
        assert (seen.direction, seen.batch) == (kinds[transfer.kind], counted[transfer.kind])
        counted[transfer.kind] += 1
        recipe = recipe_on(problem.cluster, transfer.algorithm or plan.algorithm)
        program = made(recipe)
        is_gloos = recipe.generator == "ring" and plan.mode == "replicated"
        name = "ring" if is_gloos else program.name
        assert {call[:2] for call in seen.calls} == {(halves[transfer.kind], name)}
        assert {depth for _, _, _, depth in seen.calls} == {transfer.depth}
        size = sum(size for _, _, size, _ in seen.calls)
        if plan.mode == "replicated":
            assert len(seen.calls) == 1
            assert size == transfer.size_bytes
        else:  # equal shares of every cell, and chunks that can be cut into any number of parts
            padding = 4 * program.ranks * 2 * len(transfer.parts)
            padding += 4 * program.chunks * 840 * len(seen.calls)
            assert transfer.size_bytes <= size < transfer.size_bytes + padding


def asked_for(profile: int, cluster: int) -> bool:
    """Tell whether a run asks for a pair; by default for every topology, and each second switch."""
    if THOROUGH:
        return True
    known = cluster_of(CLUSTERS[cluster])
    if known.workers != 4:
        return (profile + cluster) % 4 == 0
    listed = cluster % 2 == 0 or not isinstance(known.topology, Switch)
    return listed and profile == 3 * cluster % len(PROFILES)


def cases_for(ranks: int) -> list[Case]:
    """Return plans for the pairs whose clusters have so many ranks, by profile.

    Of three plans, one has its algorithms changed transfer by transfer: the best plans of these
    pairs rarely mix them.
    """
    cases = [
        planned(profile, cluster)
        for first, profile in enumerate(PROFILES)
        for second, cluster in enumerate(CLUSTERS)
        if cluster_of(cluster).workers == ranks and asked_for(first, second)
    ]
    return [by_turns(case) if number % 3 == 2 else case for number, case in enumerate(cases)]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", sorted({cluster_of(name).workers for name in CLUSTERS}))
def test_no_decision_of_a_shipped_plan_is_dropped(ranks: int) -> None:
    cases = cases_for(ranks)
    assert {plan.mode for _, _, plan in cases} == set(iteration.MODES)
    for value in values(launch(run, ranks, cases, timeout_s=600 if THOROUGH else 120)):
        assert len(value) == len(cases)
        for case, (ran, difference, wrong) in zip(cases, value, strict=True):
            compare(case, ran)
            assert wrong == 0
            assert difference < 1e-6, case[0]
