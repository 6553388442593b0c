"""The `Trainer` of Transformers as it is, and following a plan; a small GPT-2, untrained.

torchrun --nproc-per-node 2 examples/with_transformers.py
"""

import os
import tempfile
from functools import partial
from typing import Any

import torch
from example_job import Job, options_of, plan_for, show
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

SAMPLES, TOKENS = 4, 32


def make_gpt() -> Any:
    """Return a model made from a configuration, with the same weights every time."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 1000, "n_positions": TOKENS, "n_embd": 256, "n_layer": 4, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes))


def make_texts(count: int) -> list[dict[str, Any]]:
    """Return rows of tokens, each to be continued as it is."""
    rows = torch.arange(count * TOKENS).reshape(count, TOKENS) * 7919 % 1000
    return [{"input_ids": row, "labels": row} for row in rows]


class Unclipped(Trainer):
    """Shows no norm of gradients, for which all of them would have to wait."""

    def _get_grad_norm(self, _: Any, grad_norm: Any = None) -> Any:
        return grad_norm


class Following(Job, TrainerCallback):
    """Takes the step of the optimiser inside Accelerate's over while the trainer trains."""

    def on_train_begin(self, *_: Any, model: Any, optimizer: Any, **__: Any) -> None:
        self.begin(model, optimizer.optimizer)

    on_step_end = Job.step
    on_train_end = Job.end


def train(plan: bytes | None, steps: int) -> list[float]:
    """Return when each step ended."""
    job = Following(plan)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            ddp_backend="gloo",
            max_steps=steps,
            per_device_train_batch_size=SAMPLES,
            max_grad_norm=0.0,
            save_strategy="no",
        )
        texts: Any = make_texts(2 * SAMPLES * steps)
        trainer = Unclipped(make_gpt(), arguments, train_dataset=texts, callbacks=[job])
        if plan is not None:  # the model stays out of DDP
            prepare = trainer.accelerator.prepare_model
            trainer.accelerator.prepare_model = partial(prepare, evaluation_mode=True)
        trainer.train()
    return job.ends


def main() -> None:
    """Train both ways."""
    options = options_of()
    inputs = (torch.stack([row["input_ids"] for row in make_texts(SAMPLES)]),)
    plan = plan_for(options.plan, make_gpt(), inputs)
    show(int(os.environ["RANK"]), train(None, options.steps), train(plan, options.steps))


if __name__ == "__main__":
    main()
