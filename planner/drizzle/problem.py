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
from math import ceil

from planner.drizzle.stages import Stage, Triggers, checked_stages
from planner.errors import InvalidInputError
from planner.validation import MAX_VALUE, set_exact, set_integer, shown, total

__all__ = ["MAX_GROUP_NS", "MAX_OVERHEAD", "Plan", "Problem"]

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
