"""Lightning under its DDP strategy, and under one that follows a plan.

torchrun --nproc-per-node 2 examples/with_lightning.py
"""

import os
from typing import Any

import torch
from example_job import Job, make_batches, make_model, options_of, plan_for, show
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

TRAINER = dict.fromkeys(("enable_checkpointing", "logger", "use_distributed_sampler"), False) | {
    "accelerator": "cpu",
    "devices": 2,
    "max_epochs": 1,
}


class Classifier(LightningModule):
    """What is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = make_model()

    def forward(self, *batch: Any) -> Any:
        """Return the scores of inputs, or the loss of a batch, so that all that is read is seen."""
        scores = self.layers(batch[0])
        return scores if len(batch) == 1 else cross_entropy(scores, batch[1])

    def training_step(self, batch: Any) -> Any:
        return self(*batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Planned(DDPStrategy):
    """Leaves the model out of DDP; one optimiser, no clipping, no accumulation."""

    def configure_ddp(self) -> None:
        pass


class Following(Job, Callback):
    """Takes the optimiser's step over while the trainer fits."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.begin(module, trainer.optimizers[0])

    on_train_batch_end = Job.step
    on_train_end = Job.end


def main() -> None:
    """Train both ways."""
    options, ends = options_of(), list[list[float]]()
    data: Any = make_batches(int(os.environ["RANK"]), options.steps)
    made = plan_for(options.plan, Classifier(), data[0][:1])
    for strategy, plan in ((DDPStrategy, None), (Planned, made)):
        job = Following(plan)
        settings = {**TRAINER, "strategy": strategy(process_group_backend="gloo"), "callbacks": job}
        loader: Any = DataLoader(data, batch_size=None)
        Trainer(**settings).fit(Classifier(), loader)
        ends.append(job.ends)
    show(int(os.environ["RANK"]), ends[0], ends[1])


if __name__ == "__main__":
    main()
