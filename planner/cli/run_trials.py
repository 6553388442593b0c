"""The training steps of ``planner run``, alternating with DDP on request."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import torch

from planner.cli.telling import Progress
from planner.model.topologies import BCube
from planner.programs import Answer
from planner.runtime.collectives.bcube import BcubeAllReduce
from planner.runtime.collectives.ring import AllReduce
from planner.runtime.measuring.drawn import Moment
from planner.runtime.measuring.layers import watching
from planner.runtime.measuring.trial import Trial, run_ddp, run_plan
from planner.runtime.world.world import World

_DRAWN = 5
"""Steps from which one is drawn; watching takes time, so their times do not count."""


def trials(
    options: argparse.Namespace,
    answers: list[Answer],
    model: Any,
    inputs: tuple[Any, ...],
    world: World,
    bcube: BCube | None,
) -> tuple[list[Trial], list[Trial]]:
    """Return the trials of the plan and the alternating ones of DDP."""
    progress = Progress(quiet=options.quiet)
    rounds = options.against_ddp or 1

    def showing(what: str) -> Callable[[int, int], None]:
        def show(done: int, of: int) -> None:
            if world.rank == 0:
                progress(f"{what}: step", done, of)

        return show

    all_reduce = _all_reduce(bcube, world)
    planned, plain = [], []
    for turn in range(rounds):
        suffix = f", round {turn + 1} of {rounds}" if rounds > 1 else ""
        planned.append(
            run_plan(
                model,
                inputs,
                list(answers),
                optimizer_of(options.optimizer, model.parameters()),
                world,
                steps=options.steps,
                warmup=options.warmup,
                all_reduce=all_reduce,
                progress=showing(f"as planned{suffix}"),
            )
        )
        if options.against_ddp:
            plain.append(
                run_ddp(
                    model,
                    inputs,
                    optimizer_of(options.optimizer, model.parameters()),
                    world,
                    steps=options.steps,
                    warmup=max(options.warmup, 2),
                    progress=showing(f"under DDP{suffix}"),
                )
            )
    progress.done()
    return planned, plain


def optimizer_of(name: str, parameters: Iterable[Any]) -> Any:
    """Return the named optimizer for the parameters that require gradients."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if name == "adam":
        return torch.optim.Adam(trained, lr=1e-4)
    return torch.optim.SGD(trained, lr=1e-3, momentum=0.9)


def _all_reduce(bcube: BCube | None, world: World) -> AllReduce | None:
    if bcube is None:
        return None
    return BcubeAllReduce(world, bcube.n, bcube.k)


def drawn_trial(
    options: argparse.Namespace,
    answers: list[Answer],
    model: Any,
    inputs: tuple[Any, ...],
    world: World,
    bcube: BCube | None,
) -> tuple[Trial, list[Moment]]:
    """Return further steps to draw, with the moments at which layers began on this rank."""
    with watching(model) as moments:
        trial = run_plan(
            model,
            inputs,
            list(answers),
            optimizer_of(options.optimizer, model.parameters()),
            world,
            steps=_DRAWN,
            warmup=1,
            all_reduce=_all_reduce(bcube, world),
        )
    return trial, moments
