"""Plans of fully sharded training as executors follow them: units of modules, and prefetch lists.

Problem. A plan speaks of ranges of layers, and of steps that issue gathers. ``fully_shard`` takes
modules, and each of its calls a list of others whose gathers it issues when its own parameters have
arrived. The layers' names are those of modules: so planner calls what it has measured.

Guarantee. What each step issues is what the plan says, in its order; or an error says why
``fully_shard`` cannot be told: layers have no names, a module is in two units, or one unit's module
is inside another's, which would be gathered and freed around it.

Complexity: O(layers · depth of names). Source: ``_fsdp_state.py`` of torch 2.13.
"""

from collections.abc import Sequence

from msgspec import UNSET

from planner.errors import InvalidInputError, NotApplicableError
from planner.fsdp.checker import check_issues
from planner.fsdp.evaluation import Load
from planner.fsdp.plan import Plan, Unit
from planner.fsdp.problem import Channels
from planner.jsonio.fsdp import FsdpAnswer
from planner.programs.forms import ShardedUnit, UnitProgram
from planner.validation import shown

__all__ = ["plan_of", "units_of"]


def plan_of(answer: FsdpAnswer) -> tuple[Plan, list[Load]]:
    """Return the plan in a checked answer, and what its units are.

    Raises
    ------
    InvalidPlanError
        If it issues gathers when it cannot, so that it was not checked.
    """
    assert answer.units is not UNSET
    assert answer.buffers is not UNSET
    units = tuple(
        Unit(*unit.layers, unit.keep, unit.recompute, unit.forward_at, unit.backward_at)
        for unit in answer.units
    )
    check_issues(units)
    loads = [Load(*(getattr(unit, name) for name in Load._fields)) for unit in answer.units]
    return Plan(0, units, answer.buffers), loads


def units_of(
    names: Sequence[str] | None,
    plan: Plan,
    loads: Sequence[Load],
    mesh: tuple[int, int],
    channels: Channels,
) -> UnitProgram:
    """Return the program of a plan.

    Parameters
    ----------
    names : sequence of str, optional
        What the layers are called in the model.
    plan : Plan
        Checked.
    loads : sequence of Load
        What its units are.
    mesh : (int, int)
        Replicas and shards.
    channels : str
        Of its problem.

    Raises
    ------
    InvalidInputError
        If the layers have no names.
    NotApplicableError
        If ``fully_shard`` cannot be told the units.
    """
    if names is None:
        raise InvalidInputError(
            "layer_names",
            "missing: expected the name of each layer's module, as planner plan --mode fsdp has it "
            "from a profile",
        )
    modules = [tuple(names[unit.start : unit.stop]) for unit in plan.units]
    _check_modules(modules)
    count, units = len(plan.units), []
    for u, (unit, load) in enumerate(zip(plan.units, loads, strict=True)):
        ahead = [
            tuple(plan.unit_of(issued) for issued in plan.issues[step] if issued != step)
            for step in (u, 2 * count - 1 - u)
        ]
        units.append(
            ShardedUnit(
                modules[u],
                load.parameter_bytes,
                load.gradient_bytes,
                not unit.keep,
                unit.recompute,
                *ahead,
            )
        )
    return UnitProgram(tuple(units), *mesh, plan.buffers, separate=channels != "one")


def _check_modules(modules: Sequence[Sequence[str]]) -> None:
    unit_of: dict[str, int] = {}
    for number, group in enumerate(modules):
        for name in group:
            if name in unit_of:
                raise NotApplicableError(
                    f"units[{number}]", f"module {shown(name)} is also in units[{unit_of[name]}]"
                )
            unit_of[name] = number
    for name, number in unit_of.items():
        around = name
        while around:
            around = around.rpartition(".")[0]
            if unit_of.get(around, number) != number:
                raise NotApplicableError(
                    f"units[{number}]",
                    f"module {shown(name)} is inside {shown(around)} of units[{unit_of[around]}], "
                    "which fully_shard would gather before it and free behind it: expected both in "
                    "one unit (tied)",
                )
