"""Profile, measure the network, plan and attach in one call, or keep DDP if it is as good.

Method: `make_plan` plans. Copies of the model and the optimiser train alternately under the plan,
DDP's default, and DDP with the bucket size predicted to be best and the sizes next to it. After
`FEWEST` turns a variant is dropped once another was faster in every turn; the others go on, for
`MOST` turns at most. The plan is tried if it is predicted to gain `TRIED`. It is followed if it is
measured to gain `WORTH`, and was slower than each DDP in one turn at most: by chance, a median of
few turns is soon that much off.
Guarantee: The model, the optimiser and the random state stay unchanged. All ranks decide the same.
Weights are those of plain data-parallel training either way.
Complexity: That of `make_plan`, `MOST` times `steps` steps per variant at most, and meanwhile the
memory of another model and optimiser.
"""

import copy
import gc
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from operator import lt
from statistics import median
from typing import Any, Self

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from planner.families import caramel
from planner.jsonio.caramel import CaramelAnswer, to_answer
from planner.jsonio.what_if import AdviceAnswer
from planner.model.fitting import fit_network
from planner.model.units import format_ns, format_share
from planner.profiling import measure
from planner.programs import read_plan
from planner.runtime.attaching import take_over
from planner.runtime.executors.base import Executor
from planner.runtime.measuring.contention import measure_interference, passes_of
from planner.runtime.measuring.slowest import slowest_profile
from planner.runtime.measuring.sweep import measure_network
from planner.runtime.measuring.trial import run_ddp, run_plan
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from planner.solving.advice import WORTH
from planner.solving.bucketing import DDP_BUCKET_MB
from planner.solving.compare import Case
from planner.solving.deadline import Deadline
from planner.solving.targets import PLANNER, target_of
from planner.view.progress import Progress

# ---
# Measure a model and its network, and make a plan.
#
# Method: Every rank profiles the model. All-reduces are timed between the ranks, alone and with the
# model's passes. Rank 0 plans with the slowest rank's profile and sends the plan to all ranks.
# Guarantee: All ranks return the same plan. A copy of the model is measured, and the random state
# is restored. The loss is a stand-in unless the model returns its own.
# Complexity: About 10 passes of the model for its profile, those of `measure_network` and
# `measure_interference`, and the time limit.


_TIMED = (64, *(4**power for power in range(5, 11)), 4 * 10**6)
"""Bytes of the transfers that are timed alone."""


def make_plan(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer | None = None,
    *,
    target: str = PLANNER,
    world: World | None = None,
    timeout_s: float = 60.0,
    time_limit: float = 10.0,
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

    Raises
    ------
    InvalidInputError
        If the model cannot be planned for.
    MeasurementError
        If the model fails, or there is only one rank.
    CommunicationError
        If a rank does not take part.
    """
    aim = target_of(target, "target")
    with (
        nullcontext(world) if world is not None else join(timeout_s) as job,
        job.refusing(),
        torch.random.fork_rng(devices=[]),
    ):
        show = Progress(quiet=job.rank > 0)
        copied = copy.deepcopy((model, inputs))
        job.gather("who measures", "")  # all ranks at the same time, as they train
        own = measure(
            *copied,
            name=type(model).__name__,
            source="planner.runtime.make_plan",
            warmup=2,
            repetitions=5,
            optimizer=None if optimizer is None else _like(optimizer),
            progress=partial(show, "model: run"),
        )
        profile = slowest_profile(job, own)
        sweep = measure_network(
            job, sizes=_TIMED, repetitions=5, progress=partial(show, "network: round")
        )
        contention = measure_interference(
            job,
            "all_reduce",
            rounds=5,
            compute=passes_of(*copied),
            progress=partial(show, "network during computation: round"),
        )
        show("planning", 0, 1)
        text = ""
        if job.rank == 0:
            problem = caramel.Problem.from_profile(
                profile,
                fit_network(sweep).by_depth[0][1].table,
                workers=job.size,
                interference=contention,
                target=aim,
            )
            result = caramel.solve(problem, time_limit=time_limit)
            made = to_answer(Case(problem), result, Deadline(time_limit))
            text = msgspec.json.encode(made).decode()
        plan = job.gather("the plan", text)[0].encode()
        show.done()
        return plan


def _like(optimizer: Optimizer) -> Callable[[list[Tensor]], Optimizer]:
    """Return a function that makes an optimiser with the same settings."""
    kind: Any = type(optimizer)
    known = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in known}
    return lambda parameters: kind(parameters, **settings)


TRIED = Fraction(101, 100)
"""Least predicted gain of a plan that is tried: predictions are less exact than measurements."""

FEWEST, MOST = 5, 7
"""Number of turns before a variant may be dropped, and of turns at most."""


@dataclass(slots=True, eq=False)
class Tuned:
    """The result of `tune`; close it at the end.

    Attributes
    ----------
    model : Module
        What the loop calls: the model, whose optimiser follows the plan, or DDP around it.
    reason : str
        The reason for the choice, in a sentence.
    plan : bytes or None
        The plan as JSON; None if there is only one rank.
    executor : Executor or None
        The object that follows the plan; None if DDP is kept.
    plan_ns, ddp_ns : int or None
        Median times of the trial steps, of the faster DDP variant; None if it was not tried.
    """

    model: nn.Module
    reason: str
    plan: bytes | None = None
    executor: Executor | None = None
    plan_ns: int | None = None
    ddp_ns: int | None = None
    _undo: ExitStack = field(default_factory=ExitStack)

    @property
    def keep_ddp(self) -> bool:
        """Whether no plan is followed."""
        return self.executor is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Finish, and leave the job if `tune` joined it."""
        self._undo.__exit__(None if error is None else type(error), error, None)

    def _free(self) -> None:
        """Free DDP before the process group that it uses."""
        if isinstance(self.model, DistributedDataParallel):
            self.model = self.model.module
            gc.collect()


def tune(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    *,
    world: World | None = None,
    timeout_s: float = 60.0,
    steps: int = 3,
    time_limit: float = 10.0,
) -> Tuned:
    """Make a model train with the faster of a plan and DDP. Every rank has to call it.

    The loop is the same as under DDP::

        with planner.tune(model, (inputs,), optimizer) as tuned:
            print(tuned.reason)
            for inputs, targets in batches:
                optimizer.zero_grad()
                criterion(tuned.model(inputs), targets).backward()
                optimizer.step()

    Parameters
    ----------
    model, inputs, optimizer, world, timeout_s, time_limit
        As for `make_plan`, whose errors are raised; `optimizer` is the one that trains.
    steps : int
        Counted steps of each turn, after two that do not count.
    """
    with ExitStack() as undo:
        job = undo.enter_context(join(timeout_s)) if world is None else world
        tuned = _tuned(model, inputs, optimizer, job, steps, time_limit)
        if world is None:
            undo.callback(tuned._free)
        if tuned.executor is not None:
            undo.push(tuned.executor)
        tuned._undo = undo.pop_all()
        return tuned


def _tuned(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    job: World,
    steps: int,
    time_limit: float,
) -> Tuned:
    if job.size == 1:
        return Tuned(model, "one rank has nobody to communicate with: nothing to plan")
    plan = make_plan(model, inputs, optimizer, world=job, time_limit=time_limit)
    answer = read_plan(plan)
    assert isinstance(answer, CaramelAnswer)
    sizes, refused = _advised(answer)
    ddp = {f"DDP{_with(size)}": size for size in sizes}
    times = _tried(model, inputs, optimizer, None if refused else plan, job, ddp, steps)
    best = min(ddp, key=lambda name: (-len(times[name]), median(times[name])))
    ddp_ns, keep = round(median(times[best])), f"keep {best}"
    if refused:
        reason = f"{refused} ({format_ns(ddp_ns)} a step under DDP): {keep}"
        return Tuned(_ddp(model, ddp[best], job), reason, plan, None, None, ddp_ns)
    gains = [_gains(times["plan"], times[name]) for name in ddp]
    plan_ns = round(median(times["plan"]))
    took = f"{format_ns(plan_ns)} a step as planned, {format_ns(ddp_ns)} under DDP"
    objection = _objection(gains)
    if objection:
        reason = f"{objection} ({took}): {keep}"
        return Tuned(_ddp(model, ddp[best], job), reason, plan, None, plan_ns, ddp_ns)
    executor = take_over(model, optimizer, plan, world=job)
    reason = (
        f"{min(map(median, gains)):.2f} times as fast ({took}{_with(ddp[best])}): follow the plan"
    )
    return Tuned(model, reason, plan, executor, plan_ns, ddp_ns)


def _advised(answer: CaramelAnswer) -> tuple[list[int | None], str]:
    """Return the sizes of DDP's buckets to try (MiB; None: the default), and why no plan is tried.

    The sizes are the default, the one that is predicted to be best, and those next to it. The
    reason is empty if the plan is tried.
    """
    advice = answer.advice
    if not isinstance(advice, AdviceAnswer):
        return [None], ""
    near: tuple[int, ...] = ()
    if advice.bucket_cap_mb is not None:
        place = DDP_BUCKET_MB.index(advice.bucket_cap_mb)
        near = DDP_BUCKET_MB[max(place - 1, 0) : place + 2]
    gains = f"the plan is predicted to gain {_too_little(advice.gain, TRIED)}"
    return [None, *near], "" if advice.gain >= TRIED else gains


def _too_little(gain: float, least: Fraction) -> str:
    """Return how much a plan gains if that is less than it should."""
    if gain <= 1:
        return "nothing"
    return f"{format_share(gain - 1)}, less than {format_share(float(least) - 1)},"


def _tried(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    plan: bytes | None,
    job: World,
    ddp: Mapping[str, int | None],
    steps: int,
) -> dict[str, list[float]]:
    """Return the median time of a step (ns) of each variant in each turn."""
    left = [*ddp] if plan is None else ["plan", *ddp]
    times: dict[str, list[float]] = {name: [] for name in left}
    show = Progress(quiet=job.rank > 0)
    for turn in range(MOST):
        show("steps of the plan and of DDP: round", turn, MOST)
        # Copied together, so that the copied optimiser updates the copied parameters.
        other, updates = copy.deepcopy((model, optimizer))
        first = turn % len(left)  # the first one begins with cold caches
        for name in (*left[first:], *left[:first]):
            if name in ddp:
                options = _options(ddp[name])
                trial = run_ddp(other, inputs, updates, job, steps=steps, **options)
            else:
                assert plan is not None
                trial = run_plan(other, inputs, plan, updates, job, steps=steps)
            times[name].append(median(step.step_ns for step in trial.steps))
        del other, updates
        gc.collect()
        if turn + 1 >= FEWEST:
            left = _undecided({name: times[name] for name in left})
        if len(left) == 1:
            break
    show.done()
    return times


def _undecided(times: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the variants, without those that another variant beat in every turn."""
    return [
        name
        for name, own in times.items()
        if not any(all(map(lt, other, own)) for other in times.values())
    ]


def _gains(plan: Sequence[float], ddp: Sequence[float]) -> list[float]:
    """Return the gain in each turn that both had: the machine's speed differs by turn."""
    return [before / after for after, before in zip(plan, ddp, strict=False)]


def _objection(gains: Sequence[Sequence[float]]) -> str:
    """Return why a plan with these gains over each DDP is not followed; empty if it is."""
    gain = min(map(median, gains))
    if gain < WORTH:
        return f"{_too_little(gain, WORTH)} to gain"
    slower = max(sum(each < 1 for each in row) for row in gains)
    return f"{gain:.2f} times as fast, but slower in {slower} rounds" if slower > 1 else ""


def _options(bucket_mb: int | None) -> dict[str, Any]:
    """Return options of DDP: none, or a bucket size, and no copies of the sums out of buckets."""
    if bucket_mb is None:
        return {}
    return {"bucket_cap_mb": bucket_mb, "gradient_as_bucket_view": True}


def _ddp(model: nn.Module, bucket_mb: int | None, job: World) -> DistributedDataParallel:
    group = None if job.guest else job.group
    return DistributedDataParallel(model, process_group=group, **_options(bucket_mb))


def _with(bucket_mb: int | None) -> str:
    options = ", ".join(f"{name}={value}" for name, value in _options(bucket_mb).items())
    return f" with {options}" if options else ""
