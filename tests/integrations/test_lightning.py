"""Lightning under a plan: weights, steps, accumulation, clipping, checkpoints, as under its DDP."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning", reason="needs the extra `integrations`")

import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from planner.integrations.lightning import PlannedStrategy
from torch import distributed
from torch.nn import functional
from torch.utils.data import DataLoader

from planner.errors import InvalidInputError
from tests.runtime.launching import launch
from tests.runtime.plans import plan_of
from tests.runtime.reference import CLASSES, make_inputs, make_model

BATCHES = 6


class Module(LightningModule):
    """Reads a parameter of its own where no module does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_model("perceptron")
        self.scale = torch.nn.Parameter(torch.ones(CLASSES))
        self.validated: list[float] = []

    def forward(self, inputs: Any) -> Any:
        return self.inner(inputs) * self.scale

    def training_step(self, batch: Any) -> Any:
        return functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any) -> None:
        self.validated.append(float(self.scale.sum()))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def batches(rank: int) -> Any:
    random = torch.Generator().manual_seed(rank)
    rows: Any = [
        (make_inputs("perceptron", rank, step), torch.randint(CLASSES, (4,), generator=random))
        for step in range(BATCHES)
    ]
    return DataLoader(rows, batch_size=None)


def fitted(strategy: DDPStrategy, **options: Any) -> Any:
    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            strategy=strategy,
            accelerator="cpu",
            devices=2,
            max_epochs=2,
            use_distributed_sampler=False,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            num_sanity_val_steps=0,
            **options,
        )
        rank = trainer.global_rank
        trainer.fit(module, batches(rank), batches(rank))
        path = Path(trainer.checkpoint_callback.best_model_path)
        distributed.barrier()
        saved = torch.load(path, weights_only=False)["state_dict"]
        distributed.barrier()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return state, trainer.global_step, module.validated, saved


CASES: list[dict[str, Any]] = [
    {},
    {"accumulate_grad_batches": 2},
    {"gradient_clip_val": 0.1},
]


def both_ways(planned: bytes) -> Any:
    rows = [
        (
            fitted(DDPStrategy(process_group_backend="gloo"), **case),
            fitted(PlannedStrategy(planned, process_group_backend="gloo"), **case),
        )
        for case in CASES
    ]
    distributed.destroy_process_group()
    return rows


@pytest.mark.slow
def test_lightning_trains_as_under_its_own_strategy() -> None:
    plan = plan_of(Module(), make_inputs("perceptron", 0, 0))
    for outcome in launch(both_ways, 2, plan, timeout_s=120):
        assert outcome.error is None, outcome.error.trace
        for (weights, steps, validated, saved), other in outcome.value:
            assert (other[1], other[2]) == (steps, validated)
            for name, value in weights.items():
                assert torch.equal(other[0][name], value)
                assert torch.equal(other[3][name], saved[name])


def test_options_of_ddp_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="static_graph: an option of DDP"):
        PlannedStrategy({}, static_graph=True)
