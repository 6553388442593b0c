"""Stages of one iteration, and the triggers of their tasks.

A *stage* is a set of like tasks, one for each partition. A task reads from every task of the
preceding stages (a shuffle is all-to-all), so a task queued ahead of time waits for that many
triggers. BigDL on Drizzle has two stages an iteration, in one DAG: gradients are calculated, then
aggregated slice by slice; the next iteration's gradients wait for every slice of the new weights.

Complexity: O(stages + dependencies), except for sorting.
Source: Venkataraman, Ding, Ermolin, sections "What is Drizzle" and "How Drizzle works with BigDL".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from planner.errors import InvalidInputError
from planner.validation import did_you_mean, set_integer, shown

__all__ = ["Stage", "Triggers", "checked_stages", "topological", "triggers_of"]

_MAX_NAMED = 8
"""Of a longer cycle an error message names only the first and the last stages."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of an iteration.

    Attributes
    ----------
    name : str
        A name that no other stage has.
    tasks : int
        Number of tasks, at least one.
    after : tuple of str
        Names of the stages whose results it reads; none for a first stage.
    """

    name: str
    tasks: int
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Triggers:
    """What each task of one stage waits for.

    Attributes
    ----------
    name : str
        The stage's name.
    tasks : int
        The stage's number of tasks.
    after : tuple of str
        Stages of the same iteration that it waits for.
    triggers : int
        Triggers that each task waits for from these stages: one for each of their tasks.
    after_previous : tuple of str
        Stages of the preceding iteration of the group that it waits for: the last stages, if this
        is a first one. The first iteration of a group does not wait for them.
    triggers_previous : int
        Triggers that each task waits for from the preceding iteration.
    """

    name: str
    tasks: int
    after: tuple[str, ...]
    triggers: int
    after_previous: tuple[str, ...]
    triggers_previous: int


def checked_stages(values: Any) -> tuple[Stage, ...]:
    """Return the stages if they form a directed acyclic graph.

    InvalidInputError at the first repeated name, unknown stage, or cycle (named).
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidInputError("stages", f"expected an array, got {shown(values)}")
    stages = tuple(values)
    positions: dict[str, int] = {}
    for place, stage in enumerate(stages):
        path = f"stages[{place}]"
        if not isinstance(stage, Stage):
            raise InvalidInputError(path, f"expected a Stage, got {shown(stage)}")
        if not isinstance(stage.name, str):
            raise InvalidInputError(f"{path}.name", f"expected a string, got {shown(stage.name)}")
        if stage.name in positions:
            raise InvalidInputError(
                f"{path}.name",
                f"{shown(stage.name)} given twice, first in stages[{positions[stage.name]}]",
            )
        positions[stage.name] = place
        set_integer(stage, "tasks", minimum=1, path=f"{path}.tasks")
    for place, stage in enumerate(stages):
        _check_after(stage.after, positions, f"stages[{place}].after")
    _check_acyclic(stages, positions)
    return stages


def _check_after(after: Any, positions: dict[str, int], path: str) -> None:
    if not isinstance(after, tuple):
        raise InvalidInputError(path, f"expected names, got {shown(after)}")
    seen: set[str] = set()
    for place, name in enumerate(after):
        where = f"{path}[{place}]"
        if not isinstance(name, str):
            raise InvalidInputError(where, f"expected a string, got {shown(name)}")
        if name not in positions:
            hint = did_you_mean(name, positions)
            raise InvalidInputError(
                where, f"no stage is called {shown(name)}{hint and f'; {hint}'}"
            )
        if name in seen:
            raise InvalidInputError(where, f"{shown(name)} given twice")
        seen.add(name)


def _check_acyclic(stages: tuple[Stage, ...], positions: dict[str, int]) -> None:
    try:
        _sorter(stages).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][:-1]
        first = min(range(len(cycle)), key=lambda place: positions[cycle[place]])
        loop = cycle[first:] + cycle[:first]
        named = loop
        if len(loop) > _MAX_NAMED:
            half = _MAX_NAMED // 2
            named = [*loop[:half], f"… {len(loop) - 2 * half} more …", *loop[-half:]]
        raise InvalidInputError(
            f"stages[{positions[loop[0]]}].after",
            f"the stages form a cycle: {' -> '.join([*named, loop[0]])}",
        ) from None


def topological(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return checked stages level by level, each level in the order given."""
    position = {stage.name: place for place, stage in enumerate(stages)}
    sorter = _sorter(stages)
    sorter.prepare()
    order: list[Stage] = []
    while sorter.is_active():
        level = sorter.get_ready()
        order += (stages[place] for place in sorted(position[name] for name in level))
        sorter.done(*level)
    return tuple(order)


def _sorter(stages: tuple[Stage, ...]) -> TopologicalSorter[str]:
    return TopologicalSorter({stage.name: stage.after for stage in stages})


def triggers_of(stages: tuple[Stage, ...]) -> tuple[Triggers, ...]:
    """Return the triggers of each checked stage, in topological order."""
    tasks = {stage.name: stage.tasks for stage in stages}
    read = {name for stage in stages for name in stage.after}
    last = tuple(stage.name for stage in stages if stage.name not in read)
    return tuple(
        Triggers(
            stage.name,
            stage.tasks,
            stage.after,
            sum(tasks[name] for name in stage.after),
            () if stage.after else last,
            0 if stage.after else sum(tasks[name] for name in last),
        )
        for stage in topological(stages)
    )
