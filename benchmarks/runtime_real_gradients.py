"""Plans of gradients against torch's DDP at many bucket sizes, on one host of `runtime_real`."""

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from real_models import MODELS
from runtime_ablations import ddp_plan
from runtime_cluster import ring_bytes
from runtime_jobs import Trained, Variant, caramel_request, profiled, take_turns, updates_of
from runtime_real_kept import Setting, Task
from runtime_report import Measured, measured
from runtime_waiting import LABEL, load, scaled_units, waiting
from torch import Tensor, nn

import planner
from planner import Profile, TableCost
from planner.families import caramel
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.measured import Collective
from planner.model.units import format_bytes
from planner.profiling.timing import copied_gradients
from planner.programs import program_of
from planner.runtime import World
from planner.runtime.measuring.contention import measure_interference, passes_of
from planner.runtime.measuring.slowest import slowest_profile
from planner.solving.bucketing import DDP_BUCKET_MB, DDP_LIMITS

DDP = "DDP"
STATIC = "DDP, static graph, views"
PLANNED = "`search`"
BLIND = "`search`, no interference"
BY_LAYER = "`layer_by_layer`"
WHOLE = "`exact`, whole parameters"
PAPER = "`caramel`"
OURS = "DDP's buckets, ours"
TUNED = "`planner.tune`"
ALONE = "no transfers"
"""Steps of the model on all ranks at once: the machine's speed in these rounds."""

VIEWS = {"gradient_as_bucket_view": True}
"""Without it, DDP copies each sum back, which takes 1 to 2 % of a step."""

COMPUTE_S = 0.3
"""What layers that wait wait for in a step."""

Rows = list[list[int]]


class Copying(nn.Module):
    """A model whose gradients are copied, as before transfers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._copies = ExitStack()
        self._copies.enter_context(copied_gradients(model, {}))

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(*inputs)


@dataclass(frozen=True, slots=True)
class Named:
    """A variant and what makes two variants the same: those of one key are executed once."""

    variant: Variant
    key: str


def size_of(model: str) -> int:
    """Return the bytes of a model's parameters."""
    return 4 * sum(parameter.numel() for parameter in MODELS[model]()[0].parameters())


def scaled_bytes(task: Task) -> float:
    """Return how many bytes a ring all-reduces while layers that wait do."""
    return ring_bytes(task.hosts, task.rate * 10**6, COMPUTE_S)


def largest(task: Task, models: Sequence[str]) -> int:
    """Return the size up to which a network is timed, for all models of a part."""
    if task.part == "waiting":
        return 4 * round(scaled_bytes(task) / 4)
    return max(map(size_of, models))


def interfering(
    world: World, collective: Collective, trained: Trained, rounds: int
) -> Interference:
    """Return what transfers and the passes of a model take from each other."""
    compute = passes_of(*trained)
    return measure_interference(world, collective, rounds=rounds, compute=compute)


def as_document(interference: Interference) -> dict[str, Any]:
    """Return what requests say of interference."""
    return {
        "startup_ns": interference.startup_ns,
        "ns_per_byte": float(interference.ns_per_byte),
        "slowdown": float(interference.slowdown),
        "delay_ns": interference.delay_ns,
    }


def described(interference: Interference) -> str:
    """Return a clause about interference."""
    return (
        f"during computation a transfer takes {interference.startup_ns / 1e3:.0f} µs and "
        f"{float(interference.ns_per_byte):.3g} ns/B from it and lasts "
        f"{float(interference.slowdown):.2f} times as long and "
        f"{interference.delay_ns / 1e6:.1f} ms"
    )


def variants_for(
    profile: Profile,
    rows: Rows,
    interference: Interference,
    scale: float = 1.0,
) -> list[dict[str, Any]]:
    """Plan; return all variants as documents.

    Parameters
    ----------
    profile, rows, interference
        The model, all-reduces, and what both take from each other.
    scale : float
        By what the model's sizes, and so DDP's limits, are divided.
    """
    beside = {} if interference.is_none else {"interference": as_document(interference)}
    plans = {
        PLANNED: planner.solve(caramel_request(profile, rows, "auto", **beside)),
        BLIND: planner.solve(caramel_request(profile, rows, "auto")),
        WHOLE: planner.solve(caramel_request(profile, rows, "exact", **beside)),
        PAPER: planner.solve(caramel_request(profile, rows, "caramel", **beside)),
        BY_LAYER: planner.solve(caramel_request(profile, rows, "layer_by_layer", **beside)),
        OURS: planner.solve(caramel_request(profile, rows, "ddp", **beside)),
    }
    found = [
        as_variant(name, plan)
        for name, plan in plans.items()
        if "iteration_ns" in plan  # exact methods may be too slow for many parameters
    ]
    cost = TableCost(tuple((size, ns) for size, ns in rows))
    problem = caramel.Problem.from_profile(profile, cost, workers=1, interference=interference)
    limits: dict[int | None, tuple[int, int]] = {None: DDP_LIMITS}
    limits |= {size: (size * 2**20, size * 2**20) for size in DDP_BUCKET_MB}
    for size, pair in limits.items():
        small = int(pair[0] / scale), int(pair[1] / scale)
        plan = ddp_plan(problem, small)
        predicted_ns = caramel.evaluate(problem, plan).iteration_ns
        sized = {"bucket_cap_mb_list": [limit / 2**20 for limit in small]}
        options = sized if size is None else {**sized, **VIEWS}
        found.append(
            {
                "name": ddp_name(size),
                "plan": None,
                "predicted_ns": predicted_ns,
                "options": {} if size is None and scale == 1 else options,
                "key": repr(plan.groups),
            }
        )
    default = next(one for one in found if one["name"] == DDP)
    views = {**default["options"], **VIEWS, "static_graph": True}
    found.append({**default, "name": STATIC, "options": views, "key": STATIC})
    return found


def measured_once(
    world: World,
    make: Callable[[], Trained],
    variants: Sequence[Named],
    options: argparse.Namespace,
    about: str,
) -> tuple[Measured, ...]:
    """Let variants take turns, each kind of them once, and return all."""
    firsts: dict[str, Variant] = {}
    for one in variants:
        firsts.setdefault(one.key, one.variant)
    kinds = list(firsts.values())
    times, _ = take_turns(
        world, make, kinds, rounds=options.rounds, steps=options.steps, warmup=1, about=about
    )
    return tuple(
        replace(
            measured(firsts[one.key].name, one.variant.predicted_ns, times), name=one.variant.name
        )
        for one in variants
    )


def gradients(world: World, task: Task, rows: Rows, options: argparse.Namespace) -> Setting:
    """Measure a model that computes, plan, and run all variants. All ranks have to call it."""
    make = MODELS[task.model]
    chosen = tuned(world, *make())
    interference = interfering(world, "all_reduce", make(), options.samples)
    return _run(world, task, rows, make, interference, options, tuned=chosen)


def tuned(world: World, model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Any] | str:
    """Return the plan that `planner.tune` follows, or the name of the DDP that it keeps."""
    with planner.tune(model, inputs, updates_of(model.parameters()), world=world) as found:
        if not found.keep_ddp:
            assert found.plan is not None
            plan: dict[str, Any] = json.loads(found.plan)
            return plan
        kept: Any = found.model
        limit = None if kept.bucket_bytes_cap_default else kept.bucket_bytes_cap // 2**20
        return ddp_name(limit)


def ddp_name(bucket_mb: int | None) -> str:
    """Return the name of DDP with buckets of a size, or its default."""
    return DDP if bucket_mb is None else f"{DDP}, {bucket_mb} MB"


def as_variant(name: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan's variant as a document."""
    return {
        "name": name,
        "plan": plan,
        "predicted_ns": plan["iteration_ns"],
        "options": {},
        "key": repr(program_of(plan)),
    }


def waiting_for(world: World, task: Task, rows: Rows, options: argparse.Namespace) -> Setting:
    """Do the same of a shipped model whose layers wait instead of computing."""
    shipped, size = load(task.model), scaled_bytes(task)
    make = partial(waiting, scaled_units(shipped, COMPUTE_S, size))
    return _run(world, task, rows, make, NO_CONTENTION, options, shipped.parameter_bytes / size)


def _run(
    world: World,
    task: Task,
    rows: Rows,
    make: Callable[[], Trained],
    interference: Interference,
    options: argparse.Namespace,
    scale: float = 1.0,
    tuned: dict[str, Any] | str | None = None,
) -> Setting:
    own = slowest_profile(world, profiled(make(), task.model, options.repetitions))
    text = ""
    if world.rank == 0:
        listed = variants_for(own, rows, interference, scale)
        if isinstance(tuned, str):
            kept = next(one for one in listed if one["name"] == tuned)
            listed.append({**kept, "name": TUNED})
        elif tuned is not None:
            listed.append(as_variant(TUNED, tuned))
        text = json.dumps(listed)
    documents = json.loads(world.gather("the plans", text)[0])
    variants = [
        Named(Variant(one["name"], one["plan"], one["predicted_ns"], one["options"]), one["key"])
        for one in documents
    ]
    graph = own.dataflow()
    compute_ns = _computation_ns(own)
    plain = Variant(ALONE, None, compute_ns, wrap=Copying)
    variants.append(Named(plain, ALONE))
    found = measured_once(world, make, variants, options, task.title)
    world.gather("all rounds are over", "")
    later = slowest_profile(world, profiled(make(), task.model, options.repetitions))
    size = sum(parameter.size_bytes for parameter in graph.parameters)
    cost = TableCost(tuple((size, ns) for size, ns in rows))
    transfer_ns = cost.cost_ns(size)
    beside = f"; {described(interference)}"
    if task.part == "waiting":
        beside = f" in {LABEL}; sizes, and DDP's limits, are divided by {scale:.0f}"
    about = (
        f"{format_bytes(size)}, {compute_ns / 1e6:.0f} ms of computation, "
        f"{transfer_ns / 1e6:.0f} ms for one all-reduce of all{beside}"
    )
    drift = _computation_ns(later) / compute_ns - 1
    return Setting(
        about, found, compute_ns, transfer_ns, interference.sending_ns(size), drift=drift
    )


def _computation_ns(profile: Profile) -> int:
    """Return the time of all ops of a step."""
    return sum(op.duration_ns for op in profile.dataflow().ops)
