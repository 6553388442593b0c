"""Plans of fully sharded training by torch's own FSDP2: what travels when, what is in memory when.

So are exported pulls of `ibatch`, set by hand.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import planner
from planner.families import fsdp
from planner.families.fsdp import Mesh, Plan, Problem, Unit
from planner.families.fsdp.baselines import BASELINES
from planner.families.fsdp.evaluation import evaluate
from planner.formats.exporters.frameworks import pulls_of
from planner.formats.exporters.fsdp2 import fsdp2_settings
from planner.model.costs import AffineCost
from planner.model.errors import PlannerError
from planner.programs import ShardedUnit, UnitProgram, program_of
from planner.runtime.fsdp2 import _Queue, as_fsdp2
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank
from tests.thorough import THOROUGH

WIDTHS = (8, 24, 16, 32, 12, 20, 4)
"""Multiples of 4 ranks, so that nothing is padded; all layers and runs of them differ in size."""

NAMES = tuple(str(2 * place) for place in range(len(WIDTHS) - 1))
SIZES = [(before + 1) * after for before, after in pairwise(WIDTHS)]
STEPS = 5 if THOROUGH else 3

Event = tuple[str, int]
Amount = tuple[str, int, int, int]


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(WIDTHS):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers)


def devices(mesh: Mesh) -> Any:
    names = ("replicate", "shard")[mesh.replicas == 1 :]
    sizes = (mesh.replicas, mesh.shards)[mesh.replicas == 1 :]
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


# ---
# What FSDP2 sends and holds in memory.


@contextmanager
def recording() -> Iterator[list[Event]]:
    """Note the collectives that begin, in order, on whatever thread."""
    events: list[Event] = []

    def noting(kind: str, function: str, place: int, name: str) -> Any:
        original = getattr(distributed, function)

        def call(*args: Any, **options: Any) -> Any:
            tensor = args[place] if len(args) > place else options[name]
            events.append((kind, tensor.numel()))
            if kind == "scatter":
                time.sleep(0.003)  # longer than the computation between two of them
            return original(*args, **options)

        return mock.patch.object(distributed, function, call)

    with (
        noting("gather", "all_gather_single", 0, "output_tensor"),
        noting("scatter", "reduce_scatter_single", 1, "input"),
        noting("sum", "all_reduce", 0, "tensor"),
    ):
        yield events


def watched(
    owner: Any,
    name: str,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> Any:
    """Call functions before and after another one, the latter with its result."""
    original = getattr(owner, name)

    def call(*args: Any) -> Any:
        before(*args)
        result = original(*args)
        after(result, *args)
        return result

    return mock.patch.object(owner, name, call)


@contextmanager
def weighing(model: nn.Module, heads: Sequence[nn.Module], most: int) -> Iterator[list[Amount]]:
    """Note the bytes of parameters, gradients and buffers, by their storages."""
    amounts: list[Amount] = []
    queued: list[Any] = []
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    states = dict.fromkeys(module._get_fsdp_state() for module in sharded)
    groups: list[Any] = [group for state in states for group in state._fsdp_param_groups]
    kind = _fsdp_param_group.FSDPParamGroup

    def note(stage: str, gradients: Sequence[Tensor] = (), scattered: int = 0) -> None:
        parameters, buffers = 0, scattered
        made = sum(gradient.untyped_storage().size() for gradient in gradients)
        shares: dict[int, int] = {}
        for group in groups:
            if group._all_gather_result is not None:
                buffers += group._all_gather_result.all_gather_output.untyped_storage().size()
            for parameter in group.fsdp_params:
                for output in parameter.all_gather_outputs:
                    parameters += output.untyped_storage().size()
                full = getattr(parameter, "_unsharded_param", None)
                if full is not None and full.grad is not None:
                    made += full.grad.untyped_storage().size()
                if isinstance(share := parameter.sharded_param.grad, DTensor):
                    storage = share.to_local().untyped_storage()
                    shares[storage.data_ptr()] = storage.size()
        for kept in groups[0].comm_ctx.reduce_scatter_states:
            buffers += kept.reduce_scatter_input.untyped_storage().size()
        amounts.append((stage, parameters, made + sum(shares.values()), buffers))

    def begin_backward(group: Any, *_: Any) -> None:
        if group._training_state.name != "POST_BACKWARD":
            note("compute")

    def begin_scatter(*_: Any) -> None:
        # FSDP2 forgets inputs that are still being sent: those are counted here.
        assert sum(not work._future.done() for work in queued) < most

    def end_scatter(_: Any, gradients: list[Tensor], buffer: Tensor, *__: Any) -> None:
        note("scatter", gradients, buffer.untyped_storage().size())

    def end_queueing(work: Any, _: _Queue, collective: Any) -> None:
        if collective.func is distributed.reduce_scatter_single:
            queued.append(work)

    with (
        watched(
            _fsdp_param_group,
            "foreach_all_gather_copy_out",
            lambda *_: note("wait"),
            lambda *_: note("copy"),
        ),
        watched(_fsdp_collectives, "foreach_reduce_scatter_copy_in", begin_scatter, end_scatter),
        watched(_Queue, "__call__", after=end_queueing),
        watched(kind, "post_forward", after=lambda *_: note("end")),
        watched(kind, "post_backward", begin_backward),
    ):
        hooks = [head.register_forward_pre_hook(lambda *_: note("compute")) for head in heads]
        yield amounts
    for hook in hooks:
        hook.remove()


# ---
# Plans, and what they come to.


def mesh_of(shards: int, replicas: int, *costs: AffineCost) -> Mesh:
    """Return a mesh with the costs of a gather, a scatter, and a sum if there are replicas."""
    gather, scatter, add = costs
    return Mesh(
        shards=shards,
        replicas=replicas,
        all_gather=gather,
        reduce_scatter=scatter,
        all_reduce=add if replicas > 1 else None,
    )


def problem(replicas: int = 1, **changes: Any) -> Problem:
    """Return a problem for two shards."""
    cost = AffineCost(200, Fraction(1))
    return Problem(
        forward_ns=[900] * len(SIZES),
        backward_ns=[1800] * len(SIZES),
        parameter_bytes=[4 * size for size in SIZES],
        meshes=[mesh_of(2, replicas, cost, cost, cost)],
        names=NAMES,
        **changes,
    )


def tight() -> tuple[Problem, Plan]:
    """Return a plan for two replicas and little memory: some are gathered again, some early."""
    free = problem(replicas=2)
    least = evaluate(free, BASELINES["fsdp2"](free, 0)).peak_bytes
    limited = problem(replicas=2, memory_bytes=least)
    plan = fsdp.solve(limited).plan
    assert plan is not None
    return limited, plan


def by_hand() -> tuple[Problem, Plan]:
    """Return a plan with everything at once: gathers for the backward pass in the forward one."""
    kept = [4 * width for width in WIDTHS[1:]]
    known = problem(channels="two", activation_bytes=kept, checkpoint_bytes=kept)
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


# ---
# What happens.


def step(model: nn.Module, number: int) -> None:
    random = torch.Generator().manual_seed(100 * number + distributed.get_rank())
    model(torch.randn(8, WIDTHS[0], generator=random)).square().mean().backward()


def train(model: nn.Module, forward: nn.Module, last: Callable[[], None]) -> list[list[float]]:
    """Train some steps, the last by a function; return all weights."""
    updates = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(STEPS):
        if number < STEPS - 1:
            step(forward, number)
        else:
            last()
        updates.step()
        updates.zero_grad()
    whole = (
        each.full_tensor() if isinstance(each, DTensor) else each for each in model.parameters()
    )
    return [weight.detach().flatten().tolist() for weight in whole]


def follow(problem: Problem, plan: Plan) -> list[list[float]]:
    """Train; compare what travels and is in memory in the last step, and return the weights."""
    program = program_of((problem, plan))
    assert isinstance(program, UnitProgram)
    model = make_model()
    assert as_fsdp2(model, program, devices(problem.meshes[plan.mesh])) is model
    heads = [model.get_submodule(unit.modules[0]) for unit in program.units]

    def last() -> None:
        # Without gradients first: what was gathered for a backward pass is free again.
        with torch.no_grad():
            model(torch.ones(2, WIDTHS[0]))
        with recording() as events, weighing(model, heads, plan.buffers) as amounts:
            step(model, STEPS - 1)
        order = planned(problem, plan)
        for kind in ("gather", "scatter", "sum") if problem.channels != "one" else ("",):
            own = [event for event in events if kind in event[0]]
            assert own == [event for event in order if kind in event[0]], (own, order)
        assert amounts == foreseen(problem, plan), amounts

    return train(model, model, last)


class Backwards(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        self[2](torch.ones(1, WIDTHS[1]))
        outputs: Tensor = nn.Sequential(*self)(inputs)
        return outputs


class Constant(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self[2](self[0](inputs).detach())
        return outputs


@in_each_rank()
def test_misuses_are_refused_and_leave_no_ranks_apart(world: World) -> None:
    mesh = init_device_mesh("cpu", (2,))
    units = tuple(Unit(place, place + 1, True, False, place, None) for place in range(len(NAMES)))
    program = program_of((problem(), Plan(0, units)))
    assert isinstance(program, UnitProgram)
    first, second, *rest = program.units

    def refuses(
        text: str, program: UnitProgram, model: nn.Module | None = None, **options: Any
    ) -> None:
        with pytest.raises(PlannerError) as caught:
            as_fsdp2(model or make_model(), program, mesh, **options)(torch.ones(1, WIDTHS[0]))
        assert f"{type(caught.value).__name__}: {caught.value}".startswith(text)

    def of(*units: ShardedUnit) -> UnitProgram:
        return replace(program, units=units)

    tied = make_model()
    tied.append(nn.Linear(WIDTHS[0], WIDTHS[1]))
    tied[-1].weight, tied[-1].bias = tied[0].weight, tied[0].bias
    again = first._replace(modules=(str(len(tied) - 1),))
    named = first._replace(modules=("O",))
    sized = second._replace(parameter_bytes=second.parameter_bytes + 4)
    apart = replace(program, buffers=1 + world.rank)
    given = "InvalidInputError: reshard_after_forward: the plan says it for each unit"
    refuses(given, program, reshard_after_forward=True)
    refuses("InvalidInputError: mesh: planned for 3 ranks, got 2", replace(program, shards=3))
    unknown = "InvalidPlanError: units[0]: the model has no module 'O' inside it"
    refuses(unknown, of(named, second, *rest))
    size = "InvalidPlanError: units[1]: 1604 bytes are planned for '2' to '2', the model has 1600"
    refuses(size, of(first, sized, *rest))
    refuses("InvalidPlanError: units: the model's 2.weight is in none of them", of(first, *rest))
    shared = "NotApplicableError: units[6]: a parameter is also in units[0]: plan with tied"
    refuses(shared, of(*program.units, again), tied)
    before = "InvalidPlanError: units[0]: the model computes units[1] before it"
    refuses(before, program, Backwards(*make_model()))
    inputs = "NotApplicableError: units[1]: begins with a module whose inputs have no gradient"
    refuses(inputs, program, Constant(*make_model()))
    refuses("DisagreementError: the ranks do not agree on the plan", apart)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@in_each_rank("ranks")
def test_what_travels_is_in_memory_and_is_learnt_is_what_was_planned(
    world: World, ranks: int
) -> None:
    model = make_model()
    parallel = DistributedDataParallel(model)
    right = train(model, parallel, lambda: step(parallel, STEPS - 1))
    plan = by_hand() if ranks == 2 else tight()
    for row, expected in zip(follow(*plan), right, strict=True):
        assert row == pytest.approx(expected, abs=1e-6)


@in_each_rank()
def test_exported_pulls_are_what_fsdp2_sends(world: World) -> None:
    request = {
        "problem": "ibatch",
        "target": "fsdp2",
        "startup_ns": 1000,
        "transfer_ns": [4 * size for size in SIZES],
        "compute_ns": [900] * len(SIZES),
        "layer_parameters": [[f"{name}.weight", f"{name}.bias"] for name in NAMES],
    }
    plan = planner.solve_or_raise(request)
    settings = fsdp2_settings(pulls_of(plan))
    rows = [range(*batch) for batch in plan["batches"]]
    assert 1 < len(rows) < len(SIZES)
    assert settings["groups"] == [[NAMES[layer] for layer in row] for row in rows]
    model, mesh = make_model(), init_device_mesh("cpu", (world.size,))
    for number in settings["shard_order"]:
        group = [model.get_submodule(name) for name in settings["groups"][number]]
        fully_shard(group, mesh=mesh, reshard_after_forward=False)
    sharded = fully_shard(model, mesh=mesh, reshard_after_forward=False)
    ahead: Any = [model.get_submodule(name) for name in settings["forward_prefetch"]]
    sharded.set_modules_to_forward_prefetch(ahead)
    sizes = [sum(SIZES[layer] for layer in row) for row in rows]
    planned = [("gather", size) for size in sizes] + [("scatter", size) for size in sizes[::-1]]
    for number in range(STEPS):
        with recording() as events:
            step(model, number)
        assert events == planned, planned
