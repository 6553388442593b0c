"""Profile, measure the network, plan and attach in one call, or keep DDP if it is as good.

Method: `make_plan`. If it predicts a gain below `planner.solving.what_if.WORTH` over DDP with its
best bucket size, DDP stays. Otherwise copies of the model and the optimiser train in turns under
the plan, DDP's default, and DDP with that bucket size; the plan must gain as much there too.
Guarantee: The model, the optimiser and the random state are restored. All ranks decide the same.
Weights are those of plain data-parallel training either way.
Complexity: That of `make_plan`, `ROUNDS` times `steps` steps per variant, and meanwhile the memory
of another model and optimiser.
"""

import copy
import gc
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.what_if import AdviceAnswer
from planner.model.units import format_ns, format_share
from planner.programs import read_plan
from planner.runtime.measuring.measured import slowest
from planner.runtime.measuring.trial import Trial, run_ddp, run_plan
from planner.runtime.planning import Progress, make_plan, shown_by
from planner.runtime.takeover import Takeover, take_over
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from planner.solving.what_if import WORTH
from planner.view.wording import advice_text

ROUNDS = 3
"""Number of turns of each variant."""


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
    takeover : Takeover or None
        The object that follows the plan; None if DDP is kept.
    plan_ns, ddp_ns : int or None
        Median times of the trial steps, of the faster DDP variant; None without trials.
    leaves : World or None
        The job that `close` leaves.
    """

    model: nn.Module
    reason: str
    plan: bytes | None = None
    takeover: Takeover | None = None
    plan_ns: int | None = None
    ddp_ns: int | None = None
    leaves: World | None = None

    @property
    def keep_ddp(self) -> bool:
        """Whether no plan is followed."""
        return self.takeover is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Finish, and leave the job if `tune` joined it."""
        takeover, self.takeover = self.takeover, None
        if takeover is not None:
            takeover.close(error)
        job, self.leaves = self.leaves, None
        if job is not None:
            if isinstance(self.model, DistributedDataParallel):
                self.model = self.model.module
                gc.collect()  # DDP must be freed before the group it uses
            job.report(error)
            job.leave()


def tune(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    *,
    world: World | None = None,
    timeout_s: float = 60.0,
    steps: int = 5,
    time_limit: float = 10.0,
    progress: Progress | None = None,
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
    model, inputs, optimizer, world, timeout_s, time_limit, progress
        As for `make_plan`, whose errors are raised; `optimizer` is the one that trains.
    steps : int
        Counted steps of each turn, after two that do not count.
    """
    job = join(timeout_s) if world is None else world
    leaves = job if world is None else None
    try:
        tuned = _tuned(model, inputs, optimizer, job, steps, time_limit, progress)
    except BaseException as error:
        if leaves is not None:
            job.report(error)
            job.leave()
        raise
    tuned.leaves = leaves
    return tuned


def _tuned(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    job: World,
    steps: int,
    time_limit: float,
    progress: Progress | None,
) -> Tuned:
    if job.size == 1:
        return Tuned(model, "one rank has nobody to communicate with: nothing to plan")
    plan = make_plan(model, inputs, optimizer, world=job, time_limit=time_limit, progress=progress)
    answer = read_plan(plan)
    assert isinstance(answer, CaramelAnswer)
    advice = answer.advice if isinstance(answer.advice, AdviceAnswer) else None
    bucket_mb = None if advice is None else advice.bucket_cap_mb
    if advice is not None and advice.keep_ddp:
        return Tuned(_ddp(model, bucket_mb, job), f"by prediction, {advice_text(advice)}", plan)
    with shown_by(progress, job) as show:
        times = _tried(model, inputs, optimizer, plan, job, bucket_mb, steps, show)
    plan_ns, best = times.pop("plan"), min(times, key=times.__getitem__)
    ddp_ns, bucket_mb = times[best], bucket_mb if best == "tuned" else None
    took = f"{format_ns(plan_ns)} a step as planned, {format_ns(ddp_ns)} under DDP"
    if ddp_ns < WORTH * plan_ns:
        gain = format_share(ddp_ns / plan_ns - 1) if ddp_ns > plan_ns else "nothing"
        reason = f"{gain} to gain ({took}): keep DDP{_with(bucket_mb)}"
        return Tuned(_ddp(model, bucket_mb, job), reason, plan, None, plan_ns, ddp_ns)
    takeover = take_over(model, optimizer, plan, world=job)
    reason = f"{ddp_ns / plan_ns:.2f} times as fast ({took}{_with(bucket_mb)}): follow the plan"
    return Tuned(model, reason, plan, takeover, plan_ns, ddp_ns)


def _tried(
    model: nn.Module,
    inputs: tuple[Any, ...],
    optimizer: Optimizer,
    plan: bytes,
    job: World,
    bucket_mb: int | None,
    steps: int,
    show: Progress,
) -> dict[str, int]:
    """Return the median time of a step of each variant, on the slowest rank (ns)."""
    options: dict[str, dict[str, Any]] = {"default": {}}
    if bucket_mb is not None:
        options["tuned"] = {"bucket_cap_mb": bucket_mb}
    trials: dict[str, list[Trial]] = {name: [] for name in ("plan", *options)}
    for turn in range(ROUNDS):
        show("steps by turns: round", turn, ROUNDS)
        # Copied together, so that the copied optimiser updates the copied parameters.
        other, updates = copy.deepcopy((model, optimizer))
        trials["plan"].append(run_plan(other, inputs, plan, updates, job, steps=steps))
        for name, chosen in options.items():
            trials[name].append(run_ddp(other, inputs, updates, job, steps=steps, **chosen))
        del other, updates
        gc.collect()
    return {
        name: round(
            median(
                step.step_ns for trial in several for step in slowest(trial.events, trial.warmup)
            )
        )
        for name, several in trials.items()
    }


def _ddp(model: nn.Module, bucket_mb: int | None, job: World) -> DistributedDataParallel:
    options: dict[str, Any] = {} if bucket_mb is None else {"bucket_cap_mb": bucket_mb}
    return DistributedDataParallel(model, process_group=None if job.guest else job.group, **options)


def _with(bucket_mb: int | None) -> str:
    return "" if bucket_mb is None else f" with bucket_cap_mb={bucket_mb}"
