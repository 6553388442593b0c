"""Plans of fully sharded training as settings of FSDP2, and what each costs that cannot be set.

Problem. `planner.programs.UnitProgram` says which modules are gathered together and which gathers a
unit issues. FSDP2 has a method for each, some of them new or private. Write down what to call, and
what an iteration takes where one of them is missing.

Method. The plan without the setting is followed by the simulator, with the rules that remain:

- without ``set_reduce_scatter_max_input_buffers`` one input is kept;
- without ``set_separate_reduce_scatter_group`` there is one channel;
- without ``_set_unshard_async_op`` gathers wait for no computation, but for copies out of earlier
  gathers: in the forward pass one that a step prefetches for that of the step before, any other for
  that of two units before; in the backward pass for the latest that the host has asked for, and on
  one channel for the scatters before it.

Complexity. O(units) a setting. Source. torch.distributed.fsdp._fully_shard of PyTorch 2.13.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.fsdp.evaluation import follow
from planner.fsdp.plan import Plan
from planner.fsdp.problem import Channels
from planner.jsonio.fsdp import FsdpAnswer
from planner.programs import UnitProgram, program_of
from planner.programs.units import plan_of

__all__ = ["ASYNCHRONOUS", "BUFFERS", "SEPARATE", "fsdp2_unit_settings", "needed", "without"]

ASYNCHRONOUS = "_set_unshard_async_op"
BUFFERS = "set_reduce_scatter_max_input_buffers"
SEPARATE = "set_separate_reduce_scatter_group"

_NOTE = (
    "Make the mesh with init_device_mesh. Where checkpoint is true, wrap each module's forward "
    "pass in torch.utils.checkpoint.checkpoint. Call fully_shard(modules, mesh=mesh, "
    "reshard_after_forward=…) for each unit, then fully_shard(model, mesh=mesh), which has no "
    "parameters of its own; then the methods in settings on the model, and of the first module of "
    "each unit set_modules_to_forward_prefetch and set_modules_to_backward_prefetch with the "
    "modules listed (itself: nothing, in place of FSDP2's own choice). without: what an iteration "
    "takes if the installed torch lacks a method. planner.runtime.fsdp2.as_fsdp2 does all of this, "
    "and on CPUs makes collectives asynchronous, which FSDP2 waits for there."
)


def fsdp2_unit_settings(answer: FsdpAnswer) -> dict[str, Any]:
    """Return the settings of a checked plan of `fsdp`, as plain values.

    Raises
    ------
    InvalidInputError
        If there is no plan, or its layers have no names.
    NotApplicableError
        If ``fully_shard`` cannot be told its units.
    """
    program = program_of(answer)
    assert isinstance(program, UnitProgram)
    first = [unit.modules[0] for unit in program.units]
    hybrid = program.replicas > 1
    return {
        "mesh": [program.replicas, program.shards] if hybrid else [program.shards],
        "mesh_dim_names": ["replicate", "shard"] if hybrid else ["shard"],
        "units": [
            {
                "modules": list(unit.modules),
                "reshard_after_forward": unit.reshard,
                "checkpoint": unit.recompute,
                "forward_prefetch": [first[target] for target in unit.forward_prefetch],
                "backward_prefetch": [first[target] for target in unit.backward_prefetch or (u,)],
            }
            for u, unit in enumerate(program.units)
        ],
        "settings": dict(needed(program)),
        "iteration_ns": answer.iteration_ns,
        "peak_bytes": answer.peak_bytes,
        "without": list(_without(answer, program)),
        "note": _NOTE,
    }


def needed(program: UnitProgram) -> Iterator[tuple[str, Any]]:
    """Yield the methods of the model that a plan needs, each with its argument."""
    yield ASYNCHRONOUS, True
    if program.buffers > 1:
        yield BUFFERS, program.buffers
    if program.separate:
        yield SEPARATE, True


def _without(answer: FsdpAnswer, program: UnitProgram) -> Iterator[dict[str, Any]]:
    """Yield how long an iteration takes without each setting that it needs."""
    plan, loads = plan_of(answer)
    for method, _ in needed(program):
        remains, channels = without(plan, answer.channels, method)
        time = follow(remains, loads, channels).iteration_ns
        yield {"method": method, "iteration_ns": time}


def without(plan: Plan, channels: Channels, method: str) -> tuple[Plan, Channels]:
    """Return what is left of a plan without a method, and of the channels.

    A gather may leave in the forward step of its own unit, for the backward one: streams only know
    that its parameters have been used up to then. As a plan that would be refused.
    """
    if method == SEPARATE:
        return plan, "one"
    if method == BUFFERS:
        return replace(plan, buffers=1), channels
    count = len(plan.units)
    copied = [
        step for step in range(2 * count) if step < count or not plan.units[plan.unit_of(step)].keep
    ]
    units = []
    for u, unit in enumerate(plan.units):
        ahead = unit.forward_at - (1 if unit.forward_at < u else 2)
        again = unit.backward_at
        if again is not None and again < count:
            again = max(again - 1, 0)
        elif again is not None and (again == count or channels != "one"):
            again = max(step for step in copied if step <= min(again, 2 * count - 2 - u))
        units.append(unit._replace(forward_at=max(ahead, 0), backward_at=again))
    return replace(plan, units=tuple(units)), channels
