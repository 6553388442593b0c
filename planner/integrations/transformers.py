"""A `Trainer` of Transformers that follows a plan.

Problem. The trainer has its accelerator wrap the model in DDP, clips gradients, and shows their
norm in each step, for which all of them have to be there.

Method. `planner.integrations.accelerate`, from `train` on. With ``max_grad_norm=0`` the norm is not
shown either, and updates overlap with the next forward pass.

Guarantee. That of the executor. Source. transformers 5.24.
"""

from contextlib import ExitStack
from typing import Any

from transformers import Trainer, TrainerCallback

from planner.integrations.accelerate import plain_models, taken_over
from planner.programs import Plan

__all__ = ["PlannedTrainer"]


class PlannedTrainer(Trainer):
    """As `Trainer`, but communicates as planned.

    Parameters
    ----------
    *args, **options
        Of `Trainer`.
    plan
        As for `planner.runtime.attach`; parameters are named as in the model.
    timeout_s : float
        How long a transfer may wait for another rank.
    """

    def __init__(
        self, *args: Any, plan: Plan | list[Plan], timeout_s: float = 60.0, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._plan = plan
        self._timeout_s = timeout_s
        self._stack = ExitStack()
        self.add_callback(_Start(self))

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as planned."""
        with self._stack, plain_models(self.accelerator):
            return super().train(*args, **options)

    def begin(self) -> None:
        """Follow the plan from now on, until `train` ends."""
        self._stack.enter_context(
            taken_over(
                self.accelerator,
                self._plan,
                self.model_wrapped,
                self.optimizer,
                timeout_s=self._timeout_s,
            )
        )

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if grad_norm is None:  # not clipped: it would only be shown
            return None
        return super()._get_grad_norm(model, grad_norm=grad_norm)


class _Start(TrainerCallback):
    """Begins when models and optimisers are prepared and a checkpoint has been read."""

    def __init__(self, trainer: PlannedTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.begin()
