"""Plans of fully sharded training by torch's own FSDP2: what travels when, what is in memory when.

The rules of `planner.families.fsdp.baselines` are compared with FSDP2 as people call it, in the
same way.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from planner.families import fsdp
from planner.families.fsdp import Mesh, Plan, Problem, Unit
from planner.families.fsdp.baselines import RULES
from planner.families.fsdp.evaluation import evaluate
from planner.model.costs import AffineCost
from planner.model.errors import PlannerError
from planner.programs import ShardedUnit, UnitProgram, program_of
from planner.runtime.fsdp2 import _Queue, as_fsdp2
from tests.runtime.fsdp2_watching import (
    RULES_OF_FSDP2,
    Amount,
    Event,
    as_people_do,
    devices,
    recording,
    weighing,
)
from tests.runtime.launching import launch, values
from tests.runtime.test_ddp_export import in_job
from tests.thorough import THOROUGH

WIDTHS = (8, 24, 16, 32, 12, 20, 4)
"""Multiples of 4 ranks, so that nothing is padded; no two layers are of one size."""

NAMES = tuple(str(2 * place) for place in range(len(WIDTHS) - 1))
STEPS = 5 if THOROUGH else 3


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(WIDTHS):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers)


def problem(shards: int, replicas: int = 1, **changes: Any) -> Problem:
    cost = AffineCost(200, Fraction(1))
    mesh = Mesh(
        shards=shards,
        replicas=replicas,
        all_gather=cost,
        reduce_scatter=cost,
        all_reduce=cost if replicas > 1 else None,
    )
    sizes = [4 * (before + 1) * after for before, after in pairwise(WIDTHS)]
    return Problem(
        forward_ns=[900] * len(sizes),
        backward_ns=[1800] * len(sizes),
        parameter_bytes=sizes,
        meshes=[mesh],
        names=NAMES,
        **changes,
    )


def solved(problem: Problem) -> tuple[Problem, Plan]:
    plan = fsdp.solve(problem).plan
    assert plan is not None
    return problem, plan


def tight(shards: int, replicas: int = 1) -> tuple[Problem, Plan]:
    """Return a plan where memory is scarce: some units are gathered again, some early."""
    free = problem(shards, replicas)
    least = evaluate(free, RULES["fsdp2"](free, 0)).peak_bytes
    return solved(problem(shards, replicas, memory_bytes=least))


def by_hand(shards: int) -> tuple[Problem, Plan]:
    """Return a plan with everything at once: gathers for the backward pass in the forward one."""
    known = problem(
        shards,
        channels="two",
        activation_bytes=[4 * width for width in WIDTHS[1:]],
        checkpoint_bytes=[4 * width for width in WIDTHS[1:]],
    )
    units = (
        Unit(0, 2, keep=False, recompute=True, forward_at=0, backward_at=5),
        Unit(2, 3, keep=False, recompute=False, forward_at=0, backward_at=3),
        Unit(3, 5, keep=False, recompute=True, forward_at=1, backward_at=3),
        Unit(5, 6, keep=True, recompute=False, forward_at=2, backward_at=None),
    )
    return known, Plan(0, units, buffers=2)


def planned(problem: Problem, plan: Plan) -> list[Event]:
    """Return what is issued in an iteration, in order: numbers gathered, scattered, summed up."""
    loads, mesh = evaluate(problem, plan).loads, problem.meshes[plan.mesh]
    events: list[Event] = []
    for step, issued in enumerate(plan.issues):
        events += [
            ("gather", loads[plan.unit_of(gather)].parameter_bytes // 4) for gather in issued
        ]
        if step >= len(loads):
            made = loads[plan.unit_of(step)].gradient_bytes // 4
            events.append(("scatter", made))
            events += [("sum", made // mesh.shards)] if mesh.replicas > 1 else []
    return events


def foreseen(problem: Problem, plan: Plan) -> list[Amount]:
    """Return what shall be in memory at those moments that `weighing` sees."""
    rows, count = evaluate(problem, plan).levels, len(plan.units)
    return [
        (row.stage, row.parameters, row.gradients, row.buffers)
        for row, after in zip(rows, [*rows[1:], rows[-1]], strict=True)
        if not (row.stage == "wait" and after.stage != "copy")
        and not (row.stage == "end" and row.step >= count)
    ]


def step(model: nn.Module, number: int) -> None:
    random = torch.Generator().manual_seed(100 * number + distributed.get_rank())
    model(torch.randn(8, WIDTHS[0], generator=random)).square().mean().backward()


def train(model: nn.Module, forward: nn.Module, last: Callable[[], None]) -> list[Tensor]:
    """Train some steps, the last by a function; return all weights."""
    updates = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(STEPS):
        if number < STEPS - 1:
            step(forward, number)
        else:
            last()
        updates.step()
        updates.zero_grad()
    return [
        weight.full_tensor().detach() if isinstance(weight, DTensor) else weight.detach()
        for weight in model.parameters()
    ]


def follow(problem: Problem, plan: Plan) -> tuple[list[Event], list[Amount], list[list[float]]]:
    """Return what travels and is in memory in the last of some steps, and the weights."""
    program = program_of((problem, plan))
    assert isinstance(program, UnitProgram)
    model = make_model()
    assert as_fsdp2(model, program, devices(problem.meshes[plan.mesh])) is model
    heads = [model.get_submodule(unit.modules[0]) for unit in program.units]
    events: list[Event] = []
    amounts: list[Amount] = []

    def last() -> None:
        # Without gradients first: what was gathered for a backward pass is free again.
        with torch.no_grad():
            model(torch.ones(2, WIDTHS[0]))
        with recording() as seen, weighing(model, heads, plan.buffers) as weighed:
            step(model, STEPS - 1)
        events.extend(seen)
        amounts.extend(weighed)

    weights = train(model, model, last)
    return events, amounts, _numbers(weights)


def plain() -> list[list[float]]:
    """Return the weights of DDP."""
    model = make_model()
    parallel = DistributedDataParallel(model)
    return _numbers(train(model, parallel, lambda: step(parallel, STEPS - 1)))


def _numbers(tensors: Sequence[Tensor]) -> list[list[float]]:
    return [tensor.detach().flatten().tolist() for tensor in tensors]


def by_default(rule: str) -> list[Event]:
    """Return what FSDP2 sends in a step."""
    model = as_people_do(make_model, rule, problem(distributed.get_world_size()).meshes[0])
    for number in range(2):
        with recording() as events:
            step(model, number)
    return events


def refused() -> None:
    """Check what each of some misuses raises; none of them leaves the ranks apart."""
    ranks = distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    known = problem(ranks)
    units = tuple(Unit(place, place + 1, True, False, place, None) for place in range(len(NAMES)))
    program = program_of((known, Plan(0, units)))
    assert isinstance(program, UnitProgram)
    first, second, *rest = program.units

    def changed(*units: ShardedUnit) -> UnitProgram:
        return replace(program, units=units)

    def forwards(model: nn.Module) -> None:
        as_fsdp2(model, program, mesh)
        model(torch.ones(1, WIDTHS[0]))

    class Backwards(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            self[2](torch.ones(1, WIDTHS[1]))
            outputs: Tensor = nn.Sequential(*self)(inputs)
            return outputs

    class Constant(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self[2](self[0](inputs).detach())
            return outputs

    tied = make_model()
    tied.append(nn.Linear(WIDTHS[0], WIDTHS[1]))
    tied[-1].weight, tied[-1].bias = tied[0].weight, tied[0].bias
    name = str(len(tied) - 1)
    again = first._replace(modules=(name,))
    sized = second._replace(parameter_bytes=second.parameter_bytes + 4)
    named = first._replace(modules=("O",))
    misuses: dict[str, Callable[[], object]] = {
        "InvalidInputError: reshard_after_forward: the plan says it for each unit": lambda: (
            as_fsdp2(make_model(), program, mesh, reshard_after_forward=True)
        ),
        "InvalidInputError: mesh: planned for 3 ranks, got 2": lambda: as_fsdp2(
            make_model(), replace(program, shards=3), mesh
        ),
        "InvalidPlanError: units[0]: the model has no module 'O' inside it": lambda: as_fsdp2(
            make_model(), changed(named, second, *rest), mesh
        ),
        "InvalidPlanError: units[1]: 1604 bytes are planned for '2' to '2', the model has 1600": (
            lambda: as_fsdp2(make_model(), changed(first, sized, *rest), mesh)
        ),
        "InvalidPlanError: units: the model's 2.weight is in none of them": lambda: as_fsdp2(
            make_model(), changed(first, *rest), mesh
        ),
        "NotApplicableError: units[6]: a parameter is also in units[0]: plan with tied": lambda: (
            as_fsdp2(tied, changed(*program.units, again), mesh)
        ),
        "InvalidPlanError: units[0]: the model computes units[1] before it": lambda: forwards(
            Backwards(*make_model())
        ),
        "NotApplicableError: units[1]: begins with a module whose inputs have no gradient": (
            lambda: forwards(Constant(*make_model()))
        ),
        "DisagreementError: the ranks do not agree on the plan": lambda: as_fsdp2(
            make_model(), replace(program, buffers=1 + distributed.get_rank()), mesh
        ),
    }
    for text, misuse in misuses.items():
        with pytest.raises(PlannerError) as caught:
            misuse()
        assert f"{type(caught.value).__name__}: {caught.value}".startswith(text)


def everything(plans: Sequence[tuple[Problem, Plan]]) -> tuple[Any, ...]:
    # The order of what FSDP2 sends by itself depends on no number of ranks.
    two = distributed.get_world_size() == 2
    if two:
        refused()
    return (
        [follow(*plan) for plan in plans],
        plain(),
        {rule: by_default(rule) for rule in RULES_OF_FSDP2 if THOROUGH or two},
    )


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_travels_is_in_memory_and_is_learnt_is_what_was_planned(ranks: int) -> None:
    plans = [tight(ranks), by_hand(ranks)] if ranks == 2 else [tight(4), tight(2, replicas=2)]
    for done, weights, defaults in values(launch(in_job, ranks, everything, plans)):
        for (known, plan), (events, amounts, learnt) in zip(plans, done, strict=True):
            order = planned(known, plan)
            for kind in ("gather", "scatter", "sum") if known.channels != "one" else ("",):
                assert [event for event in events if kind in event[0]] == [
                    event for event in order if kind in event[0]
                ]
            assert amounts == foreseen(known, plan)
            for row, right in zip(learnt, weights, strict=True):
                assert row == pytest.approx(right, abs=1e-6)
        for rule, events in defaults.items():
            free = problem(ranks)
            assert events == planned(free, RULES[rule](free, 0))


def waits() -> float:
    distributed.init_process_group("gloo", timeout=timedelta(seconds=1))
    group: Any = _Queue([0, 1])._group
    begun = time.monotonic()
    if distributed.get_rank() == 0:
        with pytest.raises(RuntimeError, match="imed out"):
            distributed.all_reduce(torch.ones(1), group=group)
    else:
        time.sleep(4)
    took = time.monotonic() - begun
    distributed.destroy_process_group()
    return took


def test_collectives_wait_for_a_late_rank_as_long_as_the_job_does() -> None:
    first, _ = launch(waits, 2)
    assert first.error is None, first.error.trace
    assert 0.5 < first.value < 3.5
