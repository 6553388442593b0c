"""Pull plans as groups of modules for FSDP2's ``fully_shard``.

Problem: ``fully_shard([m1, m2, …])`` gathers the parameters of a list of modules in one all-gather,
but a plan lists parameters. Find the modules of each batch, and an order in which to shard them.
Method: a parameter belongs to the module that registers it. ``fully_shard`` also takes what inner
modules register that is not sharded yet, so inner modules' groups come first (topological order).
Guarantee: every group gathers exactly the parameters of its batch, or an error says why none can:
two batches share a module, or each of two groups is inside the other.
Complexity: O(parameters · depth of the model).
Source: torch.distributed.fsdp._fully_shard of PyTorch 2.13.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from planner.formats.exporters.frameworks import whole_names
from planner.jsonio.fsdp import FsdpAnswer
from planner.model.errors import NotApplicableError
from planner.programs import Batch, UnitProgram, program_of
from planner.programs.units import Lists, nested_in

_NOTE = (
    "Call fully_shard on the modules of each group, groups in the order of shard_order, then on "
    "the model if no group has it ('' is the model itself), then "
    "model.set_modules_to_forward_prefetch with the modules of forward_prefetch: each group is one "
    "all-gather, all are issued at the start of the forward pass, in this order, that of the model "
    "itself first. Gradients are reduced in the same groups, all before the next forward pass. "
    "Nothing overlaps on a CPU that way."
)


@dataclass(frozen=True, slots=True)
class ModuleGroups:
    """The modules of each batch in plan order ("" is the model), and the order of sharding."""

    groups: tuple[tuple[str, ...], ...]
    shard_order: tuple[int, ...]


def module_groups(batches: Sequence[Batch]) -> ModuleGroups:
    """Return the modules of each batch.

    Batches that are not whole modules are a `NotApplicableError`.
    """
    group_of: dict[str, int] = {}
    groups = []
    for number, names in enumerate(whole_names(batches, "batches")):
        modules = tuple(dict.fromkeys(name.rpartition(".")[0] for name in names))
        for module in modules:
            if group_of.setdefault(module, number) != number:
                raise NotApplicableError(
                    f"batches[{number}]",
                    f"expected whole modules: other parameters of {module or 'the model itself'} "
                    f"are in batches[{group_of[module]}]",
                )
        groups.append(modules)
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(groups)), ()))
    for module, around in nested_in(group_of):
        sorter.add(group_of[around], group_of[module])
    try:
        order = tuple(sorter.static_order())
    except CycleError as error:
        first, second, *_ = error.args[1]
        raise NotApplicableError(
            f"batches[{first}]",
            f"has a module inside one of batches[{second}] and one around another of it: "
            "fully_shard cannot tell them apart",
        ) from None
    return ModuleGroups(tuple(groups), order)


def fsdp2_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the groups of modules as plain values."""
    modules = module_groups(batches)
    return {
        "groups": [list(group) for group in modules.groups],
        "shard_order": list(modules.shard_order),
        # Of the modules of one call, only the outermost takes prefetch orders.
        "forward_prefetch": [min(group, key=len) for group in modules.groups if "" not in group],
        "note": _NOTE,
    }


# ---
# Plans of fully sharded training as settings of FSDP2: a method for each setting of a plan
# (`planner.programs.UnitProgram`), some of them new or private.
#
# Source: torch.distributed.fsdp._fully_shard of PyTorch 2.13.

ASYNCHRONOUS = "_set_unshard_async_op"
BUFFERS = "set_reduce_scatter_max_input_buffers"
SEPARATE = "set_separate_reduce_scatter_group"

_UNITS_NOTE = (
    "Make the mesh with init_device_mesh. Where checkpoint is true, wrap each module's forward "
    "pass in torch.utils.checkpoint.checkpoint. Call fully_shard(modules, mesh=mesh, "
    "reshard_after_forward=…) for each unit, then fully_shard(model, mesh=mesh), for what is "
    "left; then the methods in settings on the model, and of the first module of "
    "each unit set_modules_to_forward_prefetch and set_modules_to_backward_prefetch with the "
    "modules listed (itself: nothing, in place of FSDP2's own choice). "
    "planner.runtime.fsdp2.as_fsdp2 does all of this, and on CPUs makes collectives asynchronous, "
    "which FSDP2 waits for there."
)


def fsdp2_unit_settings(answer: FsdpAnswer) -> dict[str, Any]:
    """Return the settings of a checked plan of `fsdp`, as plain values.

    Units that ``fully_shard`` cannot express are a `NotApplicableError`.
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
                "forward_prefetch": [first[target] for target in forward],
                "backward_prefetch": [first[target] for target in backward],
            }
            for unit, (forward, backward) in zip(program.units, prefetched(program), strict=True)
        ],
        "settings": dict(needed(program)),
        "iteration_ns": answer.iteration_ns,
        "peak_bytes": answer.peak_bytes,
        "note": _UNITS_NOTE,
    }


def prefetched(program: UnitProgram, *, streams: bool = True) -> Lists:
    """Return the prefetch lists of each unit; an empty backward list becomes the unit itself.

    FSDP2 takes an empty list for its own choice, which is no prefetch in the forward pass.
    """
    lists = program.streams if streams else ()
    lists = lists or tuple(
        (unit.forward_prefetch, unit.backward_prefetch) for unit in program.units
    )
    return tuple((forward, backward or (u,)) for u, (forward, backward) in enumerate(lists))


def needed(program: UnitProgram) -> Iterator[tuple[str, Any]]:
    """Yield the methods of the model that a plan needs, each with its argument."""
    if not program.streams:
        yield ASYNCHRONOUS, True
    if program.buffers > 1:
        yield BUFFERS, program.buffers
    if program.separate:
        yield SEPARATE, True
