"""DDP with a plan's buckets, sent in the plan's order, beside plain DDP.

torchrun --nproc-per-node 2 examples/with_ddp.py
"""

import gc
import time

import torch
from example_job import make_batches, make_model, options_of, plan_for, show
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from planner.programs import program_of
from planner.runtime.ddp import as_ddp


def train(ddp: DistributedDataParallel, steps: int) -> list[float]:
    """Return when each step ended."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    ends = []
    for inputs, classes in make_batches(distributed.get_rank(), steps):
        optimizer.zero_grad()
        cross_entropy(ddp(inputs), classes).backward()
        optimizer.step()
        ends.append(time.monotonic())
    return ends


def main() -> None:
    """Train both ways."""
    options = options_of()
    distributed.init_process_group("gloo")
    inputs = make_batches(0, 1)[0][:1]
    program = program_of(plan_for(options.plan, make_model(), inputs, target="ddp"))

    plain = DistributedDataParallel(make_model())
    ddp_s = train(plain, options.steps)
    planned = as_ddp(make_model(), program)
    plan_s = train(planned, options.steps)

    show(distributed.get_rank(), ddp_s, plan_s)
    del plain, planned  # before the group they use
    gc.collect()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
