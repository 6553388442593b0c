"""What is planned is what runs, transfer by transfer, and it trains as DDP does.

What runs is seen from outside of the executors: when which transfer began and ended, and what the
ranks summed up meanwhile, by which program, and which bytes. `plans` says what is tried.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from planner.families import iteration
from planner.families.bml.program import REPLAN, made
from planner.families.collectives.exchange import direct_program
from planner.families.iteration.baselines import servers
from planner.families.iteration.synchronisation import recipe_on
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Switch
from planner.runtime import Ring, World, attach
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.base import Executor
from planner.runtime.executors.trace import Event
from tests.runtime.jobs import in_each_rank
from tests.runtime.plans import (
    NAME,
    SERVER,
    Case,
    answered,
    by_each_algorithm,
    mixed,
    perceptron,
    small,
    tight,
)
from tests.runtime.reference import (
    backward,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.thorough import THOROUGH

STEPS = 2


class Call(NamedTuple):
    """A sum over all ranks, or a half of one, as it was asked for."""

    time_ns: int
    kind: str
    program: str
    values: Tensor
    depth: int


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Note what ranks sum up, and by what, while the block runs."""
    calls: list[Call] = []
    ring, begin, follow = Ring.__call__, Ring.begin, Interpreter._follow

    def by_ring(self: Ring, flat: Tensor, depth: int = 1) -> None:
        calls.append(Call(time.monotonic_ns(), "all_reduce", "ring", flat.clone(), depth))
        ring(self, flat, depth)

    def by_line(self: Ring, flat: Tensor, filling: Iterable[int] = ()) -> Callable[[], object]:
        filled = [*filling]
        if flat.is_floating_point():  # else ranks agree on something
            calls.append(Call(time.monotonic_ns(), "all_reduce", "ring", flat.clone(), 1))
        return begin(self, flat, filled)

    def by_program(self: Interpreter, flat: Tensor, depth: int, kind: Any) -> None:
        name = self.program.name
        calls.append(Call(time.monotonic_ns(), kind, name, flat.clone(), depth))
        follow(self, flat, depth, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ring, "__call__", by_ring)
        patch.setattr(Ring, "begin", by_line)
        patch.setattr(Interpreter, "_follow", by_program)
        yield calls


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
    model = make_model(NAME)
    backward(model, NAME, world.rank, 0)
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


@pytest.fixture
def cases(ranks: int) -> list[Case]:
    found = [*by_each_algorithm(ranks), tight(ranks)]
    found += map(mixed, iteration.MODES) if ranks == 3 else ()
    assert {case.plan.mode for case in found} == set(iteration.MODES)
    return found


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
@in_each_rank("ranks", timeout_s=600 if THOROUGH else 120)
def test_no_decision_of_a_plan_is_dropped_and_transfers_go_by_the_algorithms_they_name(
    world: World, ranks: int, cases: Sequence[Case]
) -> None:
    """What runs is what is planned, and weights are those of DDP."""
    expected = ddp_weights(NAME, steps=STEPS)
    for case in cases:
        problem, plan, answer = case
        model = make_model(NAME)
        attached = answer if answer and world.rank else (problem, plan)
        with attach(model, attached, make_optimizer("sgd", model), world) as executor:
            with recorded() as calls:
                take_steps(executor, [0])
                executor.finish()
            compare(case, carried_out(executor, calls))
            take_steps(executor, range(1, STEPS))
        if plan.mode == "replicated":
            compare_messages(case, world, calls)
        assert largest_difference(weights_of(model), expected) < 1e-6, plan.algorithm


# ---
# What cannot be run.


def sharded_by_trees() -> Any:
    """An answer that the planner does not make: somebody has changed the program of one."""
    problem = perceptron(small(4, BCube(2, 2)), "bml", "sharded").problem
    plan = servers(problem, problem.by_name["bml"])  # which cuts no parameter
    whole = json.loads(answered(problem, plan).answer)
    whole["synchronisation"]["program"].update(generator=REPLAN, failed={"nics": [[[0, 1], 0]]})
    return whole


@pytest.fixture
def unfit(cluster: Cluster | None) -> Any:
    """Return a plan for a cluster, or a changed one."""
    if cluster is None:
        return sharded_by_trees()
    return perceptron(cluster, "bml" if cluster.failed else "ring", "replicated").answer


@pytest.mark.parametrize(
    ("ranks", "cluster", "other", "message"),
    [
        (2, small(3, Switch(3)), False, r"ring\(3\): it is for 3 ranks, the job has 2; plan for"),
        (3, small(3, Switch(3)), True, r"sums up by ring\(3\), got direct\(3\)"),
        (4, small(4, BCube(2, 2), SERVER), False, "for 3 ranks, the job has 4; plan for 4"),
        (4, None, False, "leaves some ranks without any"),
    ],
)
@in_each_rank("ranks")
def test_what_cannot_be_run_as_planned_is_refused(
    world: World, ranks: int, cluster: Cluster | None, other: bool, message: str, unfit: Any
) -> None:
    model = make_model(NAME)
    mine = Interpreter(world, direct_program(ranks)) if other else None
    with pytest.raises(InvalidInputError, match=message):
        attach(model, unfit, make_optimizer("sgd", model), world, all_reduce=mine)
