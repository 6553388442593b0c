"""Let a training loop follow a plan without changes: `optimizer.step()` becomes `Executor.step`.

Method: Until `close`, the optimiser's `step` is the executor's, after the closure if there is one,
and the model gets the executor's `no_sync` if it has none. Schedulers may wrap `step` before or
after.
Guarantee: That of the executor. `close` restores the optimiser and the model.
Complexity: O(1) per step.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from types import MethodType, TracebackType
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from planner.model.errors import NotApplicableError
from planner.programs import Plan
from planner.runtime.attaching import attach
from planner.runtime.executors.base import Executor
from planner.runtime.world.joining import join
from planner.runtime.world.world import World


@dataclass(slots=True, eq=False)
class Takeover:
    """A plan that a model and its optimiser follow until `close`.

    Attributes
    ----------
    executor : Executor
        From `planner.runtime.attach`.
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
        """Finish the pending updates; restore the methods of the model and the optimiser.

        Parameters
        ----------
        error : BaseException, optional
            The error that ends the job, reported to the other ranks.
        """
        undo, self._undo = self._undo, []
        try:
            if undo:
                self.executor.__exit__(type(error), error, None)
        finally:
            for put_back in reversed(undo):
                put_back()

    def closing(self, last: Callable[[], None]) -> None:
        """Register a function to call on close; the last registered is called first."""
        self._undo.append(last)

    def whole_gradients(self) -> None:
        """Wait until gradients are the means over all ranks, for example to clip their norm.

        The update then overlaps with no forward pass. Plans of `ibatch` and `bigdl` raise a
        `NotApplicableError`, because no rank has whole gradients.
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
        The job, which is not left at the end; by default the one that `planner.runtime.join`
        finds.
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
    """An executor's `no_sync` as an attribute of the model; copies of the model get a null one."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __call__(self) -> AbstractContextManager[None]:
        return self._executor.no_sync()

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _nothing, ()


def _nothing() -> Callable[[], AbstractContextManager[None]]:
    return nullcontext


def _step_instead(optimizer: Optimizer, executor: Executor) -> Callable[[], None]:
    """Replace the optimiser's step by the executor's; return the function that restores it."""
    before = optimizer.step
    own = optimizer.__dict__.get("step")  # a scheduler's wrapper, which counts calls
    ended = False

    @wraps(before)
    def step(_: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        if ended or executor.updating:
            return before() if closure is None else before(closure)
        loss = None if closure is None else closure()
        executor.step()
        return loss

    taken = MethodType(step, optimizer)  # a method, because schedulers read its `__func__`
    optimizer.step = taken  # type: ignore[method-assign]

    def put_back() -> None:
        nonlocal ended
        ended = True
        if optimizer.__dict__.get("step") is taken:
            del optimizer.step
            if own is not None:
                optimizer.step = own  # type: ignore[method-assign]

    return put_back
