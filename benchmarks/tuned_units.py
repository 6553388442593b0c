"""Units of FSDP2 from traces, on one host of `tuned_traces`.

From the trace of a job that shards its blocks as FSDP2 does by default, units are planned with as
much memory to spare as half of the parameters take, and as all of them several times over. Beside
these run blocks that are gathered once, and the model in one unit.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from real_models import MODELS
from runtime_jobs import Variant, take_turns
from runtime_real import joined
from runtime_real_shards import by_fsdp2
from runtime_report import measured
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from tuned_traces import PLANNED, RECORDED, Circle, circle_of, planned, traced

from planner.families.fsdp.evaluation import iteration_ns
from planner.families.fsdp.problem import at_use
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import read_trace
from planner.formats.importers.kineto_units import units_in
from planner.traces.proposals import Proposal, waited_for
from planner.traces.units import propose_units

HALF, KEPT, ONE = "planned, half to spare", "gathered once", "one unit"


def in_units(model: nn.Module, units: Sequence[tuple[Sequence[str], bool]], size: int) -> nn.Module:
    """Shard a model in units of modules, each with whether it is gathered again."""
    mesh = init_device_mesh("cpu", (size,))
    for names, again in units:
        modules = [model.get_submodule(name) for name in names]
        fully_shard(modules, mesh=mesh, reshard_after_forward=again)
    fully_shard(model, mesh=mesh)
    return model


def circle(name: str, rate: int, share: float, folder: str, options: Any) -> Circle:
    """Trace, plan and run one setting, on one host; rank 0 returns what came of it."""
    del share  # buckets have one
    with joined("shards") as (world, _):
        traced(world, name, partial(by_fsdp2, size=world.size), folder)
        plan = planned(world, folder, _planned)
        variants = [
            Variant(
                each["name"],
                None,
                each["ns"],
                wrap=partial(in_units, units=each["units"], size=world.size),
            )
            for each in plan["variants"]
        ]
        times, _ = take_turns(
            world, MODELS[name], variants, rounds=options.rounds, steps=options.steps
        )
    rows = [measured(one.name, one.predicted_ns, times) for one in variants]
    return circle_of(f"{name}, {rate} Mbit/s, FSDP2", plan, rows)


def _planned(traces: Sequence[bytes]) -> Any:
    """Plan from the traces; return the variants to run, each with its predicted step."""
    read = [read_trace(data) for data in traces]
    ranks = [recorded_in(trace, place) for place, trace in enumerate(read)]
    rank = waited_for(ranks)
    units = units_in(read[ranks.index(rank)].ranges, rank)
    size = sum(unit.parameter_bytes for unit in units.units)
    half, found = (
        propose_units(ranks, rank, units, spare_bytes=spare) for spare in (size // 2, 4 * size)
    )
    names = [unit.name for unit in units.units]
    blocks = [(place, place + 1, True, False) for place in range(len(names))]
    plans = {
        RECORDED: found.likeliest.traced,
        PLANNED: found.plan,
        HALF: half.plan,
        KEPT: at_use(0, blocks),
        ONE: at_use(0, [(0, len(names), True, False)]),
    }
    return {
        "buckets": (len(names), len(found.proposed)),
        "error": found.error,
        "gain": (found.gain, found.least_gain, found.most_gain),
        "keep": found.keep,
        "variants": [_priced(found, names, name, plan) for name, plan in plans.items()],
    }


def _priced(found: Proposal, names: Sequence[str], name: str, plan: Any) -> Any:
    """Return a variant's units, each with whether it is gathered again, and its step (ns)."""
    reading = found.likeliest
    return {
        "name": name,
        "ns": found.parts["other"] + reading.outside_ns + iteration_ns(reading.problem, plan),
        "units": [(names[unit.start : unit.stop], not unit.keep) for unit in plan.units],
    }
