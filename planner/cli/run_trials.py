"""The training steps of ``planner run``, alternating with DDP on request."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from planner.cli.telling import Progress
from planner.programs import Answer
from planner.runtime.collectives.ring import AllReduce
from planner.runtime.measuring.drawn import Moment
from planner.runtime.measuring.layers import watching
from planner.runtime.measuring.trial import Trial, run_ddp, run_plan
from planner.runtime.world.world import World

_DRAWN = 5
"""Steps from which one is drawn; watching takes time, so their times do not count."""


@dataclass(frozen=True, slots=True)
class Trials:
    """How trials of a plan are run."""

    options: argparse.Namespace
    answers: list[Answer]
    model: Any
    inputs: tuple[Any, ...]
    world: World
    all_reduce: AllReduce | None

    def run(self) -> tuple[list[Trial], list[Trial]]:
        """Return the trials of the plan and the alternating ones of DDP."""
        options, rounds = self.options, self.options.against_ddp or 1
        line = Progress(quiet=options.quiet)
        planned, plain = [], []

        def showing(what: str) -> Callable[[int, int], None] | None:
            return partial(line, f"{what}: step") if self.world.rank == 0 else None

        for turn in range(rounds):
            suffix = f", round {turn + 1} of {rounds}" if rounds > 1 else ""
            show = showing(f"as planned{suffix}")
            planned.append(self._planned(options.steps, options.warmup, show))
            if options.against_ddp:
                plain.append(
                    run_ddp(
                        self.model,
                        self.inputs,
                        self._optimizer(),
                        self.world,
                        steps=options.steps,
                        warmup=max(options.warmup, 2),
                        progress=showing(f"under DDP{suffix}"),
                    )
                )
        line.done()
        return planned, plain

    def drawn(self) -> tuple[Trial, list[Moment]]:
        """Return further steps to draw, with the moments at which layers began on this rank."""
        with watching(self.model) as moments:
            trial = self._planned(_DRAWN, 1)
        return trial, moments

    def _optimizer(self) -> Any:
        return optimizer_of(self.options.optimizer, self.model.parameters())

    def _planned(
        self, steps: int, warmup: int, progress: Callable[[int, int], None] | None = None
    ) -> Trial:
        return run_plan(
            self.model,
            self.inputs,
            list(self.answers),
            self._optimizer(),
            self.world,
            steps=steps,
            warmup=warmup,
            all_reduce=self.all_reduce,
            progress=progress,
        )


def optimizer_of(name: str, parameters: Iterable[Any]) -> Any:
    """Return the named optimizer for the parameters that require gradients."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if name == "adam":
        return torch.optim.Adam(trained, lr=1e-4)
    return torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
