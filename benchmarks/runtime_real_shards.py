"""Pulls and pushes against FSDP2, on one host of `runtime_real`."""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from real_models import MODELS
from runtime_jobs import Variant, profiled
from runtime_real_gradients import (
    BY_LAYER,
    DDP,
    Named,
    Rows,
    as_document,
    described,
    interfering,
    measured_once,
)
from runtime_real_kept import Setting, Task
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import planner
from planner import Profile, TableCost
from planner.model.contention import Interference
from planner.model.measured import Collective
from planner.model.units import format_bytes
from planner.programs import program_of
from planner.runtime import World

FSDP2, KEPT, AHEAD = "FSDP2", "FSDP2, gathered once", "FSDP2, two blocks ahead"
EXACT, ONE = "`exact`", "`one_batch`"
METHODS = {EXACT: "exact", BY_LAYER: "layer_by_layer", ONE: "one_batch"}
COLLECTIVES: dict[str, Collective] = {"pull": "all_gather", "push": "reduce_scatter"}


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return what one shards by itself with FSDP2: the members of the outermost list of modules."""
    outermost = next(
        module for module in model.modules() if isinstance(module, nn.ModuleList | nn.Sequential)
    )
    return [module for module in outermost.children() if any(True for _ in module.parameters())]


def by_fsdp2(model: nn.Module, size: int, ahead: int = 0, **options: Any) -> nn.Module:
    """Shard each block, and the rest, as FSDP2's documentation does.

    With `ahead` its prefetch lists name so many blocks in either pass, which are taken to compute
    in the order in which the model lists them.
    """
    mesh = init_device_mesh("cpu", (size,))
    blocks = [fully_shard(block, mesh=mesh, **options) for block in blocks_of(model)]
    fully_shard(model, mesh=mesh, **options)
    if ahead:
        for place, block in enumerate(blocks):
            block.set_modules_to_forward_prefetch(blocks[place + 1 : place + 1 + ahead])
            before = blocks[max(place - ahead, 0) : place]
            block.set_modules_to_backward_prefetch(before[::-1])
    return model


def requests(
    profile: Profile, rows: dict[str, Rows], beside: dict[str, Interference], method: str
) -> list[dict[str, Any]]:
    """Return what to ask `planner.solve` for: plans to pull and to push."""
    layers = profile.chain().layers
    return [
        {
            "problem": "ibatch",
            "direction": direction,
            "method": method,
            "compute_ns": [getattr(layer, compute) for layer in layers],
            "layer_bytes": [layer.parameter_bytes for layer in layers],
            "network": {"table": rows[direction], "interference": as_document(beside[direction])},
            "layer_names": [layer.name for layer in layers],
            "layer_parameters": [list(layer.parameters) for layer in layers],
        }
        for direction, compute in (("pull", "forward_ns"), ("push", "backward_ns"))
    ]


def shards(world: World, task: Task, rows: dict[str, Rows], options: argparse.Namespace) -> Setting:
    """Measure a model, plan its pulls and pushes, and run all variants."""
    make = MODELS[task.model]
    beside = {
        direction: interfering(world, collective, make(), options.samples)
        for direction, collective in COLLECTIVES.items()
    }
    own = profiled(make(), task.model, options.repetitions)
    text = ""
    if world.rank == 0:
        text = json.dumps(
            {
                name: [planner.solve(one) for one in requests(own, rows, beside, method)]
                for name, method in METHODS.items()
            }
        )
    answers = json.loads(world.gather("the plans", text)[0])
    variants = [
        Named(Variant(name, pair, sum(one["makespan_ns"] for one in pair)), repr(program_of(pair)))
        for name, pair in answers.items()
    ]
    for name, again, ahead in ((FSDP2, True, 0), (KEPT, False, 0), (AHEAD, True, 2)):
        wrap = partial(by_fsdp2, size=world.size, ahead=ahead, reshard_after_forward=again)
        variants.append(Named(Variant(name, None, None, wrap=wrap), name))
    variants.append(Named(Variant(DDP, None, None), DDP))
    found = measured_once(world, make, variants, options, task.title)
    size = own.parameter_bytes
    compute_ns = sum(op.duration_ns for op in own.dataflow().ops)
    transfer_ns = sum(
        TableCost(tuple((size, ns) for size, ns in table)).cost_ns(size) for table in rows.values()
    )
    about = (
        f"{format_bytes(size)}, {compute_ns / 1e6:.0f} ms of computation, {transfer_ns / 1e6:.0f} "
        f"ms to pull and to push all; {_said('a pull', beside['pull'])}; "
        f"{_said('a push', beside['push'])}; {_batches(answers[EXACT])}"
    )
    return Setting(about, found, compute_ns, transfer_ns)


def _said(what: str, beside: Interference) -> str:
    return described(beside).replace("a transfer", what)


def _batches(pair: Sequence[dict[str, Any]]) -> str:
    pulls, pushes = (len(one["batches"]) for one in pair)
    return f"{EXACT} pulls {pulls} and pushes {pushes} batches"
