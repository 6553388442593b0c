"""One call that measures, plans and tries: a plan is followed, or DDP kept where it is as good.

torchrun --nproc-per-node 2 examples/with_tune.py
"""

import torch
from example_job import make_batches, make_model, options_of
from torch.nn.functional import cross_entropy

import planner
from planner.model.units import format_ns
from planner.runtime import join


def main() -> None:
    """Tune, and train."""
    steps = options_of().steps
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with join(60) as world:
        batches = make_batches(world.rank, steps)
        with planner.tune(model, batches[0][:1], optimizer, world=world) as tuned:
            for inputs, classes in batches:
                optimizer.zero_grad()
                cross_entropy(tuned.model(inputs), classes).backward()
                optimizer.step()
        if world.rank == 0:
            print(tuned.reason)
            if tuned.plan_ns and tuned.ddp_ns:
                plan, ddp = format_ns(tuned.plan_ns), format_ns(tuned.ddp_ns)
                print(f"DDP: {ddp} a step; as planned: {plan}")


if __name__ == "__main__":
    main()
