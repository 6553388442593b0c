"""A link fails for good: the job plans anew and goes on, with the weights it would have had."""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from planner import iteration
from planner.clusters import Cluster, Nic
from planner.collectives.program import Kind
from planner.errors import CommunicationError, PlannerError
from planner.iteration import Problem
from planner.iteration.plan import Mode
from planner.runtime import attach, join, recover
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.topologies import BCube, Failures
from tests.runtime.launching import Outcome, launch
from tests.runtime.reference import (
    Weights,
    backward,
    largest_difference,
    make_model,
    make_optimizer,
    measured,
    weights_of,
)

NAME = "perceptron"
TIMEOUT_S = 4.0
LIMIT_S = 90
STEPS = 5
BAD_STEP = 3


def problem_of(
    failed: Failures | None = None, n: int = 2, k: int = 2, mode: Mode = "replicated"
) -> Problem:
    profile = measured(NAME)
    nic = Nic(Fraction(10**7), 20_000, k)
    cluster = Cluster("c", "a test", n**k, BCube(n, k), nic, failed=failed or Failures())
    return Problem.from_profile(
        profile,
        cluster,
        algorithms=["bml"],
        modes=[mode],
        element_bytes=4,
        max_transfer_bytes=800,
    )


@dataclass(frozen=True)
class Cut:
    """What happens to which rank, in which step, and before or after which of its transfers."""

    rank: int
    step: int = BAD_STEP
    transfer: int = 1
    after: bool = False


def transfers_of(executor: Executor) -> int:
    """Return how many transfers a step has."""
    if isinstance(executor, ShardExecutor):
        return len(executor._transfers)
    assert isinstance(executor, GradientExecutor)
    return len(executor._messages)


def pull_the_plug(name: str) -> None:
    subprocess.run(["ip", "link", "set", name, "down"], check=True)


def break_down(name: str) -> None:
    """Fail as gloo does; meanwhile the others go on as far as they can."""
    time.sleep(1)
    raise RuntimeError(f"{name} is gone")


@dataclass(frozen=True)
class Job:
    """What a rank did."""

    weights: Weights
    steps: int
    recoveries: tuple[str, ...]
    complete: tuple[int, ...]
    failed: Failures
    sharded: bool


def train(
    optimizer_name: str,
    problem: Problem,
    cuts: dict[Cut, str],
    strike: Callable[[str], object] = pull_the_plug,
    failures: tuple[Failures | None, ...] = (),
) -> Job:
    """Train through the failures."""
    model = make_model(NAME)
    world = join(TIMEOUT_S)
    optimizer = make_optimizer(optimizer_name, model)
    plan = problem, iteration.solve(problem)
    executor = attach(model, plan, optimizer, world, recoverable=True)
    plain, batches = Interpreter._follow, transfers_of(executor)
    transfers, recoveries, complete, left = 0, [], [], dict(cuts)

    def struck(self: Interpreter, flat: Tensor, depth: int, kind: Kind) -> None:
        nonlocal transfers
        step, transfer = divmod(transfers, batches)
        transfers += 1
        before, after = (
            left.pop(Cut(world.rank, step, transfer, after=after), None) for after in (False, True)
        )
        if before:
            strike(before)
        plain(self, flat, depth, kind)
        if after:
            strike(after)

    Interpreter._follow = struck  # type: ignore[method-assign]
    while executor.steps < STEPS:
        try:
            backward(model, NAME, world.rank, executor.steps)
            executor.step()
            if executor.steps == STEPS:
                executor.finish()
        except CommunicationError as error:
            recoveries.append(str(error))
            complete.append(executor.complete or 0)
            told = failures[len(recoveries) - 1] if failures else None
            executor, problem = recover(executor, problem, failures=told)
            batches = transfers_of(executor)
            transfers = executor.steps * batches
    executor.close()
    executor.world.leave()
    failed = problem.cluster.failed
    sharded = isinstance(executor, ShardExecutor)
    ends = tuple(recoveries), tuple(complete), failed, sharded
    return Job(weights_of(model), executor.steps, *ends)


@cache
def undisturbed(optimizer_name: str, n: int = 2, k: int = 2) -> Weights:
    """Return what training in one process gives, with the gradients of all ranks."""
    model = make_model(NAME)
    optimizer = make_optimizer(optimizer_name, model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(n**k):
            backward(model, NAME, rank, step)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= n**k
        optimizer.step()
    return weights_of(model)


def jobs(outcomes: list[Outcome], optimizer: str, n: int = 2) -> list[Job]:
    """Return what ranks did, which all have the weights of a job without failures."""
    done: list[Job] = []
    for outcome in outcomes:
        assert outcome.error is None, outcome.error.trace
        done.append(outcome.value)
    for job in done:
        assert job.steps == STEPS
        assert largest_difference(job.weights, undisturbed(optimizer, n)) < 1e-6
        for name, value in job.weights.items():
            assert torch.equal(value, done[0].weights[name])
    return done


@pytest.mark.slow
@pytest.mark.emulated
@pytest.mark.parametrize(
    ("optimizer", "cut", "name"),
    [("sgd", Cut(1), "eth0"), ("adam", Cut(2, 2, 0), "eth1"), ("adam", Cut(0, 0, 1), "eth0")],
)
def test_a_job_goes_on_when_a_link_is_cut(optimizer: str, cut: Cut, name: str) -> None:
    from emulated_cluster import Layout, cluster

    problem = problem_of()
    with cluster(Layout.bcube(2, 2), 50_000_000) as hosts:
        outcomes = launch(train, 4, optimizer, problem, {cut: name}, timeout_s=LIMIT_S, hosts=hosts)
    for job in jobs(outcomes, optimizer):
        (reason,) = job.recoveries
        assert f"interface {name} of rank {cut.rank} is down" in reason
        assert job.failed == Failures(nics=frozenset({(cut.rank, int(name[-1]))}))


def swallow(name: str) -> None:
    """Let an interface stay up, and lose all that is sent over it."""
    command = ["tc", "qdisc", "replace", "dev", name, "root", "blackhole"]
    subprocess.run(command, check=True)


@pytest.mark.slow
@pytest.mark.emulated
def test_a_link_that_swallows_everything_is_found() -> None:
    from emulated_cluster import Layout, cluster

    problem = problem_of()
    with cluster(Layout.bcube(2, 2), 50_000_000) as hosts:
        outcomes = launch(
            train, 4, "adam", problem, {Cut(1): "eth0"}, swallow, timeout_s=LIMIT_S, hosts=hosts
        )
    for job in jobs(outcomes, "adam"):
        (reason,) = job.recoveries
        assert "is down" not in reason
        # Which of the two ends it is cannot be told, and is the same.
        assert job.failed == Failures(nics=frozenset({(0, 0)}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "cut"),
    [
        ("sgd", Cut(1)),
        pytest.param("adam", Cut(3, 0, 0), marks=pytest.mark.slow),
        pytest.param("adam", Cut(2, after=True), marks=pytest.mark.slow),
    ],
)
def test_a_job_goes_on_when_it_is_told_what_has_failed(optimizer: str, cut: Cut) -> None:
    failed = Failures(nics=frozenset({(1, 0)}))
    outcomes = launch(
        train, 4, optimizer, problem_of(), {cut: "x"}, break_down, (failed,), timeout_s=LIMIT_S
    )
    for job in jobs(outcomes, optimizer):
        assert job.failed == failed
        assert len(job.recoveries) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "cut"),
    [
        ("adam", Cut(1)),
        ("sgd", Cut(3, 0, 0)),
        ("adam", Cut(2, transfer=4, after=True)),
    ],
)
def test_a_sharded_job_goes_on(optimizer: str, cut: Cut) -> None:
    problem, failed = problem_of(mode="sharded"), Failures(nics=frozenset({(1, 0)}))
    outcomes = launch(
        train, 4, optimizer, problem, {cut: "x"}, break_down, (failed,), timeout_s=LIMIT_S
    )
    for job in jobs(outcomes, optimizer):
        assert job.failed == failed
        assert len(job.recoveries) == 1
        assert not job.sharded  # around this failure ranks have no equal shares


@pytest.mark.slow
def test_shards_that_are_updated_already_are_taken_back() -> None:
    problem, failed = problem_of(mode="sharded"), Failures(nics=frozenset({(1, 0)}))
    plan = iteration.solve(problem).plan
    assert plan is not None
    kinds = [transfer.kind for transfer in plan.transfers]
    cut = Cut(2, transfer=len(kinds) - 1 - kinds[::-1].index("push"), after=True)
    outcomes = launch(
        train, 4, "adam", problem, {cut: "x"}, break_down, (failed,), timeout_s=LIMIT_S
    )
    done = jobs(outcomes, "adam")
    assert [job.complete for job in done] == [(BAD_STEP + (rank != cut.rank),) for rank in range(4)]


@pytest.mark.slow
def test_shards_go_on_as_shards_where_that_is_possible() -> None:
    problem = replace(problem_of(n=3, mode="sharded"), algorithms=["ring"])
    failed = Failures(nics=frozenset({(1, 1)}))  # which the ring does not use
    outcomes = launch(
        train, 9, "sgd", problem, {Cut(2): "x"}, break_down, (failed,), timeout_s=2 * LIMIT_S
    )
    for job in jobs(outcomes, "sgd", 3):
        assert job.sharded
        assert job.failed == failed


@pytest.mark.slow
@pytest.mark.emulated
def test_a_sharded_job_goes_on_when_a_link_is_cut() -> None:
    from emulated_cluster import Layout, cluster

    problem, cut = problem_of(mode="sharded"), Cut(1)
    with cluster(Layout.bcube(2, 2), 50_000_000) as hosts:
        outcomes = launch(train, 4, "adam", problem, {cut: "eth0"}, timeout_s=LIMIT_S, hosts=hosts)
    for job in jobs(outcomes, "adam"):
        (reason,) = job.recoveries
        assert "interface eth0 of rank 1 is down" in reason


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_ranks_that_have_ended_the_step_take_it_back(optimizer: str) -> None:
    problem = problem_of()
    last = len(iteration.solve(problem).plan.transfers) - 1  # type: ignore[union-attr]
    cut = Cut(2, BAD_STEP, last, after=True)
    failed = Failures(nics=frozenset({(1, 0)}))
    outcomes = launch(
        train, 4, optimizer, problem, {cut: "x"}, break_down, (failed,), timeout_s=LIMIT_S
    )
    done = jobs(outcomes, optimizer)
    assert [job.complete for job in done] == [(BAD_STEP + (rank != cut.rank),) for rank in range(4)]


@pytest.mark.slow
def test_a_second_link_fails() -> None:
    first, second = Failures(nics=frozenset({(1, 0)})), Failures(nics=frozenset({(0, 0)}))
    cuts = {Cut(1, 1): "x", Cut(2, 4, 0): "y"}
    outcomes = launch(
        train, 4, "adam", problem_of(), cuts, break_down, (first, second), timeout_s=LIMIT_S
    )
    for job in jobs(outcomes, "adam"):
        assert job.failed == Failures(nics=first.nics | second.nics)
        assert len(job.recoveries) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failures", "kind", "text"),
    [
        (None, "PlannerError", "all links work, but for those"),
        (Failures(nics=frozenset({(0, 0), (0, 1)})), "PlannerError", "cut off server"),
        (Failures(servers=frozenset({3})), "InvalidInputError", "goes on with all its ranks"),
        (Failures(nics=frozenset({(4, 0)})), "InvalidInputError", "expected an integer <= 3"),
    ],
)
def test_without_a_way_on_all_ranks_end(failures: Failures | None, kind: str, text: str) -> None:
    told = (failures,) if failures else ()
    outcomes = launch(
        train, 4, "sgd", problem_of(), {Cut(1): "x"}, break_down, told, timeout_s=LIMIT_S
    )
    for outcome in outcomes:
        assert outcome.error is not None
        assert outcome.error.type == kind
        assert re.search(text, outcome.error.text), outcome.error.text


def refuse(problem: Problem) -> list[str]:
    texts = []
    with join(TIMEOUT_S) as world:
        for recoverable in (False, True):
            model = make_model(NAME)
            plan = problem, iteration.solve(problem)
            optimizer = make_optimizer("sgd", model)
            with attach(model, plan, optimizer, world, recoverable=recoverable) as executor:
                with pytest.raises(PlannerError) as refused:
                    recover(executor, problem)
                texts.append(str(refused.value))
    return texts


def test_there_has_to_be_something_to_recover_from() -> None:
    for outcome in launch(refuse, 4, problem_of()):
        assert outcome.error is None, outcome.error.trace
        assert outcome.value == [
            "executor: expected one attached with recoverable=True",
            "nothing has failed: recover is for after a CommunicationError",
        ]
