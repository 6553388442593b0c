"""Accelerate with the model under DDP, and following a plan.

torchrun --nproc-per-node 2 examples/with_accelerate.py
"""

import time
from typing import Any

import torch
from accelerate import Accelerator
from example_job import make_batches, make_model, options_of, plan_for, show
from torch.nn.functional import cross_entropy

from planner.runtime import take_over


def train(accelerator: Accelerator, model: Any, optimizer: Any, batches: Any) -> list[float]:
    """Return when each step ended."""
    ends = []
    for inputs, classes in batches:
        accelerator.backward(cross_entropy(model(inputs), classes))
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
    return ends


def main() -> None:
    """Train both ways."""
    options = options_of()
    accelerator = Accelerator(cpu=True)
    batches = make_batches(accelerator.process_index, options.steps)
    plan = plan_for(options.plan, make_model(), batches[0][:1])

    model: Any = make_model()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    ddp_s = train(accelerator, model, optimizer, batches)

    # As for evaluation the model is placed, cast and compiled, but not wrapped in DDP.
    model = accelerator.prepare_model(make_model(), evaluation_mode=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with take_over(model, optimizer, plan):
        plan_s = train(accelerator, model, accelerator.prepare_optimizer(optimizer), batches)
    show(accelerator.process_index, ddp_s, plan_s)
    accelerator.end_training()


if __name__ == "__main__":
    main()
