"""Training under Accelerate that follows a plan.

Problem. `Accelerator.prepare` wraps a model in DDP. A plan wants the plain model.

Method. Models are prepared as Accelerate prepares those it only evaluates: placement, mixed
precision and compilation, but no DDP. Then `take_over` takes the step of the optimiser inside
Accelerate's over. The accelerator's clipping waits for whole gradients first.

Guarantee. That of the executor; afterwards accelerator, model and optimiser are as Accelerate left
them. Source. accelerate 1.15.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn
from torch.optim import Optimizer

from planner.integrations.takeover import Takeover, take_over
from planner.programs import Plan

__all__ = ["plain_models", "prepared", "taken_over"]

_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


@contextmanager
def prepared(
    accelerator: Accelerator,
    plan: Plan | list[Plan],
    model: nn.Module,
    optimizer: Optimizer,
    *others: Any,
    timeout_s: float = 60.0,
) -> Iterator[tuple[Any, ...]]:
    """Give what ``accelerator.prepare(model, optimizer, *others)`` returns, following a plan.

    Every rank has to use it, around its training loop::

        with prepared(accelerator, plan, model, optimizer, loader) as (model, optimizer, loader):
            for inputs, targets in loader:
                accelerator.backward(criterion(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()

    Parameters
    ----------
    accelerator : Accelerator
        On CPUs.
    plan
        As for `planner.runtime.attach`, whose errors are raised.
    model : Module
        What is planned.
    optimizer : Optimizer
        Of all its parameters.
    *others
        What else to prepare, such as loaders and schedulers.
    timeout_s : float
        How long a transfer may wait for another rank.
    """
    with plain_models(accelerator):
        ready = accelerator.prepare(model, optimizer, *others)
    with taken_over(accelerator, plan, ready[0], ready[1], timeout_s=timeout_s):
        yield ready


@contextmanager
def plain_models(accelerator: Accelerator) -> Iterator[None]:
    """Let models that are prepared meanwhile stay out of DDP."""
    accelerator.prepare_model = partial(accelerator.prepare_model, evaluation_mode=True)
    try:
        yield
    finally:
        del accelerator.prepare_model


@contextmanager
def taken_over(
    accelerator: Accelerator,
    plan: Plan | list[Plan],
    model: nn.Module,
    optimizer: Optimizer,
    *,
    timeout_s: float = 60.0,
) -> Iterator[Takeover]:
    """Follow a plan with what was prepared already, the model out of DDP.

    Parameters are those of `prepared`.
    """
    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    with take_over(model, optimizer, plan, timeout_s=timeout_s) as takeover:
        for name in _CLIPPING:
            setattr(accelerator, name, _whole_first(accelerator, name, takeover))
        try:
            yield takeover
        finally:
            for name in _CLIPPING:
                delattr(accelerator, name)


def _whole_first(accelerator: Accelerator, name: str, takeover: Takeover) -> Callable[..., Any]:
    clip: Callable[..., Any] = getattr(accelerator, name)

    @wraps(clip)
    def clipped(*args: Any, **kwargs: Any) -> Any:
        # On the way to a step a rank clips what it has added up itself, as under DDP.
        if accelerator.sync_gradients:
            takeover.whole_gradients()
        return clip(*args, **kwargs)

    return clipped
