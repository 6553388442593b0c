"""What the examples train, and how they say what it took: a stand-in for your own."""

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from planner.runtime import Executor, make_plan, take_over

WARMUP = 3
"""Steps that do not count."""


def make_model(layers: int = 8, width: int = 512) -> nn.Module:
    """Return a perceptron, with the same weights every time."""
    torch.manual_seed(0)
    hidden = (part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def make_batches(rank: int, count: int, samples: int = 64) -> list[tuple[Tensor, Tensor]]:
    """Return inputs of a rank, and the classes they belong to."""
    random = torch.Generator().manual_seed(rank)
    return [
        (
            torch.randn(samples, 512, generator=random),
            torch.randint(10, (samples,), generator=random),
        )
        for _ in range(count)
    ]


def train(model: Any, optimizer: Any, batches: Any) -> list[float]:
    """Train as ever; return when each step ended."""
    ends = []
    for inputs, classes in batches:
        optimizer.zero_grad()
        cross_entropy(model(inputs), classes).backward()
        optimizer.step()
        ends.append(time.monotonic())
    return ends


class Job:
    """Follows a plan from `begin` to `end`, if there is one, and notes when each step ended."""

    def __init__(self, plan: bytes | None) -> None:
        self.plan = plan
        self.ends: list[float] = []
        self.planned: Executor | None = None

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if self.plan is not None:
            self.planned = take_over(model, optimizer, self.plan)

    def step(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.monotonic())

    def end(self, *_: Any, **__: Any) -> None:
        if self.planned is not None:
            self.planned.close()


def options_of(*more: str) -> argparse.Namespace:
    """Return what the command line says; `more` are names of further options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--plan", type=Path, help="a plan made before; by default one is made")
    for name in more:
        parser.add_argument(name)
    return parser.parse_args()


def plan_for(path: Path | None, model: nn.Module, inputs: Any, target: str = "planner") -> bytes:
    """Return the plan of a file, or what is made of a profile and the network as it is."""
    if path is not None:
        return path.read_bytes()
    return make_plan(model, inputs, target=target)


def show(
    rank: int, default_s: Sequence[float], plan_s: Sequence[float], default: str = "DDP"
) -> None:
    """Print what a step took, by the ends of the steps of each way."""
    if rank:
        return
    before, planned = (
        1e3 * median(end - start for start, end in pairwise(ends))
        for ends in (default_s[WARMUP:], plan_s[WARMUP:])
    )
    print(
        f"{default}: {before:.2f} ms a step; as planned: {planned:.2f} ms; "
        f"{before / planned:.2f} times as fast"
    )
