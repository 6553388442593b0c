"""Measure a model and its network, and make a plan, in one call.

Method: Every rank profiles the model. All-reduces are timed between the ranks, alone and with the
model's passes. Rank 0 plans with its own profile and sends the plan to all ranks.
Guarantee: All ranks return the same plan. The model, its gradients, its buffers and the random
state are restored. The loss is a stand-in unless the model returns its own.
Complexity: About 10 passes of the model for its profile, those of `measure_network` and
`measure_interference`, and the time limit.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.families import caramel
from planner.jsonio.caramel import answer_beside
from planner.model.errors import InvalidInputError
from planner.model.fitting import fit_network
from planner.model.profiles import Profile
from planner.profiling import measure
from planner.profiling.surroundings import kept_gradients
from planner.runtime.measuring.beside import measure_interference, passes_of
from planner.runtime.measuring.sweep import measure_network
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from planner.solving.deadline import Deadline
from planner.solving.targets import PLANNER, target_of

Progress = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished parts, and the total."""

_TIMED = (64, *(4**power for power in range(5, 11)), 4 * 10**6)
_BESIDE = (4**6, 4 * 10**6)
"""Bytes of transfers timed alone (`_TIMED`), and of those timed with computation (`_BESIDE`)."""


def make_plan(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer | None = None,
    *,
    target: str = PLANNER,
    world: World | None = None,
    timeout_s: float = 60.0,
    time_limit: float = 10.0,
    progress: Progress | None = None,
) -> bytes:
    """Return a plan of `caramel` as JSON, with the advice whether to keep DDP. Every rank calls it.

    Parameters
    ----------
    model : Module
        On the CPU, the same on all ranks, in training mode if it trains so.
    inputs : tuple
        Positional arguments of its forward pass, as large as in training.
    optimizer : Optimizer, optional
        Its updates are timed, on copies of the parameters.
    target : str
        The system that will follow the plan, whose rules it has to keep, such as "ddp"; by default
        this package.
    world : World, optional
        The job; by default the one that `planner.runtime.join` finds, which is left at the end.
    timeout_s : float
        How long a transfer may wait for another rank, if `world` is not given.
    time_limit : float
        Seconds for planning.
    progress : callable, optional
        Called with the progress; by default rank 0 shows it on standard error.

    Raises
    ------
    InvalidInputError
        If the model cannot be planned for.
    MeasurementError
        If the model fails, or there is only one rank.
    CommunicationError
        If a rank does not take part.
    """
    if not isinstance(inputs, tuple):
        raise InvalidInputError("inputs", f"expected a tuple, got {type(inputs).__name__}")
    aim = target_of(target, "target")
    with (
        nullcontext(world) if world is not None else join(timeout_s) as job,
        shown_by(progress, job) as show,
        job.refusing(),
        _as_before(model),
        kept_gradients(model, inputs),
    ):
        profile = _profiled(model, inputs, optimizer, job, show)
        sweep = measure_network(
            job, sizes=_TIMED, repetitions=5, progress=partial(show, "network: round")
        )
        beside = measure_interference(
            job,
            "all_reduce",
            _BESIDE,
            rounds=2,
            compute=passes_of(model, inputs),
            progress=partial(show, "network beside computation: round"),
        )
        show("planning", 0, 1)
        text = ""
        if job.rank == 0:
            problem = caramel.Problem.from_profile(
                profile,
                fit_network(sweep).by_depth[0][1].table,
                workers=job.size,
                interference=beside,
                target=aim,
            )
            result = caramel.solve(problem, time_limit=time_limit)
            made = answer_beside(problem, result, Deadline(time_limit))
            text = msgspec.json.encode(made).decode()
        return job.gather("the plan", text)[0].encode()


def _profiled(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer | None,
    job: World,
    show: Progress,
) -> Profile:
    """Return the model's profile; all ranks measure at the same time, as they train."""
    job.gather("who measures", "")
    return measure(
        model,
        inputs,
        name=type(model).__name__,
        source="planner.runtime.make_plan",
        warmup=2,
        repetitions=5,
        optimizer=None if optimizer is None else _like(optimizer),
        progress=partial(show, "model: run"),
    )


def _like(optimizer: Optimizer) -> Callable[[list[Tensor]], Optimizer]:
    """Return a function that makes an optimiser with the same settings."""
    kind: Any = type(optimizer)
    known = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in known}
    return lambda parameters: kind(parameters, **settings)


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Restore buffers and the random state at the end."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in kept:
                    buffer.copy_(before)


@contextmanager
def shown_by(progress: Progress | None, job: World) -> Iterator[Progress]:
    """Yield the given progress function, or one that writes a line to rank 0's standard error."""
    if progress is not None:
        yield progress
        return
    from planner.cli.telling import Progress as Line

    line = Line(quiet=job.rank > 0)
    try:
        yield line
    finally:
        line.done()
