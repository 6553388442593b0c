"""A strategy for Lightning whose training steps follow a plan.

Problem. Lightning's DDP strategy wraps the model in DDP. A plan wants the plain model, and sends
gradients itself.

Method. A `DDPStrategy` that does not wrap: when models and optimisers are set up, `take_over` takes
over the optimiser's step, which Lightning calls behind its closure. A training step goes through
the module's `__call__`, so that what it reads is seen. Where the trainer clips, gradients are
waited for first. Accumulation, checkpoints, schedulers, samplers and logging are Lightning's own.

Guarantee. That of the executor; a failure ends all ranks. Source. lightning 2.6.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch.optim import Optimizer

from planner.errors import InvalidInputError
from planner.integrations.takeover import Takeover, take_over
from planner.programs import Plan

__all__ = ["PlannedStrategy"]


class PlannedStrategy(DDPStrategy):
    """Data-parallel training as planned: ``Trainer(strategy=PlannedStrategy(plan), …)``.

    Parameters
    ----------
    plan
        As for `planner.runtime.attach`; parameters are named as in the `LightningModule`.
    timeout_s : float
        How long a transfer may wait for another rank.
    **options
        Of `DDPStrategy`, but for those of DDP itself.

    Attributes
    ----------
    takeover : Takeover or None
        What follows the plan, while the trainer fits: whoever reads or changes parameters outside
        the model's steps calls ``takeover.executor.finish()`` before.
    """

    strategy_name = "planned"

    def __init__(self, plan: Plan | list[Plan], timeout_s: float = 60.0, **options: Any) -> None:
        super().__init__(**options)
        if self._ddp_kwargs:
            names = ", ".join(self._ddp_kwargs)
            raise InvalidInputError(names, "an option of DDP, which sends nothing here")
        self.takeover: Takeover | None = None
        self._plan = plan
        self._timeout_s = timeout_s
        self._clips = False

    def configure_ddp(self) -> None:
        """Leave the model as it is."""

    def setup(self, trainer: Trainer) -> None:
        """Set up as `DDPStrategy`, and follow the plan."""
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        if len(self.optimizers) != 1:
            raise InvalidInputError(
                "optimizers", f"expected one, of all parameters, got {len(self.optimizers)}"
            )
        assert self.model is not None
        self._clips = bool(trainer.gradient_clip_val)
        self.takeover = take_over(
            self.model, self.optimizers[0], self._plan, timeout_s=self._timeout_s
        )

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, so that whatever its training step reads is seen."""
        module = self.lightning_module
        if self.takeover is None or module is None or not module.automatic_optimization:
            return super().training_step(*args, **kwargs)
        with self.precision_plugin.train_step_context():
            return self._forward_redirection(module, module, "training_step", *args, **kwargs)

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        """Step as planned; with whole gradients where they are clipped."""
        takeover = self.takeover

        def whole() -> Any:
            result = closure()
            if takeover is not None and self._clips:
                takeover.whole_gradients()
            return result

        return super().optimizer_step(optimizer, whole, model, **kwargs)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulate gradients without sending them."""
        if self.takeover is None:
            yield
            return
        with self.takeover.executor.no_sync():
            yield

    def on_validation_start(self) -> None:
        """Finish what is on its way: validation may read anything."""
        if self.takeover is not None:
            self.takeover.executor.finish()

    def on_exception(self, exception: BaseException) -> None:
        """Tell the other ranks."""
        self._close(exception)
        super().on_exception(exception)

    def teardown(self) -> None:
        """Finish, and leave the model a plain one."""
        self._close()
        super().teardown()

    def _close(self, error: BaseException | None = None) -> None:
        takeover, self.takeover = self.takeover, None
        if takeover is not None:
            takeover.close(error)
