"""A job's plan follows what the job measures, and its weights do not tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, distributed

from planner import caramel, iteration
from planner.clusters import Cluster, Nic
from planner.costs import AffineCost
from planner.graphs import Graph
from planner.replanning import Hysteresis
from planner.runtime import World, attach, follow, join, switch
from planner.runtime import following as following_module
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.following import Following, Look
from planner.runtime.measuring.courses import Plan, Planned
from planner.scenarios import Scenario
from planner.topologies import Switch
from tests.runtime.launching import Outcome, launch
from tests.runtime.reference import (
    Weights,
    backward,
    make_model,
    make_optimizer,
    measured,
    weights_of,
)

NAME = "perceptron"
TIMEOUT_S = 20.0
LIMIT_S = 90
MS = 10**6


class InOrder:
    """Sums up in the order of the ranks, wherever in a message a number lies."""

    name = "in order"

    def __init__(self, world: World) -> None:
        self._group = world.new_group(range(world.size))
        self._size = world.size

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        everyone = [torch.empty_like(flat) for _ in range(self._size)]
        distributed.all_gather(everyone, flat.clone(), group=self._group)
        flat.zero_()
        for theirs in everyone:
            flat += theirs


@cache
def problem_of(ns_per_byte: int = 30_000) -> caramel.Problem:
    """Return a problem of the model's parameters, with times that are made up."""
    graph = measured(NAME).dataflow()
    long = {"forward": 20 * MS, "backward": 40 * MS}
    ops = tuple(replace(op, duration_ns=long[op.phase]) for op in graph.ops)
    cost = AffineCost(2 * MS, Fraction(ns_per_byte))
    return caramel.Problem(Graph(ops, graph.parameters), cost, workers=1, element_bytes=4)


def planned(method: str = "auto", *, ns_per_byte: int = 30_000) -> Planned:
    problem = problem_of(ns_per_byte)
    plan = caramel.solve(problem, method=method).plan
    assert plan is not None
    return Planned(problem, plan)


@dataclass(frozen=True)
class Job:
    """What a rank did: its weights, its looks, and a number of each step."""

    weights: Weights
    log: tuple[Look, ...]
    numbers: tuple[int, ...]


def batches_of(executor: Executor) -> int:
    assert isinstance(executor, GradientExecutor)
    return len(executor.program.batches)


def train(
    optimizer_name: str,
    steps: int,
    methods: dict[int, str],
    *,
    in_order: bool = False,
    strict_order: bool | None = None,
) -> Job:
    """Train, from some steps on as another method plans; tell how many batches each step has."""
    model = make_model(NAME)
    world = join(TIMEOUT_S)
    plans = {step: planned(method) for step, method in methods.items()}
    batches = []
    with attach(
        model,
        plans[0],
        make_optimizer(optimizer_name, model),
        world,
        all_reduce=InOrder(world) if in_order else None,
        strict_order=strict_order,
    ) as executor:
        for step in range(steps):
            if step and step in plans:
                switch(executor, plans[step])
            batches.append(batches_of(executor))
            backward(model, NAME, world.rank, step)
            executor.step()
    world.leave()
    return Job(weights_of(model), (), tuple(batches))


def values(outcomes: list[Outcome]) -> list[Job]:
    for outcome in outcomes:
        assert outcome.error is None, outcome.error.trace
    return [outcome.value for outcome in outcomes]


def same(weights: Weights, others: Weights) -> bool:
    return all(torch.equal(weight, others[name]) for name, weight in weights.items())


CHANGING = {0: "layer_by_layer", 2: "ddp", 9: "search", 10: "layer_by_layer"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "ranks", "in_order", "strict"),
    [("sgd", 2, False, None), ("adam", 2, False, False), ("adam", 3, True, None)],
)
def test_plans_change_and_weights_do_not(
    optimizer: str, ranks: int, in_order: bool, strict: bool | None
) -> None:
    """Bit by bit: two numbers have one sum, and three are added in the order of the ranks."""
    work = partial(train, in_order=in_order, strict_order=strict)
    kept, changed = (
        values(launch(work, ranks, optimizer, 12, methods, timeout_s=LIMIT_S))
        for methods in ({0: "ddp"}, CHANGING)
    )
    assert len(set(changed[0].numbers)) > 1
    for job in changed:
        assert job.numbers == changed[0].numbers
        assert same(job.weights, kept[0].weights)


SLOW = 31, 71
"""From which step on the network of a test is slow, and from which it is not any more."""


def on_network(first: Planned, plan: Plan, step: int, *, changing: bool) -> Planned:
    """Return a plan on the network of a step, which is at first what was planned for."""
    there = first._replace(plan=plan)
    slow = changing and SLOW[0] <= step < SLOW[1]
    return there.under(Scenario(bandwidth=Fraction(1, 3))) if slow else there


def told(following: Following, first: Planned, *, changing: bool) -> Callable[..., list[list[int]]]:
    """Return what makes up what a rank measures: as its plan goes on the network, with noise."""
    rank = distributed.get_rank()

    def rows(_events: object, steps: Sequence[int], batches: int) -> list[list[int]]:
        several = []
        for step in steps:
            course = on_network(first, following.planned.plan, step, changing=changing).course
            off = 1 + Fraction((step * 7 + rank * 3) % 5, 50)
            assert batches == len(course.ready_ns)
            late = [*course.ready_ns, course.forward_ns, course.backward_ns]
            several.append(
                [
                    *(round(time * off) for time in course.transfers_ns),
                    *(-round(time * off) for time in late),
                ]
            )
        return several

    return rows


def follow_told(steps: int, ns_per_byte: int, changing: bool) -> Job:
    """Follow a network that is made up; tell what each step lasts on it as it was planned."""
    model = make_model(NAME)
    world = join(TIMEOUT_S)
    first, lasts = planned(ns_per_byte=ns_per_byte), []
    with attach(model, first, make_optimizer("sgd", model), world) as executor:
        following = follow(executor, first)
        rows = told(following, first, changing=changing)
        following_module.rows_of = rows  # type: ignore[attr-defined]
        for step in range(steps):
            lasts.append(on_network(first, following.planned.plan, step, changing=changing).step_ns)
            backward(model, NAME, world.rank, step)
            executor.step()
    world.leave()
    return Job(weights_of(model), following.log, tuple(lasts))


@pytest.mark.slow
@pytest.mark.parametrize(("ns_per_byte", "wanted"), [(30_000, 0), (80_000, 1)])
def test_a_plan_follows_the_network_and_comes_back(ns_per_byte: int, wanted: int) -> None:
    """Within twenty steps it is as good as a plan for what the network has become."""
    steps = 110
    jobs = values(launch(follow_told, 2, steps, ns_per_byte, True, timeout_s=LIMIT_S))
    first = planned(ns_per_byte=ns_per_byte)
    log = jobs[0].log
    slow, fast = log
    assert log[wanted].switched
    assert [drift.name for drift in slow.drifts] == ["transfers"]
    assert 0.3 < slow.network.bandwidth < 0.4
    assert 2.5 < fast.network.bandwidth < 3.5
    assert "transfers 2.9" in str(slow)
    assert str(log[wanted]).endswith("switched")
    for job in jobs:
        assert [replace(look, planning_s=0) for look in job.log] == [
            replace(look, planning_s=0) for look in log
        ]
        bests = []
        for since, until in pairwise((0, *SLOW, steps)):
            there = on_network(first, first.plan, since, changing=True)
            assert isinstance(there.problem, caramel.Problem)
            bests.append(caramel.solve(there.problem).objective_ns or 0)
            assert max(job.numbers[since + 20 * bool(since) : until]) <= 1.05 * bests[-1]
        assert job.numbers[SLOW[wanted]] > 1.02 * bests[1 + wanted]
    kept = values(launch(train, 2, "sgd", steps, {0: "search"}, timeout_s=LIMIT_S))
    assert same(jobs[0].weights, kept[0].weights)


@pytest.mark.slow
def test_noise_switches_nothing_in_500_steps() -> None:
    for job in values(launch(follow_told, 2, 500, 30_000, False, timeout_s=LIMIT_S)):
        assert job.log == ()


def really(steps: int) -> Job:
    """Follow what is measured, which is far from what is made up; tell what is planned for."""
    model = make_model(NAME)
    world = join(TIMEOUT_S)
    first = planned()
    with attach(model, first, make_optimizer("adam", model), world) as executor:
        following = follow(executor, first, every=3, hysteresis=Hysteresis(windows=1))
        for step in range(steps):
            backward(model, NAME, world.rank, step)
            executor.step()
    world.leave()
    times = [op.duration_ns for op in following.planned.problem.graph.ops]
    return Job(weights_of(model), following.log, tuple(times))


@pytest.mark.slow
def test_what_is_measured_is_planned_for() -> None:
    """The problem says 60 ms a layer; none of this model computes for so long."""
    jobs = values(launch(really, 2, 40, timeout_s=LIMIT_S))
    kept = values(launch(train, 2, "adam", 40, {0: "search"}, timeout_s=LIMIT_S))
    for job in jobs:
        assert {drift.name for drift in job.log[0].drifts} >= {"forward pass", "backward pass"}
        assert sum(job.numbers) < sum(op.duration_ns for op in problem_of().graph.ops) / 2
        assert job.numbers == jobs[0].numbers
        assert same(job.weights, kept[0].weights)


def refused(kind: str) -> None:
    model = make_model(NAME)
    world = join(TIMEOUT_S)
    with attach(model, planned(), make_optimizer("sgd", model), world) as executor:
        if kind == "another":
            follow(executor, planned("layer_by_layer"))
        elif kind == "sharded":
            cluster = Cluster("c", "a test", 2, Switch(2), Nic(Fraction(10**7), 20_000))
            problem = iteration.Problem.from_profile(measured(NAME), cluster, modes=["sharded"])
            follow(executor, (problem, iteration.solve(problem)))
        else:
            backward(model, NAME, world.rank, 0)
            switch(executor, planned("layer_by_layer"))


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("another", "InvalidInputError", "the executor follows another plan"),
        ("sharded", "InvalidInputError", "a sharded plan is not followed"),
        ("in a step", "CommunicationError", "in the middle of a step"),
    ],
)
def test_what_cannot_be_followed_is_refused(kind: str, error: str, text: str) -> None:
    errors = [outcome.error for outcome in launch(refused, 2, kind, timeout_s=LIMIT_S)]
    assert error in {each.type for each in errors if each}
    assert any(text in each.text for each in errors if each)
