"""Trains on as many ranks as there are, from where the last ones stopped.

    planner profile elastic:make -o profile.json
    torchrun --nproc-per-node 4 elastic.py profile.json
    torchrun --nproc-per-node 2 elastic.py profile.json  # goes on with fewer

The profile is the same on all ranks, and stays; the network is timed anew, and planned for,
whenever the job starts. Rank 0 writes a checkpoint after every tenth step, beside the old one, and
then puts it in its place.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from planner import read_profile
from planner.runtime import attach, follow, join, plan_for


def make() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the model, and what its forward pass takes."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)]
    return nn.Sequential(*layers, nn.Linear(64, 1)), (torch.randn(16, 64),)


def loss_of(model: nn.Module, step: int, rank: int, ranks: int) -> Tensor:
    """Return the loss of a rank's batch: another one in each step, on each rank."""
    random = torch.Generator().manual_seed(ranks * step + rank)
    rows = torch.randn(16, 64, generator=random)
    return nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", help="what `planner profile` wrote")
    parser.add_argument("--steps", type=int, default=100, help="of the whole job; default: 100")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    options = parser.parse_args()
    model, _ = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    done = 0
    if options.checkpoint.exists():
        checkpoint = torch.load(options.checkpoint)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        done = checkpoint["steps"]
    with join() as world:
        plan = plan_for(world, read_profile(options.profile))
        if world.rank == 0:
            print(f"from step {done} on {world.size} ranks, {plan.step_ns / 1e6:.1f} ms a step")
        with attach(model, plan, optimizer, world, steps=done) as executor:
            following = follow(executor, plan)
            while executor.steps < options.steps:
                loss_of(model, executor.steps, world.rank, world.size).backward()
                executor.step()
                if executor.steps % 10 == 0:
                    executor.finish()
                    if world.rank == 0:
                        save(options.checkpoint, model, optimizer, executor.steps)
            if world.rank == 0:
                print(*following.log, f"{executor.steps} steps are done", sep="\n")


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Replace the checkpoint."""
    beside = path.with_suffix(".new")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
    torch.save(state, beside)
    beside.replace(path)


if __name__ == "__main__":
    main()
