"""Lightning under its DDP strategy, and under one that follows a plan.

torchrun --nproc-per-node 2 examples/with_lightning.py
"""

import os
import time
from typing import Any

import torch
from example_job import make_batches, make_model, options_of, plan_for, show
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from planner.integrations.lightning import PlannedStrategy
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


class Classifier(LightningModule):
    """What is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = make_model()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return a score of each class."""
        scores: Tensor = self.layers(inputs)
        return scores

    def training_step(self, batch: Any) -> Tensor:
        """Return the loss of a batch."""
        inputs, classes = batch
        return cross_entropy(self(inputs), classes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Ends(Callback):
    """Notes when each step ended."""

    def __init__(self) -> None:
        self.s: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        """Note it."""
        self.s.append(time.monotonic())


def train(strategy: DDPStrategy, steps: int) -> list[float]:
    """Return when each step ended."""
    ends = Ends()
    trainer = Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]),
        max_epochs=1,
        use_distributed_sampler=False,  # each rank makes its own batches
        callbacks=[ends],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches: Any = make_batches(int(os.environ["RANK"]), steps)
    trainer.fit(Classifier(), DataLoader(batches, batch_size=None))
    return ends.s


def main() -> None:
    """Train both ways."""
    options = options_of()
    plan = plan_for(options.plan, Classifier(), make_batches(0, 1)[0][:1])
    ddp_s = train(DDPStrategy(process_group_backend="gloo"), options.steps)
    plan_s = train(PlannedStrategy(plan, process_group_backend="gloo"), options.steps)
    show(int(os.environ["RANK"]), ddp_s, plan_s)


if __name__ == "__main__":
    main()
