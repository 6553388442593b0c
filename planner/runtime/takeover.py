"""Lets a training loop that knows nothing of plans follow one.

Problem. `planner.runtime.attach` wants its own `step` called. Trainers call the optimiser's, and
the model's `no_sync` where they accumulate gradients.

Method. As long as the plan is followed, the optimiser's `step` on this object is the executor's,
behind the closure if there is one; and the model has the executor's `no_sync`, if it has none.
Schedulers may wrap `step` before or after.

Guarantee. That of the executor. After `close` the optimiser and the model are as they were.
Complexity. O(1) a step. Source. Own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from types import MethodType, TracebackType
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from planner.errors import NotApplicableError
from planner.programs import Plan
from planner.runtime.attaching import attach
from planner.runtime.executors.base import Executor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World

__all__ = ["Takeover", "take_over"]


@dataclass(slots=True, eq=False)
class Takeover:
    """A plan that a model and its optimiser follow, until `close`.

    Attributes
    ----------
    executor : Executor
        What `planner.runtime.attach` returned.
    world : World
        The job.
    """

    executor: Executor
    world: World
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Finish; leave the model and the optimiser as they were before, but for what they learned.

        Parameters
        ----------
        error : BaseException, optional
            What ends the job; the other ranks are told.
        """
        undo, self._undo = self._undo, []
        try:
            if undo:
                self.executor.__exit__(type(error), error, None)
        finally:
            for put_back in reversed(undo):
                put_back()

    def closing(self, last: Callable[[], None]) -> None:
        """Have something done at the end, before what was asked for until now."""
        self._undo.append(last)

    def whole_gradients(self) -> None:
        """Wait until gradients are the means of all ranks', as to clip or to show their norm.

        The update then overlaps with no forward pass. Nothing happens under plans of `ibatch` and
        `bigdl`, of whose gradients a rank never has the whole: they raise `NotApplicableError`.
        """
        synchronise = getattr(self.executor, "synchronise", None)
        if synchronise is None:
            raise NotApplicableError(
                "plan", "no rank has whole gradients to clip: expected a plan of caramel"
            )
        synchronise()


def take_over(
    model: nn.Module,
    optimizer: Optimizer,
    plan: Plan | list[Plan] | tuple[Plan, ...],
    *,
    world: World | None = None,
    timeout_s: float = 60.0,
) -> Takeover:
    """Let a loop that calls ``optimizer.step()`` follow a plan. Every rank has to call it.

    Parameters
    ----------
    model : Module
        On the CPU, not wrapped in DDP.
    optimizer : Optimizer
        Torch's own, not a trainer's wrapper of it.
    plan
        As for `planner.runtime.attach`, whose errors are raised.
    world : World, optional
        The job, which is not left then; by default the one that `planner.runtime.join` finds.
    timeout_s : float
        How long a transfer may wait for another rank, if `world` is not given.
    """
    job = join(timeout_s) if world is None else world
    try:
        executor = attach(model, plan, optimizer, job)
    except BaseException as error:
        if world is None:
            job.report(error)
            job.leave()
        raise
    takeover = Takeover(executor, job)
    if world is None:
        takeover.closing(job.leave)
    takeover.closing(_step_instead(optimizer, executor))
    if not hasattr(model, "no_sync"):
        model.no_sync = _NoSync(executor)  # type: ignore[assignment]
        takeover.closing(lambda: delattr(model, "no_sync"))
    return takeover


class _NoSync:
    """An executor's `no_sync`, as an attribute of the model: copies of that follow nothing."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __call__(self) -> AbstractContextManager[None]:
        return self._executor.no_sync()

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _nothing, ()


def _nothing() -> Callable[[], AbstractContextManager[None]]:
    return nullcontext


def _step_instead(optimizer: Optimizer, executor: Executor) -> Callable[[], None]:
    """Let the optimiser's step be the executor's; return what puts its own back."""
    before = optimizer.step
    own = optimizer.__dict__.get("step")  # a scheduler's, which counts calls
    ended = False

    @wraps(before)
    def step(_: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        if ended or executor.updating:
            return before() if closure is None else before(closure)
        loss = None if closure is None else closure()
        executor.step()
        return loss

    taken = MethodType(step, optimizer)  # a method: schedulers look for its function
    optimizer.step = taken  # type: ignore[method-assign]

    def put_back() -> None:
        nonlocal ended
        ended = True
        if optimizer.__dict__.get("step") is taken:
            del optimizer.step
            if own is not None:
                optimizer.step = own  # type: ignore[method-assign]

    return put_back
