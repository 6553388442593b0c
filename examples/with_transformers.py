"""The `Trainer` of Transformers as it is, and following a plan; a small GPT-2, untrained.

torchrun --nproc-per-node 2 examples/with_transformers.py
"""

import os
import tempfile
import time
from typing import Any

import torch
from example_job import options_of, plan_for, show
from planner.integrations.transformers import PlannedTrainer
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

SAMPLES, TOKENS = 4, 32


def make_gpt() -> Any:
    """Return a model made from a configuration, with the same weights every time."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=1000, n_positions=TOKENS, n_embd=256, n_layer=4, n_head=4)
    )


def make_texts(count: int) -> list[dict[str, Any]]:
    """Return rows of tokens, each to be continued as it is."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(1000, (count, TOKENS), generator=random)
    return [{"input_ids": row, "labels": row} for row in rows]


class Ends(TrainerCallback):
    """Notes when each step ended."""

    def __init__(self) -> None:
        self.s: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note it."""
        self.s.append(time.monotonic())


def train(kind: type[Any], steps: int, **options: Any) -> list[float]:
    """Return when each step ended."""
    ends = Ends()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            ddp_backend="gloo",
            ddp_find_unused_parameters=False,
            max_steps=steps,
            per_device_train_batch_size=SAMPLES,
            max_grad_norm=0.0,  # else updates wait for all gradients
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        texts: Any = make_texts(2 * SAMPLES * steps)
        trainer = kind(make_gpt(), arguments, train_dataset=texts, callbacks=[ends], **options)
        trainer.train()
    return ends.s


def main() -> None:
    """Train both ways."""
    options = options_of()
    inputs = (torch.stack([row["input_ids"] for row in make_texts(SAMPLES)]),)
    plan = plan_for(options.plan, make_gpt(), inputs)
    ddp_s = train(Trainer, options.steps)
    plan_s = train(PlannedTrainer, options.steps, plan=plan)
    show(int(os.environ["RANK"]), ddp_s, plan_s)


if __name__ == "__main__":
    main()
