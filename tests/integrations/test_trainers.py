"""Accelerate and Transformers under a plan: the weights are those of their own DDP."""

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate", reason="needs the extra `integrations`")
pytest.importorskip("transformers", reason="needs the extra `integrations`")

import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate import Accelerator
from planner.integrations.accelerate import prepared
from planner.integrations.transformers import PlannedTrainer
from torch import distributed
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tests.runtime.launching import launch
from tests.runtime.plans import plan_of
from tests.runtime.reference import (
    largest_difference,
    loss_of,
    make_inputs,
    make_model,
    make_optimizer,
    weights_of,
)

BATCHES, TOKENS = 6, 8


def accelerated(plan: bytes | None, clips: bool) -> Any:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    rank = accelerator.process_index
    model: Any = make_model("perceptron")
    optimizer: Any = make_optimizer("adam", model)
    schedule: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    parts = model, optimizer, schedule
    whole = (
        nullcontext(accelerator.prepare(*parts))
        if plan is None
        else prepared(accelerator, plan, *parts)
    )
    plain = model
    with whole as (model, optimizer, schedule):
        for step in range(BATCHES):
            with accelerator.accumulate(model):
                loss = loss_of(model(make_inputs("perceptron", rank, step)), rank, step)
                accelerator.backward(loss)
                if clips:  # also on the way to a step
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    assert "prepare_model" not in vars(accelerator)
    assert "clip_grad_norm_" not in vars(accelerator)
    return weights_of(plain)


def both_accelerated(plan: bytes) -> Any:
    pairs = [(accelerated(None, clips), accelerated(plan, clips)) for clips in (False, True)]
    distributed.destroy_process_group()
    return pairs


@pytest.mark.slow
def test_accelerate_trains_as_under_ddp() -> None:
    plan = plan_of(make_model("perceptron"), make_inputs("perceptron", 0, 0))
    for outcome in launch(both_accelerated, 2, plan, timeout_s=120):
        assert outcome.error is None, outcome.error.trace
        for plain, planned in outcome.value:
            assert largest_difference(plain, planned) == 0


def make_gpt() -> Any:
    torch.manual_seed(0)
    none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"vocab_size": 32, "n_positions": TOKENS, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, **none))


def make_rows() -> Any:
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(32, (32, TOKENS), generator=random)
    return [{"input_ids": row, "labels": row} for row in rows]


def trained(kind: Any, folder: str, max_grad_norm: float, **options: Any) -> Any:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        max_steps=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_grad_norm=max_grad_norm,
        save_steps=2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = kind(make_gpt(), arguments, train_dataset=make_rows(), **options)
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    saved = (Path(folder) / "checkpoint-2" / "model.safetensors").read_bytes()
    return weights_of(trainer.model), trainer.state.global_step, losses, saved


def both_trained(plan: bytes) -> Any:
    rows = []
    for norm in (0.0, 0.1):
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/{name}" for name in ("ddp", "plan")]
            # All ranks look into the folder of rank 0.
            if not distributed.is_initialized():
                Accelerator(cpu=True)
            distributed.broadcast_object_list(paths, src=0)
            rows.append(
                (
                    trained(Trainer, paths[0], norm),
                    trained(PlannedTrainer, paths[1], norm, plan=plan),
                )
            )
            distributed.barrier()
    distributed.destroy_process_group()
    return rows


@pytest.mark.slow
def test_the_trainer_of_transformers_trains_as_under_ddp() -> None:
    plan = plan_of(make_gpt(), torch.stack([row["input_ids"] for row in make_rows()[:2]]))
    for outcome in launch(both_trained, 2, plan, timeout_s=180):
        assert outcome.error is None, outcome.error.trace
        for plain, planned in outcome.value:
            assert largest_difference(plain[0], planned[0]) == 0
            assert plain[1:3] == planned[1:3]
            assert plain[3] == planned[3]
