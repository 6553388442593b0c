"""The group-scheduling problem, and its plans.

A driver that schedules g iterations at once queues their tasks on the workers, which start each
task when its inputs arrive. With m tasks an iteration then costs the driver o(g) = (d0 + d1·m) / g
+ d2·m: d0 once a group, d1 once a group for each task (its copies in the other iterations share
it), d2 for each task of each iteration. Larger groups cost less but go longer, g·(T + o(g)),
without a decision in which the job could adapt or recover.

Source: Venkataraman, Ding, Ermolin, section "What is Drizzle".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import TopologicalSorter
from math import ceil
from typing import Any

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.graphs import cycle_of, stable_order
from planner.model.validation import MAX_VALUE, did_you_mean, set_exact, set_integer, shown, total

# ---
# Stages of one iteration, and the triggers of their tasks.
#
# A *stage* is a set of like tasks, one for each partition. A task reads from every task of the
# preceding stages (a shuffle is all-to-all), so a task queued ahead of time waits for that many
# triggers. BigDL on Drizzle has two stages an iteration, in one DAG: gradients are calculated, then
# aggregated slice by slice; the next iteration's gradients wait for every slice of the new weights.
#
# Complexity: O(stages + dependencies), except for sorting. Source: Venkataraman, Ding, Ermolin,
# sections "What is Drizzle" and "How Drizzle works with BigDL".


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
    needed = [[positions[name] for name in stage.after] for stage in stages]
    order = stable_order(needed)
    if len(order) < len(stages):
        cycle = cycle_of(needed, order)
        loop = " -> ".join(stages[place].name for place in [*cycle, cycle[0]])
        path = f"stages[{cycle[0]}].after"
        raise InvalidInputError(path, f"the stages form a cycle: {loop}")


def triggers_of(stages: tuple[Stage, ...]) -> tuple[Triggers, ...]:
    """Return the triggers of each checked stage, level by level, each level in the order given."""
    places = {stage.name: place for place, stage in enumerate(stages)}
    order: list[Stage] = []
    sorter = TopologicalSorter({stage.name: stage.after for stage in stages})
    sorter.prepare()
    while sorter.is_active():
        level = sorter.get_ready()
        order += (stages[place] for place in sorted(places[name] for name in level))
        sorter.done(*level)
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
        for stage in order
    )


def check_triggers(stages: tuple[Stage, ...], rows: tuple[Triggers, ...]) -> None:
    """Raise InvalidPlanError unless the rows hold each stage once, with the right triggers."""
    known = {stage.name: stage for stage in stages}
    followed = {name for stage in stages for name in stage.after}
    seen: set[str] = set()
    for place, row in enumerate(rows):
        path = f"stages[{place}]"
        if row.name not in known or row.name in seen:
            raise InvalidPlanError(f"{path}.name", f"expected another stage, got {shown(row.name)}")
        stage = known[row.name]
        if row.tasks != stage.tasks:
            raise InvalidPlanError(f"{path}.tasks", f"expected {stage.tasks}, got {row.tasks}")
        inside = set(stage.after)
        across = set() if inside else known.keys() - followed
        for field, names, triggers, expected in (
            ("after", row.after, row.triggers, inside),
            ("after_previous", row.after_previous, row.triggers_previous, across),
        ):
            if len(names) != len(expected) or set(names) != expected:
                raise InvalidPlanError(f"{path}.{field}", f"expected {sorted(expected)}")
            if triggers != sum(known[name].tasks for name in expected):
                raise InvalidPlanError(
                    f"{path}.{field.replace('after', 'triggers')}",
                    f"expected a trigger from each task of {sorted(expected)}, got {triggers}",
                )
        if not inside <= seen:
            raise InvalidPlanError(f"{path}.name", f"{shown(row.name)} stands before what it reads")
        seen.add(row.name)
    if len(seen) < len(stages):
        raise InvalidPlanError("stages", f"without {sorted(known.keys() - seen)}")


MAX_OVERHEAD = Fraction(1, 20)
"""Largest share of scheduling in the time of an iteration; assumed: the paper names no limit."""

MAX_GROUP_NS = 10 * 10**9
"""Longest time without a decision of the driver, 10 s; assumed: the paper names no limit."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """How many iterations to schedule at once.

    Decimal numbers are kept exactly as written.

    Parameters
    ----------
    compute_ns : int
        Time T of one iteration without scheduling, in nanoseconds.
    tasks : int, optional
        Tasks m of one iteration; by default the sum over the stages.
    group_ns : Fraction
        Scheduling time d0 of a group, in nanoseconds.
    task_ns : Fraction
        Scheduling time d1 of a task that a group pays once, in nanoseconds.
    constant_task_ns : Fraction
        Scheduling time d2 of a task that every iteration pays, in nanoseconds.
    max_overhead : Fraction
        Largest share of scheduling in the time of an iteration, above 0 and below 1.
    max_group_ns : int, optional
        Longest time of a group, in nanoseconds.
    stages : sequence of Stage
        The stages of one iteration, if they are known.

    Raises
    ------
    InvalidInputError
        If an input is invalid, with the path of the field.
    """

    compute_ns: int
    tasks: int | None = None
    group_ns: Fraction | float = 0
    task_ns: Fraction | float
    constant_task_ns: Fraction | float = 0
    max_overhead: Fraction | float
    max_group_ns: int | None = None
    stages: Sequence[Stage] = ()

    def __post_init__(self) -> None:
        set_integer(self, "compute_ns")
        if self.tasks is not None:
            set_integer(self, "tasks", minimum=1)
        for name in ("group_ns", "task_ns", "constant_task_ns"):
            set_exact(self, name)
        set_exact(self, "max_overhead")
        if not 0 < self.max_overhead < 1:
            raise InvalidInputError(
                "max_overhead", f"expected a number > 0 and < 1, got {shown(self.max_overhead)}"
            )
        if self.max_group_ns is not None:
            set_integer(self, "max_group_ns", minimum=1)
        stages = checked_stages(self.stages)
        object.__setattr__(self, "stages", stages)
        if stages:
            self._take_tasks_of(stages)
        elif self.tasks is None:
            raise InvalidInputError("tasks", "missing (or stages)")
        total(
            ceil(self.compute_ns + self.once_ns + self.always_ns),
            "task_ns",
            "the time of a group of one",
        )

    def _take_tasks_of(self, stages: tuple[Stage, ...]) -> None:
        together = sum(stage.tasks for stage in stages)
        if together > MAX_VALUE:
            raise InvalidInputError(
                "stages", f"expected at most {MAX_VALUE} tasks together, got {shown(together)}"
            )
        if self.tasks not in (None, together):
            raise InvalidInputError(
                "tasks", f"expected as many as the stages have ({together}), got {self.tasks}"
            )
        object.__setattr__(self, "tasks", together)

    @property
    def once_ns(self) -> Fraction:
        """Scheduling time d0 + d1·m that a group pays once, in nanoseconds."""
        assert self.tasks is not None
        return Fraction(self.group_ns) + Fraction(self.task_ns) * self.tasks

    @property
    def always_ns(self) -> Fraction:
        """Scheduling time d2·m that every iteration pays, in nanoseconds."""
        assert self.tasks is not None
        return Fraction(self.constant_task_ns) * self.tasks


@dataclass(frozen=True, slots=True)
class Plan:
    """How many iterations are scheduled at once, and what their tasks wait for.

    Attributes
    ----------
    group_size : int
        Iterations g of a group.
    stages : tuple of Triggers
        The triggers of each stage, in topological order; empty if the stages are not known.
    """

    group_size: int
    stages: tuple[Triggers, ...] = ()
