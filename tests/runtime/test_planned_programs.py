"""Plans of whole iterations are run by the program they name, in both modes."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import torch

from planner.families import iteration
from planner.families.collectives import COLLECTIVES, program
from planner.families.collectives.exchange import direct_program
from planner.families.iteration.plan import Mode
from planner.families.iteration.synchronisation import ALGORITHMS, recipe_on, synchronisations
from planner.jsonio.iteration_making import answer
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import BCube, FatTree, Switch, Topology
from planner.programs import GradientProgram, ShardProgram, program_of
from planner.runtime import attach, join
from planner.runtime.collectives.halves import ProgramHalves
from planner.runtime.collectives.interpreter import Interpreter
from planner.solving.result import Result
from tests.collectives.programs import tensors_program
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    away_from_ddp,
    make_model,
    make_optimizer,
    measured,
)
from tests.thorough import THOROUGH

NAME = "perceptron"
STEPS = 2
TOPOLOGIES: dict[int, list[Topology]] = {
    2: [Switch(2)],
    3: [BCube(3, 1)],
    4: [BCube(2, 2), FatTree(4)],
    9: [BCube(3, 2)],
}

Typed = tuple[iteration.Problem, Any]


def cluster_of(machines: int, topology: Topology) -> Cluster:
    levels = topology.k if isinstance(topology, BCube) else 1
    return Cluster("tried", "a test", machines, topology, Nic(Fraction(10**8), 20_000, levels))


def planned(machines: int, topology: Topology) -> dict[tuple[str, str], Typed]:
    """Plan in both modes with each algorithm; on some networks in one of them, by default."""
    profile = measured(NAME)
    cluster = cluster_of(machines, topology)
    plans: dict[tuple[str, str], Typed] = {}
    usable = [name for name in ALGORITHMS if synchronisations(cluster, (name,))[0]]
    for number, name in enumerate(usable):
        both = THOROUGH or not (machines == 9 or isinstance(topology, FatTree))
        for mode in iteration.MODES if both else iteration.MODES[number % 2 :][:1]:
            problem = iteration.Problem.from_profile(
                profile, cluster, algorithms=[name], modes=[mode], element_bytes=4
            )
            result = iteration.solve(problem)
            plan = result.plan
            assert plan is not None
            plans[name, mode] = problem, result
    return plans


def follow(plans: dict[tuple[str, str], Typed]) -> dict[tuple[str, str], float]:
    """Train by each plan; return how far DDP is."""
    with join() as world:
        return {
            names: away_from_ddp(plan, NAME, world, steps=STEPS) for names, plan in plans.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("machines", TOPOLOGIES)
def test_what_is_planned_is_what_runs(machines: int) -> None:
    for topology in TOPOLOGIES[machines]:
        plans = planned(machines, topology)
        assert {mode for _, mode in plans} == {"replicated", "sharded"}
        for value in values(launch(follow, machines, plans)):
            assert max(value.values()) < 1e-6
            assert value.keys() == plans.keys()


def mixed(mode: Mode) -> Typed:
    """A plan of three ranks in which transfers, by turns, name two algorithms."""
    problem, _ = planned(3, Switch(3))["ring", mode]
    result = iteration.solve(problem, method="ps" if mode == "sharded" else "layer_by_layer")
    assert result.plan is not None
    pushes = [transfer for transfer in result.plan.transfers if transfer.kind != "pull"]
    place = {part.parameter: place for place, push in enumerate(pushes) for part in push.parts}
    transfers = sorted(  # what is pulled, as soon as all of it was pushed
        result.plan.transfers,
        key=lambda sent: (max(place[part.parameter] for part in sent.parts), sent.kind == "pull"),
    )
    problem = replace(problem, algorithms=("ring", "halving_doubling", "shuffle"))
    names: tuple[str | None, ...] = (None, "halving_doubling", "shuffle")
    plan = replace(
        result.plan,
        transfers=tuple(
            replace(transfer, algorithm=names[number % 3])
            for number, transfer in enumerate(transfers)
        ),
    )
    assert len(plan.algorithms) == 3
    return problem, plan


@pytest.mark.slow
@pytest.mark.parametrize("mode", iteration.MODES)
def test_each_transfer_goes_by_the_algorithm_it_names(mode: Mode) -> None:
    problem, plan = mixed(mode)
    document = answered(problem, plan)
    program = program_of(document)
    assert program == program_of((problem, plan))
    assert isinstance(program, GradientProgram | ShardProgram)
    if isinstance(program, ShardProgram):
        kinds = [transfer.kind for transfer in plan.transfers]
        assert [direction for direction, _ in program.transfers] == kinds
        assert "push" in kinds[kinds.index("pull") :]
    recipes = {batch.collective for batch in program.batches}
    assert recipes == {recipe_on(problem.cluster, name) for name in plan.algorithms}
    assert len(recipes) > 1
    plans = {("typed", mode): (problem, plan), ("answer", mode): document}
    for value in values(launch(follow, 3, plans)):
        assert max(value.values()) < 1e-6


def answered(problem: iteration.Problem, plan: iteration.Plan) -> bytes:
    """Return a plan as the answer of a request."""
    evaluation = iteration.evaluate(problem, plan)
    result = Result("joint", plan, evaluation.iteration_ns, 0, 0.0, evaluation=evaluation)
    return msgspec.json.encode(answer(problem, result, model="tried"))


def attach_only(plan: Any, other: bool) -> None:
    with join(timeout_s=20) as world:
        model = make_model(NAME)
        mine = Interpreter(world, direct_program(world.size)) if other else None
        attach(model, plan, make_optimizer("sgd", model), world, all_reduce=mine)


@pytest.mark.parametrize(
    ("ranks", "algorithm", "mode", "other", "message"),
    [
        (2, "ring", "replicated", False, r"ring\(3\): it is for 3 ranks, the job has 2; plan for"),
        (3, "ring", "replicated", True, r"sums up by ring\(3\), got direct\(3\)"),
    ],
)
def test_what_cannot_be_run_as_planned_is_refused(
    ranks: int, algorithm: str, mode: str, other: bool, message: str
) -> None:
    plan = planned(3, Switch(3))[algorithm, mode]
    for error in errors(launch(attach_only, ranks, plan, other)):
        assert error.type == "InvalidInputError"
        assert re.search(message, error.text), error.text


def share_by_tensors() -> None:
    with join(timeout_s=20) as world:
        ProgramHalves(Interpreter(world, tensors_program((1, 1), world.size)))


def test_shards_by_a_program_that_leaves_ranks_without_are_refused() -> None:
    for error in errors(launch(share_by_tensors, 3)):
        assert re.search("plan: shards by tensors.*without any", error.text)


def halves(names: list[str]) -> list[str]:
    """Sum up and hand out rows of many sizes by the halves of programs; return what is wrong."""
    wrong = []
    with join() as world:
        bcube = BCube(2, 2)
        for name in names:
            interpreter = Interpreter(world, program(name, bcube))
            both = ProgramHalves(interpreter)
            for width in (1, 5, 70_001):
                rows = torch.arange(4 * width, dtype=torch.int64).view(4, width)
                sent = rows * (world.rank + 1)
                total = both.scatter(sent, world.rank, torch.empty_like(rows))()
                if not torch.equal(total, rows[world.rank] * 10):
                    wrong.append(f"{name} {width} scatter")
                mine = torch.zeros_like(rows)
                mine[world.rank] = rows[world.rank]
                both.gather(mine, world.rank)()
                if not torch.equal(mine, rows):
                    wrong.append(f"{name} {width} gather")
            interpreter.close()
    return wrong


@pytest.mark.slow
def test_rows_are_summed_up_and_handed_out_by_halves() -> None:
    names = [name for name in COLLECTIVES if "tensors" not in name and "k_nics" not in name]
    for value in values(launch(halves, 4, names)):
        assert value == []
