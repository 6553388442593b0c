"""Plans that follow the network: a job measures itself while it runs, and is planned anew.

Problem. A plan is made for a network and a computation as they were. When they change, the job goes
on with it as if nothing had happened.

Method. At the end of a window of steps, ranks put together what their executors measured of it
(`planner.runtime.measuring.courses`): one small all-reduce in a group of its own, which is waited
for a step later. What comes of it is the same on all ranks, and so is what the rule says of it
(`planner.replanning`), which decides everything. When it is time, rank 0 plans for what was
measured, while the others wait, and hands the plan out; if it is worth the switch, ranks compare
its hash, finish what is on its way, and follow it from the next step on.

Guarantee. All ranks follow the same plan in every step. Weights are those of any plan: bit for bit
where the order of sums does not depend on the plan. The rest is the rule's.

Complexity. O(batches · steps) a window, and O(ops) where something has changed, but for planning.
Source. Own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from planner import caramel, iteration
from planner.errors import InvalidInputError
from planner.jsonio import decode_plan, encode_plan
from planner.programs import GradientProgram, digest
from planner.replanning import Drift, Hysteresis, State, noted, worth
from planner.results import Result
from planner.runtime.attaching import reads_as, switch
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.measuring.courses import (
    Plan,
    Planned,
    Problem,
    changed,
    merged,
    read,
    rows_of,
)
from planner.runtime.world.world import World
from planner.scenarios import Scenario
from planner.units import format_ns
from planner.validation import integer, shown

__all__ = ["Following", "Look", "follow", "handed_out"]

_COLD = 2
"""Steps that are not measured at the start: the optimiser makes its state, buffers are new."""


@dataclass(frozen=True, slots=True)
class Look:
    """What came of one look for another plan.

    Attributes
    ----------
    step : int
        Steps that were complete then.
    drifts : tuple of Drift
        Why it was time: what had changed, relative to what was planned for.
    network : Scenario
        By what start-ups and bandwidth were multiplied.
    kept_ns, new_ns : int
        What a step lasts under the plan so far, and under the new one, by what was measured.
    switched : bool
        Whether the new one is followed from here on.
    planning_s : float
        How long the ranks waited for it.
    """

    step: int
    drifts: tuple[Drift, ...]
    network: Scenario
    kept_ns: int
    new_ns: int
    switched: bool
    planning_s: float

    def __str__(self) -> str:
        seen = ", ".join(f"{drift.name} {float(drift.factor):.2f} times" for drift in self.drifts)
        plans = f"{format_ns(self.kept_ns)} a step, {format_ns(self.new_ns)} by a new plan"
        return f"step {self.step}: {seen} what was planned for; {plans}: " + (
            "switched" if self.switched else "kept the old one"
        )


class Following:
    """Watches an executor, and changes its plan; made by `follow`.

    Attributes
    ----------
    executor : Executor
        What is watched.
    planned : Planned
        What is planned for by now, and the plan that is followed.
    log : tuple of Look
        Every look for another plan so far, the same on all ranks but for `planning_s`.
    """

    def __init__(
        self,
        executor: GradientExecutor,
        planned: Planned,
        rule: Hysteresis,
        every: int,
        time_limit: float,
    ) -> None:
        self.executor = executor
        self.log: tuple[Look, ...] = ()
        self.planned = planned
        self._rule = rule
        self._every = every
        self._time_limit = time_limit
        self._expected = planned.course
        self._state = State()
        self._since = executor.steps + _COLD
        self._asked: tuple[Any, Tensor] | None = None
        self._group = executor.world.new_group(range(executor.world.size))
        executor.after_steps(self._stepped)
        executor.closing(self._close)

    def _stepped(self) -> None:
        if self._asked is not None:
            self._hear(*self._asked)
        # Transfers of the last step may still be on their way.
        elif self.executor.steps > self._since + self._every:
            self._ask()

    def _ask(self) -> None:
        """Begin to put together what all ranks measured in a window."""
        steps = range(self._since, self._since + self._every)
        events = self.executor.trace.since(self._since)
        rows = torch.tensor(rows_of(events, steps, len(self._expected.ready_ns)))
        with self.executor.world.transferring(self.executor.steps):
            work = distributed.all_reduce(
                rows, distributed.ReduceOp.MIN, group=self._group, async_op=True
            )
        self._asked = work, rows

    def _hear(self, work: Any, rows: Tensor) -> None:
        """Do what the rule says of a window."""
        self._asked = None
        with self.executor.world.transferring(self.executor.steps):
            work.wait()
        self._since += self._every
        course = merged(rows.tolist())
        if course is None:
            return
        self._state, drifts = noted(self._rule, self._state, read(self._expected, course))
        if not drifts:
            return
        began = time.monotonic()
        planned, network = changed(self.planned, course)
        world, limit = self.executor.world, self._time_limit
        plan = handed_out(world, "the new plan", lambda: planned.planned(limit).plan)
        new = planned._replace(plan=plan)
        kept_ns, new_ns = planned.step_ns, new.step_ns
        switched = worth(self._rule, kept_ns, new_ns)
        if switched:
            switch(self.executor, new)
        self.planned = new if switched else planned
        self._expected = self.planned.course
        self._since = self.executor.steps + 1  # the next step begins late
        seconds = time.monotonic() - began
        look = Look(self.executor.steps, drifts, network, kept_ns, new_ns, switched, seconds)
        self.log = (*self.log, look)

    def _close(self) -> None:
        if self.executor.world.watch.error is None:
            if self._asked is not None:
                self._asked[0].wait()
            distributed.destroy_process_group(self._group)


def follow(
    executor: Executor,
    plan: tuple[Problem, Plan | Result[Any, Any]],
    *,
    hysteresis: Hysteresis | None = None,
    every: int = 5,
    time_limit: float | None = None,
) -> Following:
    """Let a job's plan follow what the job measures.

    From now on every step may end with another plan; the training loop stays as it is::

        plan = problem, iteration.solve(problem)
        executor = attach(model, plan, optimizer, world)
        following = follow(executor, plan)
        ...
        for look in following.log:
            print(look)

    Every rank has to call it, before the same step.

    Parameters
    ----------
    executor : Executor
        What `attach` returned.
    plan : tuple
        The plan it follows, of all-reduces: a problem of `caramel` or `iteration`, with a plan of
        it or what `solve` returned.
    hysteresis : Hysteresis, optional
        How much has to change, for how long, and for how much gain.
    every : int
        Steps of a window, at least 2.
    time_limit : float, optional
        Seconds of planning, for which all ranks wait; by default half the job's time-out.

    Returns
    -------
    Following
        Says what changed and why. It ends with the executor.

    Raises
    ------
    InvalidInputError
        If the executor follows another plan, or the plan has pushes and pulls: their optimiser's
        state is in shards.
    DisagreementError
        If ranks differ in what is expected of a step, or in a parameter.
    """
    world = executor.world
    with world.refusing():
        integer(every, "every", minimum=2, maximum=2**10)
        problem, solved = plan
        made = solved.plan if isinstance(solved, Result) else solved
        if not isinstance(made, caramel.Plan | iteration.Plan):
            raise InvalidInputError("plan", f"expected one of gradients, got {shown(made)}")
        planned = Planned(problem, made)
        program = reads_as(planned)
        if not isinstance(program, GradientProgram):
            raise InvalidInputError(
                "plan", "a sharded plan is not followed: its optimiser's state is in shards"
            )
        if not isinstance(executor, GradientExecutor) or executor.program != program:
            raise InvalidInputError("plan", "the executor follows another plan")
    chosen, limit = hysteresis or Hysteresis(), time_limit or world.timeout_s / 2
    world.agree("what is followed", digest(planned.course, chosen, every))
    return Following(executor, planned, chosen, every, limit)


def handed_out(world: World, what: str, make: Callable[[], Plan]) -> Plan:
    """Return the plan that rank 0 makes, on all ranks.

    Raises
    ------
    PlannerError
        If it cannot; on all ranks.
    CommunicationError
        If a rank does not come in time.
    """
    plan: Plan = decode_plan(world.from_first(what, lambda: encode_plan(make())))
    return plan
