"""Plans of fully sharded training for FSDP2: units of modules, and prefetch lists.

Problem: a plan has ranges of layers and steps that issue gathers. ``fully_shard`` takes modules,
and per unit a list of others whose gathers it issues when its own parameters have arrived. FSDP2's
own streams, without asynchronous gathers, issue at other moments: docs/fsdp.md, "When FSDP2's
streams issue a gather". Layer names are module names, as planner measures them.
Guarantee: each step issues what the plan says, in its order; or an error says why ``fully_shard``
cannot: layers without names, a module in two units, or one unit's module inside another's, which
would be gathered and freed around it. A layer's name may be those of several modules, with commas.
Complexity: O(layers · depth of names). Source: ``_fsdp_state.py`` of torch 2.13.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.families.fsdp.evaluation import Load
from planner.families.fsdp.prefetch import by_streams
from planner.families.fsdp.problem import Channels, Plan
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.validation import shown
from planner.programs.forms import ShardedUnit, UnitProgram

Lists: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""For each unit: the units that it prefetches in the forward and in the backward pass."""


def units_of(
    names: Sequence[str] | None,
    plan: Plan,
    loads: Sequence[Load],
    mesh: tuple[int, int],
    channels: Channels,
) -> UnitProgram:
    """Return the program of a checked plan; `names` are the layers' module names.

    Units or gathers that ``fully_shard`` cannot express are a `NotApplicableError`.
    """
    if names is None:
        raise InvalidInputError(
            "layer_names",
            "missing: expected the name of each layer's module, as planner plan --mode fsdp has it "
            "from a profile",
        )
    modules = [
        tuple(each for name in names[unit.start : unit.stop] for each in name.split(", "))
        for unit in plan.units
    ]
    _check_modules(modules)
    streams: Lists = ()
    if plan.units[-1].backward_at == len(plan.units) - 1:
        plan, told = _last_in_turn(plan), _told(plan, channels)
        streams = _lists(told)
    units = (
        ShardedUnit(
            group,
            load.parameter_bytes,
            load.gradient_bytes,
            not unit.keep,
            unit.recompute,
            *ahead,
        )
        for group, unit, load, ahead in zip(modules, plan.units, loads, _lists(plan), strict=True)
    )
    return UnitProgram(tuple(units), *mesh, plan.buffers, channels != "one", streams)


def _lists(plan: Plan) -> Lists:
    """Return the units that each unit prefetches, forward and backward."""
    issues, last = plan.issues, 2 * len(plan.units) - 1

    def ahead(step: int) -> tuple[int, ...]:
        return tuple(plan.unit_of(issued) for issued in issues[step] if issued != step)

    return tuple((ahead(u), ahead(last - u)) for u in range(len(plan.units)))


def _last_in_turn(plan: Plan) -> Plan:
    """Return the plan with the second gather of the last unit in that unit's backward step."""
    *units, last = plan.units
    return replace(plan, units=(*units, last._replace(backward_at=len(plan.units))))


def _told(plan: Plan, channels: Channels) -> Plan:
    """Return the plan to give FSDP2's streams so that they carry out `plan`."""
    units = tuple(
        unit._replace(forward_at=min(unit.forward_at + 1, u))
        for u, unit in enumerate(_last_in_turn(plan).units)
    )
    told = replace(plan, units=units)
    if by_streams(told, channels) != plan:
        raise NotApplicableError(
            f"units[{len(units) - 1}].backward_at",
            "only FSDP2's own streams gather a unit again during its own forward computation, and "
            "these cannot issue the other gathers when the plan does",
        )
    return told


def _check_modules(modules: Sequence[Sequence[str]]) -> None:
    unit_of: dict[str, int] = {}
    for number, group in enumerate(modules):
        for name in group:
            if name in unit_of:
                raise NotApplicableError(
                    f"units[{number}]", f"module {shown(name)} is also in units[{unit_of[name]}]"
                )
            unit_of[name] = number
    for name, around in nested_in(unit_of):
        raise NotApplicableError(
            f"units[{unit_of[name]}]",
            f"module {shown(name)} is inside {shown(around)} of units[{unit_of[around]}], which "
            "fully_shard would gather before it and free behind it: expected both in one unit "
            "(tied)",
        )


def nested_in(group_of: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield each pair of a module and a module of another group that contains it."""
    for module, number in group_of.items():
        around = module
        while around:
            around = around.rpartition(".")[0]
            if group_of.get(around, number) != number:
                yield module, around
