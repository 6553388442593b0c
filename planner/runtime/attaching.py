"""Make the executor of a plan."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from types import MethodType
from typing import Any

from torch import nn
from torch.optim import Optimizer

from planner.families.bml.program import made
from planner.families.collectives.recipes import Recipe
from planner.model.errors import InvalidInputError
from planner.programs import (
    GradientProgram,
    Plan,
    ShardProgram,
    SliceProgram,
    UnitProgram,
    program_of,
    with_pieces,
)
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.collectives.ring import AllReduce
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import plain_name
from planner.runtime.world.joining import join
from planner.runtime.world.world import World


def attach(
    model: nn.Module,
    plan: Plan | list[Plan] | tuple[Plan, ...],
    optimizer: Optimizer,
    world: World,
    *,
    all_reduce: AllReduce | None = None,
) -> Executor:
    """Let a model's training steps communicate as planned.

    A training step becomes the forward pass, the backward pass and `Executor.step`::

        world = join()
        executor = attach(model, Path("plan.json").read_bytes(), optimizer, world)
        for inputs, targets in batches:
            criterion(model(inputs), targets).backward()
            executor.step()
        executor.close()
        world.leave()

    Every rank has to call it. All ranks start from the parameters of rank 0.

    Parameters
    ----------
    model : Module
        On the CPU, the same on all ranks. It may be compiled, in whole or in part; its parameters
        keep the names they have without compilation.
    plan : bytes, mapping, answer or tuple
        A plan of `caramel`, `iteration` or `bigdl`, or a list of two plans of `ibatch`, one for the
        pull and one for the push. Either an answer of ``planner solve``, as JSON text or plain
        values; or a problem with its `Result`, or with a plan of your own, which is checked::

            attach(model, (problem, caramel.solve(problem)), optimizer, world)

        Problems of `ibatch` do not name parameters. Give the names of each layer's parameters as
        the third item::

            names = profile.layer_parameters()
            plans = [(pull, ibatch.solve(pull), names), (push, ibatch.solve(push), names)]
    optimizer : Optimizer
        Any optimiser of torch that can update some parameters before others; for `ibatch` and
        `bigdl` an elementwise one.
    world : World
        The job, from `join`.
    all_reduce : AllReduce, optional
        The all-reduce of gradients for plans that do not name one, as those of `caramel`; by
        default gloo's ring. Plans of `iteration` name a collective program, which is used.

    Raises
    ------
    InvalidInputError
        If the plan is incomplete, does not solve its problem, or does not fit the model or the
        optimiser.
    DisagreementError
        If ranks differ in plan, model or optimiser; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """
    program = with_pieces(
        program_of(plan), lambda piece: piece._replace(parameter=plain_name(piece.parameter))
    )
    if isinstance(program, UnitProgram):
        raise InvalidInputError(
            "problem", "a plan of fsdp is carried out by FSDP2: planner.runtime.fsdp2.as_fsdp2"
        )
    if all_reduce is not None and not isinstance(program, GradientProgram):
        raise InvalidInputError("all_reduce", "the plan does not all-reduce")
    for parameter in model.parameters():
        if parameter.grad is not None:  # DDP may leave views of one buffer: all share a version
            parameter.grad = parameter.grad.clone()
    if isinstance(program, SliceProgram):
        return SliceExecutor(model, program, optimizer, world)
    with ExitStack() as if_refused:
        interpreters = _interpreters(world, program, all_reduce, if_refused.callback)
        executor: Executor
        if isinstance(program, ShardProgram):
            executor = ShardExecutor(model, program, optimizer, world, interpreters)
        else:
            executor = GradientExecutor(model, program, optimizer, world, all_reduce, interpreters)
        executor.closing(if_refused.pop_all().close)
    return executor


def _interpreters(
    world: World,
    planned: GradientProgram | ShardProgram,
    all_reduce: AllReduce | None,
    closing: Callable[[Callable[[], None]], object],
) -> dict[Recipe | None, Interpreter]:
    """Return an interpreter for each collective program of a plan, except for gloo's all-reduces.

    Raises an `InvalidInputError` if a program is for another number of ranks, or is not the given
    `all_reduce`.
    """
    interpreters: dict[Recipe | None, Interpreter] = {}
    for recipe in dict.fromkeys(batch.collective for batch in planned.batches):
        if recipe is None or world.size == 1:
            continue
        program, is_ring = made(recipe), recipe.generator == "ring"
        if program.ranks != world.size:
            raise InvalidInputError(
                "plan",
                f"sums up by {program.name}: it is for {program.ranks} ranks, the job has "
                f"{world.size}; plan for {world.size}",
            )
        if all_reduce is not None:
            if all_reduce.name not in (program.name, "ring" if is_ring else ""):
                raise InvalidInputError(
                    "all_reduce", f"the plan sums up by {program.name}, got {all_reduce.name}"
                )
        elif not (is_ring and isinstance(planned, GradientProgram)):
            interpreters[recipe] = Interpreter(world, program)
            closing(interpreters[recipe].close)
    return interpreters


# ---
# A training loop without changes: `optimizer.step()` becomes `Executor.step`.


def take_over(
    model: nn.Module,
    optimizer: Optimizer,
    plan: Plan | list[Plan] | tuple[Plan, ...],
    *,
    world: World | None = None,
    timeout_s: float = 60.0,
) -> Executor:
    """Let a loop that calls ``optimizer.step()`` follow a plan. Every rank has to call it.

    Until `Executor.close`, the optimiser's `step` calls the closure, if one is given, and then
    `Executor.step`. A model without `no_sync` gets the executor's. Schedulers may wrap `step`
    before or after.

    Parameters
    ----------
    model : Module
        On the CPU, not wrapped in DDP.
    optimizer : Optimizer
        Torch's own, not a trainer's wrapper of it.
    plan
        As for `planner.runtime.attach`, whose errors are raised.
    world : World, optional
        The job, which is not left at the end. By default the executor joins the job by
        `planner.runtime.join`, and leaves the job on close.
    timeout_s : float
        How long a transfer may wait for another rank, if `world` is not given.
    """
    with ExitStack() as if_refused:
        job = if_refused.enter_context(join(timeout_s)) if world is None else world
        executor = attach(model, plan, optimizer, job)
        executor.closing(_step_instead(optimizer, executor))
        if not hasattr(model, "no_sync"):
            model.no_sync = executor.no_sync  # type: ignore[assignment]
            executor.closing(partial(delattr, model, "no_sync"))
        executor.closing(if_refused.pop_all().close)
    return executor


def _step_instead(optimizer: Optimizer, executor: Executor) -> Callable[[], None]:
    """Replace the optimiser's step by the executor's; return the function that restores it."""
    before = optimizer.step
    own = optimizer.__dict__.get("step")  # a scheduler's wrapper, which counts calls
    ended = False

    @wraps(before)
    def step(_: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        if ended or executor.updating:
            return before() if closure is None else before(closure)
        loss = None if closure is None else closure()
        executor.step()
        return loss

    taken = MethodType(step, optimizer)  # a method, because schedulers read its `__func__`
    optimizer.step = taken  # type: ignore[method-assign]

    def put_back() -> None:
        nonlocal ended
        ended = True
        if optimizer.__dict__.get("step") is taken:
            del optimizer.step
            if own is not None:
                optimizer.step = own  # type: ignore[method-assign]

    return put_back
