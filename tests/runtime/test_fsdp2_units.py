"""Plans of fully sharded training by torch's own FSDP2: what travels when, what is in memory when.

The rules of `planner.families.fsdp.baselines` are compared with FSDP2 as people call it, in the
same way.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
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
from tests.runtime.launching import launch
from tests.runtime.test_ddp_export import in_job
from tests.thorough import THOROUGH

WIDTHS = (8, 24, 16, 32, 12, 20, 4)
"""Multiples of 4 ranks, so that nothing is padded; no two layers are of one size."""

NAMES = tuple(str(2 * place) for place in range(len(WIDTHS) - 1))
STEPS = 5 if THOROUGH else 3

Event = tuple[str, int]
Amount = tuple[str, int, int, int]


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


@contextmanager
def recording() -> Iterator[list[Event]]:
    """Note the collectives that begin, in order, on whatever thread."""
    events: list[Event] = []

    def noting(kind: str, place: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            names = ("output_tensor", "input_tensor") if kind == "gather" else ("output", "input")
            tensor = args[place] if len(args) > place else options[names[place]]
            events.append((kind, tensor.numel()))
            if kind == "scatter":
                time.sleep(0.003)  # longer than the computation between two of them
            return function(*args, **options)

        return call

    with (
        mock.patch.object(
            distributed,
            "all_gather_single",
            noting("gather", 0, distributed.all_gather_single),
        ),
        mock.patch.object(
            distributed,
            "reduce_scatter_single",
            noting("scatter", 1, distributed.reduce_scatter_single),
        ),
        mock.patch.object(distributed, "all_reduce", noting("sum", 0, distributed.all_reduce)),
    ):
        yield events


def foreseen(problem: Problem, plan: Plan) -> list[Amount]:
    """Return what shall be in memory at those moments that `weighing` sees."""
    rows, count = evaluate(problem, plan).levels, len(plan.units)
    return [
        (row.stage, row.parameters, row.gradients, row.buffers)
        for row, after in zip(rows, [*rows[1:], rows[-1]], strict=True)
        if not (row.stage == "wait" and after.stage != "copy")
        and not (row.stage == "end" and row.step >= count)
    ]


@contextmanager
def weighing(model: nn.Module, heads: Sequence[nn.Module], most: int) -> Iterator[list[Amount]]:
    """Note the bytes of parameters, gradients and buffers, by their storages."""
    amounts: list[Amount] = []
    states = list(
        {id(state): state for state in map(_state, model.modules()) if state is not None}.values()
    )
    groups = [group for state in states for group in state._fsdp_param_groups]

    def note(stage: str, gradients: Sequence[Tensor] = (), scattered: int = 0) -> None:
        parameters = buffers = made = 0
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
        made += sum(gradient.untyped_storage().size() for gradient in gradients)
        row = (stage, parameters, made + sum(shares.values()), buffers + scattered)
        amounts.append(row)

    def copy_out(*args: Any) -> None:
        note("wait")
        original_copy_out(*args)
        note("copy")

    def post_forward(group: Any, *args: Any) -> Any:
        result = original_post_forward(group, *args)
        note("end")
        return result

    def post_backward(group: Any, *args: Any) -> None:
        if group._training_state.name != "POST_BACKWARD":
            note("compute")
        original_post_backward(group, *args)

    def copy_in(gradients: list[Tensor], buffer: Tensor, size: int) -> None:
        # FSDP2 forgets inputs that are still being sent: those are counted here.
        assert sum(not work._future.done() for work in queued) < most
        original_copy_in(gradients, buffer, size)
        note("scatter", gradients, buffer.untyped_storage().size())

    kind = _fsdp_param_group.FSDPParamGroup

    def put(queue: _Queue, collective: Any) -> Any:
        work = original_put(queue, collective)
        if collective.func is distributed.reduce_scatter_single:
            queued.append(work)
        return work

    queued: list[Any] = []
    original_put = _Queue.__call__
    original_copy_out = _fsdp_collectives.foreach_all_gather_copy_out
    original_copy_in = _fsdp_collectives.foreach_reduce_scatter_copy_in
    original_post_forward, original_post_backward = kind.post_forward, kind.post_backward
    hooks = [head.register_forward_pre_hook(lambda *_: note("compute")) for head in heads]
    with (
        mock.patch.object(_fsdp_param_group, "foreach_all_gather_copy_out", copy_out),
        mock.patch.object(_fsdp_collectives, "foreach_reduce_scatter_copy_in", copy_in),
        mock.patch.object(_Queue, "__call__", put),
        mock.patch.object(kind, "post_forward", post_forward),
        mock.patch.object(kind, "post_backward", post_backward),
    ):
        yield amounts
    for hook in hooks:
        hook.remove()


def _state(module: nn.Module) -> Any:
    return module._get_fsdp_state() if isinstance(module, FSDPModule) else None


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
    mesh = problem.meshes[plan.mesh]
    if mesh.replicas > 1:
        names = ("replicate", "shard")
        devices = init_device_mesh("cpu", (mesh.replicas, mesh.shards), mesh_dim_names=names)
    else:
        devices = init_device_mesh("cpu", (mesh.shards,))
    program = program_of((problem, plan))
    assert isinstance(program, UnitProgram)
    model = make_model()
    assert as_fsdp2(model, program, devices) is model
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
    """Return what FSDP2 sends in a step, called as people do."""
    model, ranks = make_model(), distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    layers = [] if rule == "one_unit" else [model.get_submodule(name) for name in NAMES]
    options: dict[str, Any] = {"reshard_after_forward": False} if rule == "no_reshard" else {}
    for layer in layers:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if rule == "fsdp2_ahead_2":
        for place, layer in enumerate(layers):
            assert isinstance(layer, FSDPModule)
            layer.set_modules_to_forward_prefetch(layers[place + 1 : place + 3])  # type: ignore[arg-type]
            before = layers[max(place - 2, 0) : place][::-1]
            layer.set_modules_to_backward_prefetch(before)  # type: ignore[arg-type]
    for number in range(2):
        with recording() as events:
            step(model, number)
    return events


RULES_OF_FSDP2 = ("fsdp2", "fsdp2_ahead_2", "no_reshard", "one_unit")


def refusals() -> list[str]:
    """Return what each of some misuses raises; none of them leaves the ranks apart."""
    ranks = distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    known = problem(ranks)
    units = tuple(Unit(place, place + 1, True, False, place, None) for place in range(len(NAMES)))
    program = program_of((known, Plan(0, units)))
    assert isinstance(program, UnitProgram)
    first, second, *rest = program.units

    def changed(*units: ShardedUnit) -> UnitProgram:
        return replace(program, units=units)

    def forwards(model: nn.Module, *inputs: Tensor) -> None:
        as_fsdp2(model, program, mesh)
        model(*inputs)

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
    misuses: list[Callable[[], object]] = [
        lambda: as_fsdp2(make_model(), program, mesh, reshard_after_forward=True),
        lambda: as_fsdp2(make_model(), replace(program, shards=3), mesh),
        lambda: as_fsdp2(make_model(), changed(named, second, *rest), mesh),
        lambda: as_fsdp2(make_model(), changed(first, sized, *rest), mesh),
        lambda: as_fsdp2(make_model(), changed(first, *rest), mesh),
        lambda: as_fsdp2(tied, changed(*program.units, again), mesh),
        lambda: forwards(Backwards(*make_model()), torch.ones(1, WIDTHS[0])),
        lambda: forwards(Constant(*make_model()), torch.ones(1, WIDTHS[0])),
        lambda: as_fsdp2(make_model(), replace(program, buffers=1 + distributed.get_rank()), mesh),
    ]
    texts = []
    for misuse in misuses:
        try:
            misuse()
        except PlannerError as error:
            texts.append(f"{type(error).__name__}: {error}")
    return texts


REFUSED = (
    "InvalidInputError: reshard_after_forward: the plan says it for each unit",
    "InvalidInputError: mesh: planned for 3 ranks, got 2",
    "InvalidPlanError: units[0]: the model has no module 'O' inside it",
    "InvalidPlanError: units[1]: 1604 bytes are planned for '2' to '2', the model has 1600",
    "InvalidPlanError: units: the model's 2.weight is in none of them",
    "NotApplicableError: units[6]: a parameter is also in units[0]: plan with tied",
    "InvalidPlanError: units[0]: the model computes units[1] before it",
    "NotApplicableError: units[1]: begins with a module whose inputs have no gradient",
    "DisagreementError: the ranks do not agree on the plan",
)


def everything(plans: Sequence[tuple[Problem, Plan]]) -> tuple[Any, ...]:
    # The order of what FSDP2 sends by itself depends on no number of ranks.
    rules = RULES_OF_FSDP2 if THOROUGH or distributed.get_world_size() == 2 else ()
    return (
        [follow(*plan) for plan in plans],
        plain(),
        {rule: by_default(rule) for rule in rules},
        refusals() if distributed.get_world_size() == 2 else [],
    )


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_travels_is_in_memory_and_is_learnt_is_what_was_planned(ranks: int) -> None:
    plans = [tight(ranks), by_hand(ranks)] if ranks == 2 else [tight(4), tight(2, replicas=2)]
    for outcome in launch(in_job, ranks, everything, plans):
        assert outcome.error is None, outcome.error.trace
        done, weights, defaults, refused = outcome.value
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
        if ranks == 2:
            for text, start in zip(refused, REFUSED, strict=True):
                assert text.startswith(start)


def waits() -> float:
    distributed.init_process_group("gloo", timeout=timedelta(seconds=3))
    group: Any = _Queue([0, 1])._group
    begun = time.monotonic()
    if distributed.get_rank() == 0:
        with pytest.raises(RuntimeError, match="imed out"):
            distributed.all_reduce(torch.ones(1), group=group)
    else:
        time.sleep(10)
    took = time.monotonic() - begun
    distributed.destroy_process_group()
    return took


def test_collectives_wait_for_a_late_rank_as_long_as_the_job_does() -> None:
    first, _ = launch(waits, 2)
    assert first.error is None, first.error.trace
    assert 2 < first.value < 9
