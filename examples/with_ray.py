"""Ray Train with the model under DDP, and following a plan, on a cluster of this machine.

python examples/with_ray.py
"""

from typing import Any

import ray
import torch
from example_job import make_batches, make_model, options_of, plan_for, show
from example_job import train as steps
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

from planner.runtime import take_over


def both_ways(config: dict[str, Any]) -> None:
    """Train both ways: what each worker runs."""
    rank = get_context().get_world_rank()
    batches = make_batches(rank, config["steps"])
    plan = plan_for(config["plan"], make_model(), batches[0][:1])

    model = prepare_model(make_model())
    ddp_s = steps(model, torch.optim.SGD(model.parameters(), lr=0.01), batches)

    model = prepare_model(make_model(), parallel_strategy=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with take_over(model, optimizer, plan):
        plan_s = steps(model, optimizer, batches)
    show(rank, ddp_s, plan_s)


def main() -> None:
    """Start two workers."""
    options = options_of("--storage")  # where Ray keeps what a run leaves
    ray.init(num_cpus=2, include_dashboard=False)
    TorchTrainer(
        both_ways,
        train_loop_config={"steps": options.steps, "plan": options.plan},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=options.storage),
    ).fit()


if __name__ == "__main__":
    main()
