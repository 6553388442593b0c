"""Plans of clusters of which something has failed run, as planned, or are refused."""

import json
import re
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import distributed

from planner.families import iteration
from planner.families.bml.program import REPLAN, made
from planner.families.collectives.recipes import Recipe
from planner.families.iteration.baselines import servers
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import BCube, Failures
from planner.runtime import attach, join
from planner.runtime.collectives.interpreter import Interpreter
from planner.solving.result import Result
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    measured,
    take_steps,
    weights_of,
)
from tests.thorough import THOROUGH

NAME = "perceptron"
STEPS = 2
LINK = Failures(nics=frozenset({(1, 0)}))
SERVER = Failures(servers=frozenset({2}))
SWITCH = Failures(switches=frozenset({(1, 0)}))


def planned(failed: Failures, mode: str = "replicated", algorithm: str = "bml") -> Any:
    profile = measured(NAME)
    nic = Nic(Fraction(10**8), 20_000, 2)
    cluster = Cluster("damaged", "a test", 4, BCube(2, 2), nic, failed=failed)
    problem = iteration.Problem.from_profile(
        profile, cluster, algorithms=[algorithm], modes=[mode], element_bytes=4
    )
    return problem, iteration.solve(problem)


def follow(plans: list[Any]) -> list[tuple[float, str]]:
    """Train by each plan; return how far DDP is, and by what gradients were summed up."""
    outcomes = []
    with join() as world:
        expected = ddp_weights(NAME, steps=STEPS)
        for plan in plans:
            model = make_model(NAME)
            optimizer = make_optimizer("sgd", model)
            with attach(model, plan, optimizer, world) as executor:
                take_steps(executor, NAME, world.rank, range(STEPS))
                (name,) = {summing.name for summing in executor._all_reduces}  # type: ignore[attr-defined]
            outcomes.append((largest_difference(weights_of(model), expected), name))
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "plans"),
    [
        (4, [(LINK, "replicated"), (SWITCH, "replicated"), (LINK, "replicated", "bml_rounds")]),
        (3, [(SERVER, "replicated"), (SERVER, "replicated", "bml_rounds")]),
    ],
)
def test_what_is_planned_is_what_runs(ranks: int, plans: list[tuple[Any, ...]]) -> None:
    for value in values(launch(follow, ranks, [planned(*plan) for plan in plans])):
        for difference, name in value:
            assert difference < 1e-6
            assert name.startswith("bml(2, 2) around failures")


def summed(failures: list[tuple[Failures, int]]) -> list[bool]:
    """Sum up by each re-plan of so many rounds, and by gloo; return where both say the same."""
    same = []
    with join() as world:
        for failed, rounds in failures:
            interpreter = Interpreter(world, made(Recipe(REPLAN, (3, 2, rounds), failed)))
            for size in (1, 16, 1000, 100_001) if THOROUGH else (16, 100_001):
                values = torch.arange(size, dtype=torch.int64) * (world.rank + 1) + world.rank
                expected = values.clone()
                distributed.all_reduce(expected)
                same.append(torch.equal(interpreter.all_reduce(values.clone()), expected))
                if rounds > 1:
                    continue
                both = values.clone()
                interpreter.reduce_scatter(both)
                interpreter.all_gather(both)
                same.append(torch.equal(both, expected))
            interpreter.close()
    return same


TREES = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""Where only trees are left."""
OF_NINE = [Failures(nics=frozenset({(0, 0)})), Failures(switches=frozenset({(0, 1)})), TREES]
OF_EIGHT = [Failures(servers=frozenset({5})), Failures(frozenset({0}), frozenset({(8, 1)}))]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "failures"), [(9, OF_NINE), (8, OF_EIGHT)])
def test_sums_are_those_of_gloo(ranks: int, failures: list[Failures]) -> None:
    """Failures alternate between one round and four; those that leave only trees have both."""
    ways = [(failed, rounds) for failed in failures for rounds in (1, 4)]
    if not THOROUGH:
        ways = [way for place, way in enumerate(ways) if place % 4 in (0, 3) or way[0] is TREES]
    for value in values(launch(summed, ranks, ways)):
        assert all(value)


def attach_only(plan: Any) -> None:
    with join(timeout_s=20) as world:
        model = make_model(NAME)
        attach(model, plan, make_optimizer("sgd", model), world)


def test_dead_servers_have_no_rank() -> None:
    for error in errors(launch(attach_only, 4, planned(SERVER))):
        assert error.type == "InvalidInputError"
        assert re.search("for 3 ranks, the job has 4; plan for 4", error.text)


def test_an_answer_that_shards_where_some_own_nothing_is_refused() -> None:
    """The planner makes none; somebody may have changed the program of one."""
    import msgspec

    from planner.jsonio.iteration_making import answer

    problem, _ = planned(Failures(), "sharded")
    plan = servers(problem, problem.by_name["bml"])  # which cuts no parameter
    evaluation = iteration.evaluate(problem, plan)
    result = Result("ps", plan, evaluation.iteration_ns, 0, 0.0, evaluation=evaluation)
    whole = json.loads(msgspec.json.encode(answer(problem, result)))
    program = whole["synchronisation"]["program"]
    program.update(generator=REPLAN, failed={"nics": [[[0, 1], 0]]})
    for error in errors(launch(attach_only, 4, whole)):
        assert re.search("leaves some ranks without any", error.text)
